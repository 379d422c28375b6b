//! One trial: faults on time, healing, the history, the verdict.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_support::Child;
use leasehold_support::fault::{Active, Fired, Site};
use leasehold_support::history::{
    Event, History, Overrun, Resource, Violation, What, now, raw_overlaps, read, stalled,
    watch_processor, worst_overrun,
};

use super::Result;
use super::crew::{Crew, PATIENCE};
use super::holder::{Task, record, resource};
use super::kind::{Class, Forgets};
use super::look::{self, event};
use super::plan::{Plan, Planned, Planted, Shown};

/// Connections that were cut come back within this time.
const SETTLED: Duration = Duration::from_millis(300);
/// Delayed messages go on within this time.
const COUNTED: Duration = Duration::from_secs(1);

/// A call that returns later than this after its deadline is worth a look, in ns.
pub(crate) const OVERRUN: u64 = 50_000_000;

/// The result of a trial.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) violations: Vec<Violation>,
    /// The machine stalled: the trial proves nothing about time.
    pub(crate) void: bool,
    pub(crate) holds: usize,
    pub(crate) contended: usize,
    /// How often a hold was silent, and how often it came back.
    pub(crate) silences: (usize, usize),
    pub(crate) calls: usize,
    pub(crate) raw_overlaps: usize,
    pub(crate) overrun: Option<Overrun>,
    /// The latest that a process got the processor, in ns.
    pub(crate) lag: u64,
    pub(crate) fired: Vec<(String, Fired)>,
    pub(crate) history: History,
}

/// The events besides those of the holders, and the faults that fired.
pub(crate) type Torment = (Vec<Event>, Vec<(String, Fired)>);

/// Runs a trial.
pub(crate) fn run(crew: &mut Crew, plan: &Plan) -> Result<Report> {
    let pids: Vec<u32> = crew.members.iter().map(|member| member.child.pid()).collect();
    let begin = Instant::now();
    let until = now() + plan.active.as_nanos() as u64;
    let Plan { trial, seed, lease, tail, locks, fresh, long, planted, .. } = *plan;
    let spins = false;
    let task = Task { trial, seed, lease, tail, locks, until, fresh, long, spins, planted };
    set_out(crew.members.iter_mut().map(|member| &mut member.child), &task);
    let (over, blind) = (AtomicBool::new(false), AtomicBool::new(false));
    let (mut events, fired) = thread::scope(|scope| {
        let looks = scope.spawn(|| look::look_on(&crew.server, plan, &over, &blind));
        let (mut events, fired) = watched(until, &over, || torment(crew, plan, begin, &blind));
        events.extend(looks.join().expect("it looks on"));
        (events, fired)
    });
    events.push(event(now(), 0, What::Healed));
    let killed = plan.faults.iter().filter(|fault| fault.kills).map(|fault| fault.process);
    let killed: Vec<usize> = killed.collect();
    let children = crew.members.iter_mut().map(|member| &mut member.child);
    for index in gone(children, plan.trial, &killed)? {
        crew.replace(index)?;
    }
    let mut connection = crew.server.connection();
    let left = look::left(&mut connection, plan, !killed.is_empty(), pids.len())?;
    events.push(event(now(), 0, What::Left(left)));
    events.extend(look::listed(&mut connection, plan)?);
    events.extend(recorded(&crew.folder, plan.trial, plan.locks, &pids)?);
    let history = History::new(events);
    let violations = history.check();
    Ok(judge(plan.lease, history, violations, fired))
}

/// Sends each process its task, with a seed of its own. The first one gets the planted bug.
pub(crate) fn set_out<'a>(children: impl Iterator<Item = &'a mut Child>, task: &Task) {
    for (index, child) in children.enumerate() {
        let planted = if index == 0 { task.planted } else { Planted::Nothing };
        let seed = task.seed.wrapping_mul(31).wrapping_add(task.trial * 8 + index as u64);
        child.say(&Task { seed, planted, ..*task }.line());
    }
}

/// Lets faults happen and waits for the end of the trial, while the processors are watched. What
/// they were late with is among the events.
pub(crate) fn watched(until: u64, over: &AtomicBool, faults: impl FnOnce() -> Torment) -> Torment {
    thread::scope(|scope| {
        let processors = 0..thread::available_parallelism().map_or(1, usize::from);
        let lags = processors.map(|number| scope.spawn(move || watch_processor(number, over)));
        let lags: Vec<_> = lags.collect();
        let (mut events, fired) = faults();
        thread::sleep(Duration::from_nanos(until.saturating_sub(now())));
        over.store(true, Ordering::SeqCst);
        events.extend(lags.into_iter().flat_map(|lags| lags.join().expect("it watches")));
        (events, fired)
    })
}

/// Hears that each process is done; those that are gone, as the killed ones are, must be replaced.
pub(crate) fn gone<'a>(
    children: impl Iterator<Item = &'a mut Child>,
    trial: u64,
    killed: &[usize],
) -> Result<Vec<usize>> {
    let mut gone = killed.to_vec();
    for (index, child) in children.enumerate() {
        if killed.contains(&index) {
            continue;
        }
        match child.hear_line(&format!("done {trial}"), PATIENCE) {
            Some(problem) if problem.is_empty() => {}
            Some(problem) => return Err(format!("a holder failed: {problem}").into()),
            // Its calls without a verdict are found by C5.
            None => gone.push(index),
        }
    }
    Ok(gone)
}

