//! The events of a trial, drawn from the seed: the same seed, the same plan.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use leasehold_support::fault::{Injector, server};

use super::kind::{self, Class, Forgets};

/// Of a thousand holds so many are long.
const LONG: u32 = 4;
const LONG_WITH_TAIL: u32 = 60;

/// One trial.
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) trial: u64,
    pub(crate) lease: Duration,
    /// That of some holders' leases; zero where none has one.
    pub(crate) tail: Duration,
    pub(crate) locks: u32,
    /// Whether each process makes a client for this trial only.
    pub(crate) fresh: bool,
    pub(crate) faults: Vec<Planned>,
    /// How long holders go on asking for locks.
    pub(crate) active: Duration,
    /// Of how many of a thousand holds the lease is renewed.
    pub(crate) long: u32,
    /// The planted bug of process 0, for the proof that it is noticed.
    pub(crate) planted: Planted,
}

/// One fault of a trial.
pub(crate) struct Planned {
    pub(crate) injector: Box<dyn Injector>,
    pub(crate) class: Class,
    pub(crate) forgets: Option<Forgets>,
    pub(crate) cuts_off: bool,
    pub(crate) kills: bool,
    pub(crate) process: usize,
    pub(crate) lock: u32,
    pub(crate) begin: Duration,
    pub(crate) end: Duration,
}

/// A bug of a holder, on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Planted {
    #[default]
    Nothing,
    /// It takes no lock at all.
    NoLock,
    /// It goes on after the end of validity as if nothing were.
    Deaf,
    /// Its writes are not fenced, and it goes on after the end of validity.
    Unfenced,
    /// It reports a transaction as done, and did nothing.
    Liar,
    /// It leaves a key behind that never ends.
    Litter,
}

impl Planted {
    pub(crate) const ALL: [Planted; 6] = [
        Planted::Nothing,
        Planted::NoLock,
        Planted::Deaf,
        Planted::Unfenced,
        Planted::Liar,
        Planted::Litter,
    ];
}

impl Plan {
    /// Draws the plan of a trial.
    pub(crate) fn draw(seed: u64, trial: u64, processes: usize, kill: bool) -> Plan {
        let mut rng = Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(trial));
        let kinds = kind::all();
        let lease = Duration::from_millis(rng.u64(600..=1000));
        let mut plan = Plan {
            seed,
            trial,
            lease,
            tail: Duration::ZERO,
            locks: rng.u32(2..=4),
            fresh: rng.bool(),
            faults: Vec::new(),
            active: Duration::from_millis(900),
            long: LONG,
            planted: Planted::Nothing,
        };
        // Drawn beside the rest, so that a trial without tails is what it was before there were any.
        let mut beside = Rng::with_seed(seed.wrapping_mul(7_368_787).wrapping_add(trial));
        if beside.bool() {
            plan.tail = Duration::from_millis(beside.u64(800..=2000));
            // More locks, so that nobody asks for some while their holders are silent.
            (plan.locks, plan.long) = (beside.u32(4..=12), LONG_WITH_TAIL);
        }
        let may_silence: Vec<usize> =
            (0..kinds.len()).filter(|&index| kinds[index].may_silence()).collect();
        let silencing =
            (!plan.tail.is_zero()).then(|| may_silence[beside.usize(..may_silence.len())]);
        // Each kind once before any comes again, and a trial without faults now and then.
        let round = trial / (kinds.len() as u64 + 2);
        let mut order: Vec<usize> = (0..kinds.len() + 2).collect();
        Rng::with_seed(seed.wrapping_add(round)).shuffle(&mut order);
        let first = order[(trial % order.len() as u64) as usize];
        let second = rng.bool().then(|| rng.usize(..kinds.len()));
        for index in [silencing, Some(first), second].into_iter().flatten() {
            let Some(kind) = kinds.get(index) else { continue };
            if (kind.kills && !kill)
                || plan.faults.iter().any(|other| clash(other.class, kind.class))
            {
                continue;
            }
            let mut begin = lease.mul_f64(0.1 + 0.6 * rng.f64());
            let (mut shortest, mut longest) = kind.span;
            if !plan.tail.is_zero() && kind.may_silence() {
                (shortest, longest) = (shortest + 0.8, longest + 1.0);
            }
            let end = begin + lease.mul_f64(shortest + (longest - shortest) * rng.f64());
            let injector = kind.make(&mut rng, lease);
            if ["@subscribe", "@hello"].iter().any(|of| injector.name().ends_with(of)) {
                // It happens when a client begins.
                (plan.fresh, begin) = (true, Duration::ZERO);
            }
            // Always the same process is killed, so that the others grow old.
            let process = if kind.kills { processes - 1 } else { rng.usize(..processes) };
            plan.faults.push(Planned {
                injector,
                class: kind.class,
                forgets: kind.forgets,
                cuts_off: kind.cuts_off,
                kills: kind.kills,
                process,
                lock: rng.u32(..plan.locks),
                begin,
                end,
            });
            if plan.faults.iter().any(|fault| fault.injector.name().ends_with("@renew")) {
                plan.long = plan.long.max(20);
            }
            plan.active = plan.active.max(end + Duration::from_millis(200));
        }
        plan
    }

    /// A trial in which one holder does something wrong and nothing else goes wrong.
    pub(crate) fn planted(seed: u64, trial: u64, planted: Planted) -> Plan {
        let mut plan = Plan::draw(seed, trial, 1, false);
        plan.faults.clear();
        (plan.locks, plan.active, plan.planted) = (1, Duration::from_millis(1500), planted);
        (plan.tail, plan.long) = (Duration::ZERO, LONG);
        plan
    }

    /// A trial in which all leases that are renewed have tails, and the server stands still for longer than a lease.
    #[allow(dead_code, reason = "only a test plays it")]
    pub(crate) fn silent(seed: u64, trial: u64) -> Plan {
        let mut plan = Plan::draw(seed, trial, 1, false);
        let (begin, span) = (plan.lease.mul_f64(0.4), plan.lease.mul_f64(1.7));
        (plan.tail, plan.locks, plan.long) = (plan.lease * 2, 6, LONG_WITH_TAIL);
        plan.faults = vec![Planned {
            injector: Box::new(server::Stopped),
            class: Class::Server,
            forgets: None,
            cuts_off: false,
            kills: false,
            process: 0,
            lock: 0,
            begin,
            end: begin + span,
        }];
        plan.active = begin + span + plan.lease;
        plan
    }

    /// The name of a lock.
    pub(crate) fn name(trial: u64, lock: u32) -> String {
        format!("t{trial}:{lock}")
    }
}

fn clash(one: Class, other: Class) -> bool {
    one == other && one != Class::Network
}

/// Shows a plan to people.
pub(crate) trait Shown: fmt::Display {
    /// The arguments that play it again.
    fn replay(&self) -> String;
}

impl Shown for Plan {
    fn replay(&self) -> String {
        format!(" --seed {} --trial {}", self.seed, self.trial)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lease, locks) = (self.lease, self.locks);
        write!(f, "lease {lease:?}, {locks} locks")?;
        if !self.tail.is_zero() {
            write!(f, ", tails of {:?}", self.tail)?;
        }
        for fault in &self.faults {
            let (name, begin, end) = (fault.injector.name(), fault.begin, fault.end);
            write!(f, ", {name} at process {} from {begin:.0?} to {end:.0?}", fault.process)?;
        }
        Ok(())
    }
}
