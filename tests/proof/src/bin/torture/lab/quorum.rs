//! The torture over several servers: the plan of which servers go down, restart empty, stand still,
//! or are cut off from which processes, and its trial.
//!
//! Each process reaches each server through a proxy of its own, so that a partition can go through
//! anywhere. No fault is an excuse here: whatever becomes of the servers, two windows never overlap
//! and tokens grow.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use leasehold_support::fault::network::{AtOperation, BlackHole, Refused, SILENCE, Slow};
use leasehold_support::fault::{Active, Fired, Injector, Operation, Site, process, server};
use leasehold_support::history::{Event, History, What, now};
use leasehold_support::{Action, Child, ChildBuilder, Proxy, Server};

use super::Result;
use super::crew::start;
use super::holder::Task;
use super::look::event;
use super::plan::{self, Planted, Shown};
use super::trial::{Report, Torment, counted, gone, judge, recorded, set_out, watched};

/// How many servers there are.
pub(crate) const SERVERS: usize = 5;
/// An expiry that is exact to a millisecond at the servers is seen this much later.
const SLACK: Duration = Duration::from_millis(300);

/// All that a trial needs.
pub(crate) struct Crew {
    pub(crate) servers: Vec<Server>,
    pub(crate) members: Vec<Member>,
    folder: PathBuf,
    make: fn(ChildBuilder) -> ChildBuilder,
}

/// A child process, and the proxies through which it reaches the servers.
pub(crate) struct Member {
    pub(crate) child: Child,
    proxies: Vec<Proxy>,
}

impl Member {
    fn urls(&self) -> String {
        urls(&self.proxies)
    }
}

fn urls(proxies: &[Proxy]) -> String {
    proxies.iter().map(Proxy::url).collect::<Vec<_>>().join(",")
}

impl Crew {
    /// Starts private servers and this number of processes, and waits until the servers have votes.
    pub(crate) fn hire(processes: usize, make: fn(ChildBuilder) -> ChildBuilder) -> Result<Crew> {
        let servers = (0..SERVERS).map(|_| Server::start()).collect::<std::io::Result<Vec<_>>>()?;
        let folder = servers[0].directory().join("torture");
        std::fs::create_dir(&folder)?;
        let mut members = Vec::new();
        for _ in 0..processes {
            let proxies: Vec<Proxy> =
                servers.iter().map(Proxy::start).collect::<std::io::Result<_>>()?;
            let child = start(&urls(&proxies), &folder, make)?;
            members.push(Member { child, proxies });
        }
        // A lease, and the precision of a server's uptime.
        thread::sleep(Duration::from_millis(2_200));
        Ok(Crew { servers, members, folder, make })
    }

    fn replace(&mut self, index: usize) -> Result<()> {
        let member = &mut self.members[index];
        member.child.kill9();
        member.child = start(&member.urls(), &self.folder, self.make)?;
        Ok(())
    }
}

/// The target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Servers.
    Server,
    /// The ways of processes to servers, as a whole.
    Link,
    /// Some of the messages on these.
    Message,
    /// A process.
    Process { kills: bool },
}

/// One fault of a trial: on some servers, for some processes.
struct Planned {
    injector: Box<dyn Injector>,
    class: Class,
    servers: Vec<usize>,
    processes: Vec<usize>,
    begin: Duration,
    end: Duration,
}

/// One trial.
pub(crate) struct Plan {
    seed: u64,
    trial: u64,
    lease: Duration,
    locks: u32,
    fresh: bool,
    faults: Vec<Planned>,
    active: Duration,
    /// Of how many of a thousand holds the lease is needed for long.
    long: u32,
    spins: bool,
    planted: Planted,
}

type Make = fn(&mut Rng, Duration) -> Box<dyn Injector>;