/// Lets the faults happen, and heals them, each at its time.
fn torment(crew: &Crew, plan: &Plan, begin: Instant, blind: &AtomicBool) -> Torment {
    let mut steps: Vec<(Duration, usize, bool)> = Vec::new();
    for (index, fault) in plan.faults.iter().enumerate() {
        steps.extend([(fault.begin, index, true), (fault.end, index, false)]);
    }
    steps.sort_unstable();
    let names: Vec<String> = (0..plan.locks).map(|lock| Plan::name(plan.trial, lock)).collect();
    let mut active: Vec<Option<(u64, Active<'_>)>> = plan.faults.iter().map(|_| None).collect();
    let (mut events, mut early) = (Vec::new(), Vec::new());
    for (when, index, begins) in steps {
        thread::sleep((begin + when).saturating_duration_since(Instant::now()));
        let fault = &plan.faults[index];
        let member = &crew.members[fault.process];
        if begins {
            blind.fetch_or(fault.cuts_off, Ordering::SeqCst);
            let site = Site {
                child: Some(&member.child),
                ..Site::new(&crew.server, &member.proxy, &names[fault.lock as usize])
            };
            let (at, lease) = (now(), plan.lease.as_nanos() as u64);
            active[index] = Some((at, fault.injector.inject(&site)));
            if fault.forgets == Some(Forgets::AtOnce) {
                events.push(event(at, 0, What::Amnesia { until: now(), lease }));
            }
        } else if let Some((at, active)) = &mut active[index] {
            // A proxy that refuses can be asked only while it does, a server only when it is
            // healed.
            if fault.class == Class::Network {
                early.push((index, active.fired()));
            }
            active.heal();
            events.extend(fault_event(plan, fault, *at, member.child.pid()));
        }
    }
    let healed = Instant::now();
    let fired = active.iter().enumerate().filter_map(|(index, active)| {
        let (_, active) = active.as_ref()?;
        let early = early.iter().find(|(of, fired)| *of == index && fired.is_proven());
        let fired = match early {
            Some((_, fired)) => *fired,
            None if plan.faults[index].class == Class::Network => {
                counted(healed, || active.fired())
            }
            None => active.fired(),
        };
        Some((active.name().to_owned(), fired))
    });
    let fired = fired.collect();
    if blind.load(Ordering::SeqCst) {
        thread::sleep(SETTLED);
        blind.store(false, Ordering::SeqCst);
    }
    (events, fired)
}

/// The counts of a fault that was just healed. A delayed message is counted only when it goes on,
/// first by the injector and then by the witness, so this polls until both agree.
pub(crate) fn counted(healed: Instant, fired: impl Fn() -> Fired) -> Fired {
    loop {
        let fired = fired();
        if fired.is_proven() || healed.elapsed() > COUNTED {
            return fired;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The events of a fault that is over, for the history.
fn fault_event(plan: &Plan, fault: &Planned, at: u64, pid: u32) -> Option<Event> {
    let until = now();
    if fault.forgets == Some(Forgets::UntilHealed) {
        let lease = plan.lease.as_nanos() as u64;
        return Some(event(at, 0, What::Amnesia { until, lease }));
    }
    if fault.class != Class::Process {
        return None;
    }
    let what = if fault.kills { What::Killed } else { What::Stopped { until } };
    Some(Event { process: pid, ..event(at, 0, what) })
}

/// Reads the records of the processes and of the resources, and deletes them.
pub(crate) fn recorded(folder: &Path, trial: u64, locks: u32, pids: &[u32]) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for pid in pids {
        let path = record(folder, trial, *pid);
        // A killed process may have recorded nothing yet.
        if path.exists() {
            events.extend(read(&path)?);
            std::fs::remove_file(&path)?;
        }
    }
    for lock in 0..locks {
        let path = resource(folder, trial, lock);
        let accepted = Resource::accepted(&path)?;
        events.push(event(now(), lock, What::Accepted(accepted)));
        if path.exists() {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(events)
}

pub(crate) fn judge(
    lease: Duration,
    history: History,
    mut violations: Vec<Violation>,
    fired: Vec<(String, Fired)>,
) -> Report {
    let void = stalled(&history, lease.as_nanos() as u64 / 10);
    if void {
        // Checks of time prove nothing here; the others hold on any machine.
        violations.retain(|violation| !["C5", "C6"].contains(&violation.checker));
    }
    let lag = history.events().iter().map(|event| match event.what {
        What::Lagged { by } => by,
        _ => 0,
    });
    let overrun = if void { None } else { worst_overrun(&history) };
    let lag = lag.max().unwrap_or(0);
    Report {
        violations,
        void,
        holds: history.holds().count(),
        contended: history.contended(),
        silences: history.silences(),
        calls: history.calls().len(),
        raw_overlaps: raw_overlaps(&history),
        overrun,
        lag,
        fired,
        history,
    }
}

/// Writes a history to a file for people to look into.
pub(crate) fn dump(plan: &dyn Shown, history: &History) -> Result<PathBuf> {
    let words = plan.replay().replace(" --", "-").replace(' ', "-");
    let name = format!("leasehold-torture{words}.txt");
    let path = std::env::temp_dir().join(name);
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path)?);
    writeln!(file, "{plan}")?;
    for event in history.events() {
        writeln!(file, "{event:?}")?;
    }
    file.flush()?;
    Ok(path)
}