/// The kinds of fault: what they act on, for how long as parts of the lease, and how they are made.
const KINDS: &[(Class, (f64, f64), Make)] = &[
    (Class::Server, (0.1, 1.2), |_, _| Box::new(server::Killed)),
    (Class::Server, (0.0, 0.0), |_, _| Box::new(Restarted)),
    (Class::Server, (0.2, 1.6), |_, _| Box::new(server::Stopped)),
    (Class::Link, (0.2, 1.4), |_, _| Box::new(BlackHole)),
    (Class::Link, (0.1, 1.2), |_, _| Box::new(Refused { cut: true })),
    (Class::Link, (0.4, 0.9), |rng, _| Box::new(Slow(Duration::from_millis(rng.u64(20..90))))),
    (Class::Message, (0.2, 0.7), |_, _| lost(Operation::Acquire)),
    (Class::Message, (0.2, 0.7), |_, _| lost(Operation::Release)),
    (Class::Message, (0.4, 1.2), |_, _| lost(Operation::Renew)),
    (Class::Message, (0.2, 0.7), |_, _| {
        Box::new(AtOperation::request("silence", Operation::Acquire, SILENCE).sticky())
    }),
    (Class::Message, (0.2, 0.7), |_, _| {
        let late = Action::Delay(Duration::from_millis(80));
        Box::new(AtOperation::request("request-late", Operation::Acquire, late).sticky())
    }),
    (Class::Message, (0.2, 0.7), |_, _| {
        let late = Action::Delay(Duration::from_millis(80));
        Box::new(AtOperation::request("request-late", Operation::Release, late).sticky())
    }),
    (Class::Message, (0.3, 1.0), |_, _| {
        Box::new(AtOperation::reply("dropped", Operation::Message, Action::Drop).sticky())
    }),
    (Class::Process { kills: false }, (0.3, 1.5), |_, _| Box::new(process::Stopped)),
    (Class::Process { kills: true }, (0.0, 0.1), |_, _| Box::new(process::Killed)),
];

fn lost(operation: Operation) -> Box<dyn Injector> {
    Box::new(AtOperation::request("reply-lost", operation, Action::LoseReply).sticky())
}

/// It is killed and starts again at once, empty: those connected to it may not have noticed.
#[derive(Debug)]
struct Restarted;

impl Injector for Restarted {
    fn name(&self) -> String {
        "server-restarted-empty".to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let before = site.server.pid();
        site.server.restart();
        let server = site.server;
        let count = move || Fired {
            injected: 1,
            witnessed: u64::from(server.pid() != before),
            witness: "the process id",
        };
        Active::new(self.name(), count, || ())
    }
}

impl Plan {
    /// Draws the plan of a trial.
    pub(crate) fn draw(seed: u64, trial: u64, processes: usize) -> Plan {
        // Combinations that chance seldom draws.
        match trial % 20 {
            9 => return Plan::partitioned(seed, trial),
            19 => return Plan::forgetful(seed, trial),
            _ => {}
        }
        let mut rng = Rng::with_seed(seed.wrapping_mul(1_000_033).wrapping_add(trial));
        let lease = Duration::from_millis(rng.u64(600..=1000));
        let mut plan = Plan {
            seed,
            trial,
            lease,
            locks: rng.u32(1..=3),
            fresh: rng.u8(..4) == 0,
            faults: Vec::new(),
            active: Duration::from_millis(900),
            long: rng.u32(4..40),
            spins: rng.u8(..4) == 0,
            planted: Planted::Nothing,
        };
        // Each kind once before any comes again.
        let mut order: Vec<usize> = (0..KINDS.len()).collect();
        Rng::with_seed(seed.wrapping_add(trial / KINDS.len() as u64)).shuffle(&mut order);
        let first = order[(trial % KINDS.len() as u64) as usize];
        let more = (0..rng.usize(..3)).map(|_| rng.usize(..KINDS.len()));
        for kind in [first].into_iter().chain(more.collect::<Vec<_>>()) {
            let (class, (shortest, longest), make) = KINDS[kind];
            let begin = lease.mul_f64(0.1 + 0.6 * rng.f64());
            let end = begin + lease.mul_f64(shortest + (longest - shortest) * rng.f64());
            let free: Vec<usize> = (0..SERVERS).filter(|it| !plan.is_used(class, *it)).collect();
            // A minority mostly.
            let most = if rng.u8(..4) == 0 { SERVERS } else { 2 };
            let servers = some(&mut rng, &free, most);
            let used = |other: &Planned| {
                class != Class::Server && class != Class::Message && other.class == class
            };
            if (servers.is_empty() && !matches!(class, Class::Process { .. }))
                || plan.faults.iter().any(used)
            {
                continue;
            }
            // Always the same process is killed, so that the others grow old.
            let processes = match class {
                Class::Process { kills: true } => vec![processes - 1],
                Class::Process { kills: false } => vec![rng.usize(..processes - 1)],
                Class::Server => vec![0],
                _ => some(&mut rng, &(0..processes).collect::<Vec<_>>(), processes),
            };
            let injector = make(&mut rng, lease);
            plan.faults.push(Planned { injector, class, servers, processes, begin, end });
            plan.active = plan.active.max(end + Duration::from_millis(200));
        }
        plan
    }

    /// Nobody sees a majority but the last process: the others see two servers each, and not the
    /// same.
    pub(crate) fn partitioned(seed: u64, trial: u64) -> Plan {
        let mut plan = Plan::bare(seed, trial);
        plan.cut(0, vec![2, 3, 4]);
        plan.cut(1, vec![0, 1, 2]);
        plan
    }

    /// A majority loses its data while locks are held for long.
    pub(crate) fn forgetful(seed: u64, trial: u64) -> Plan {
        let mut plan = Plan::bare(seed, trial);
        (plan.long, plan.spins) = (600, true);
        plan.faults.push(Planned {
            injector: Box::new(Restarted),
            class: Class::Server,
            servers: vec![0, 2, 4],
            processes: vec![0],
            begin: Duration::from_millis(500),
            end: Duration::from_millis(500),
        });
        plan
    }

    /// A trial in which one holder does something wrong and nothing else goes wrong.
    pub(crate) fn planted(seed: u64, trial: u64, planted: Planted) -> Plan {
        Plan { planted, ..Plan::bare(seed, trial) }
    }

    fn bare(seed: u64, trial: u64) -> Plan {
        Plan {
            seed,
            trial,
            lease: Duration::from_millis(1000),
            locks: 1,
            fresh: false,
            faults: Vec::new(),
            active: Duration::from_millis(1600),
            long: 4,
            spins: false,
            planted: Planted::Nothing,
        }
    }

    fn cut(&mut self, process: usize, servers: Vec<usize>) {
        self.faults.push(Planned {
            injector: Box::new(BlackHole),
            class: Class::Link,
            servers,
            processes: vec![process],
            begin: Duration::from_millis(100),
            end: Duration::from_millis(1400),
        });
    }

    fn is_used(&self, class: Class, server: usize) -> bool {
        class == Class::Server
            && self.faults.iter().any(|it| it.class == class && it.servers.contains(&server))
    }
}

/// Some of these, at least one if there is one, and no more than that.
fn some(rng: &mut Rng, of: &[usize], most: usize) -> Vec<usize> {
    let mut some = of.to_vec();
    rng.shuffle(&mut some);
    some.truncate(rng.usize(1..=most.min(SERVERS)));
    some
}

impl Shown for Plan {
    fn replay(&self) -> String {
        format!(" --quorum --seed {} --trial {}", self.seed, self.trial)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease {:?}, {} locks", self.lease, self.locks)?;
        for Planned { injector, class, servers, processes, begin, end } in &self.faults {
            write!(f, ", {}", injector.name())?;
            if !matches!(class, Class::Process { .. }) {
                write!(f, " at servers {servers:?}")?;
            }
            if *class != Class::Server {
                write!(f, " of processes {processes:?}")?;
            }
            write!(f, " from {begin:.0?} to {end:.0?}")?;
        }
        Ok(())
    }
}

/// Runs a trial.
pub(crate) fn run(crew: &mut Crew, plan: &Plan) -> Result<Report> {
    let pids: Vec<u32> = crew.members.iter().map(|member| member.child.pid()).collect();
    let begin = Instant::now();
    let until = now() + plan.active.as_nanos() as u64;
    let Plan { trial, seed, lease, locks, fresh, long, spins, planted, .. } = *plan;
    // Several servers refuse a tail.
    let tail = Duration::ZERO;
    let task = Task { trial, seed, lease, tail, locks, until, fresh, long, spins, planted };
    set_out(crew.members.iter_mut().map(|member| &mut member.child), &task);
    let over = AtomicBool::new(false);
    let (mut events, fired) = watched(until, &over, || torment(crew, plan, begin));
    events.push(event(now(), 0, What::Healed));
    let killed = plan.faults.iter().filter(|it| it.class == Class::Process { kills: true });
    let killed: Vec<usize> = killed.flat_map(|fault| fault.processes.clone()).collect();
    let children = crew.members.iter_mut().map(|member| &mut member.child);
    for index in gone(children, plan.trial, &killed)? {
        crew.replace(index)?;
    }
    events.push(event(now(), 0, What::Left(left(crew, plan)?)));
    events.extend(recorded(&crew.folder, plan.trial, plan.locks, &pids)?);
    let history = History::new(events);
    let violations = history.check_several();
    Ok(judge(plan.lease, history, violations, fired))
}

/// A fault while it is on: at how many places, and since when.
struct Going<'a> {
    at: u64,
    places: Vec<Active<'a>>,
    early: Vec<Fired>,
}

/// Lets the faults happen, and heals them, each at its time.
fn torment(crew: &Crew, plan: &Plan, begin: Instant) -> Torment {
    let mut steps: Vec<(Duration, usize, bool)> = Vec::new();
    for (index, fault) in plan.faults.iter().enumerate() {
        // By their order it begins before it ends.
        steps.extend([(fault.begin, index, false), (fault.end, index, true)]);
    }
    steps.sort_unstable();
    let name = plan::Plan::name(plan.trial, 0);
    let mut going: BTreeMap<usize, Going<'_>> = BTreeMap::new();
    let mut events = Vec::new();
    for (when, index, ends) in steps {
        thread::sleep((begin + when).saturating_duration_since(Instant::now()));
        let fault = &plan.faults[index];
        if !ends {
            let at = now();
            let sites = sites(crew, fault, &name);
            let places = sites.iter().map(|site| fault.injector.inject(site)).collect();
            going.insert(index, Going { at, places, early: Vec::new() });
        } else if let Some(Going { at, places, early }) = going.get_mut(&index) {
            if matches!(fault.class, Class::Link | Class::Message) {
                *early = places.iter().map(Active::fired).collect();
            }
            places.iter_mut().for_each(Active::heal);
            if let Class::Process { kills } = fault.class {
                let until = now();
                let what = if kills { What::Killed } else { What::Stopped { until } };
                let process = crew.members[fault.processes[0]].child.pid();
                events.push(Event { process, ..event(*at, 0, what) });
            }
        }
    }
    let healed = Instant::now();
    let fired = going.iter().map(|(index, Going { places, early, .. })| {
        let fault = &plan.faults[*index];
        let name = fault.injector.name();
        let name = match fault.class {
            Class::Process { .. } => name,
            _ => format!("{name} on {}", fault.servers.len()),
        };
        let fired = || sum(places, early);
        let fired = match fault.class {
            Class::Link | Class::Message => counted(healed, fired),
            _ => fired(),
        };
        (name, fired)
    });
    (events, fired.collect())
}

/// The sites of a fault.
fn sites<'a>(crew: &'a Crew, fault: &Planned, name: &'a str) -> Vec<Site<'a>> {
    let site = |process: usize, server: usize| {
        let member: &Member = &crew.members[process];
        let site = Site::new(&crew.servers[server], &member.proxies[server], name);
        Site { child: Some(&member.child), ..site }
    };
    if let Class::Process { .. } = fault.class {
        return vec![site(fault.processes[0], 0)];
    }
    let servers = |process: &usize| {
        let process = *process;
        fault.servers.iter().map(move |server| site(process, *server))
    };
    fault.processes.iter().flat_map(servers).collect()
}

/// The count over all places. At some of them no message may have passed.
fn sum(places: &[Active<'_>], early: &[Fired]) -> Fired {
    let mut sum = Fired { injected: 0, witnessed: 0, witness: "" };
    for (number, place) in places.iter().enumerate() {
        // A proxy that refuses can be asked only while it does, a server only when it is healed.
        let early = early.get(number).copied().filter(Fired::is_proven);
        let fired = early.unwrap_or_else(|| place.fired());
        sum.injected += fired.injected;
        sum.witnessed += fired.witnessed.min(fired.injected);
        sum.witness = fired.witness;
    }
    sum
}

/// Waits until no key of the trial's locks is left on any server, for one lease at most. Returns
/// the keys that are left then.
fn left(crew: &Crew, plan: &Plan) -> Result<Vec<String>> {
    let end = Instant::now() + plan.lease + SLACK;
    let mark = format!("t{}:", plan.trial);
    loop {
        let mut left = Vec::new();
        for (number, server) in crew.servers.iter().enumerate() {
            let mut connection = server.connection();
            for key in server.keys() {
                let key = String::from_utf8_lossy(&key).into_owned();
                if !key.contains(&mark) {
                    continue;
                }
                let ttl: i64 = redis::cmd("PTTL").arg(&key).query(&mut connection)?;
                // It remembers the last token for as long as a lease, and at least a second.
                let longest = if key.ends_with("}:fence") { 2_000 } else { 0 };
                if ttl != -2 && !(0..=longest).contains(&ttl) {
                    left.push(format!("key {key} on server {number} for {ttl} ms"));
                }
            }
            let channels: Vec<String> =
                redis::cmd("PUBSUB").arg("CHANNELS").arg("*").query(&mut connection)?;
            // Those of the locks of this trial are left when nobody has waited there for a while.
            let old = channels.iter().filter(|channel| !channel.contains(&mark)).count();
            let most = crew.members.len() + 3;
            if old > most {
                left.push(format!("{old} channels on server {number}: {channels:?}"));
            }
        }
        if left.is_empty() || Instant::now() > end {
            return Ok(left);
        }
        thread::sleep(Duration::from_millis(10));
    }
}
