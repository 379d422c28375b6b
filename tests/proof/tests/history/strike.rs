//! The nemesis strikes, again and again, each time proven by a witness.

use std::thread::sleep;
use std::time::{Duration, Instant};

use fastrand::Rng;
use leasehold::LockOptions;
use leasehold_proof::trial::{Trial, rest};
use leasehold_support::fault::{Active, Fired, Injector, Site, command, process, server};
use leasehold_support::history::now;
use leasehold_support::{Proxy, Server, WallClock};

use crate::client::Client;
use crate::nemesis::Nemesis;
use crate::semaphore::LIMIT;
use crate::topology::Place;
use crate::worker::LEASE;
use crate::workload::Workload;

/// What a nemesis needs besides the trial.
pub(crate) struct Field<'a> {
    pub(crate) workload: Workload,
    pub(crate) place: &'a Place,
    /// To ask who has a lock.
    pub(crate) client: Client,
    /// The server's clock, where the nemesis sets it, and how far it is ahead.
    pub(crate) clock: Option<&'a WallClock>,
    pub(crate) ahead: Duration,
    /// Nobody uses it.
    pub(crate) proxy: Proxy,
}

/// A round goes on until so many calls have done what they were asked for, or for so long: on a machine that has little
/// time for it, too.
const LEAST: usize = 240;
const LONGEST: Duration = Duration::from_secs(120);

/// How often it happened.
#[derive(Debug, Default)]
pub(crate) struct Struck {
    pub(crate) times: u64,
    pub(crate) proven: u64,
    /// The lines for the history.
    pub(crate) lines: Vec<(u64, String)>,
}

impl Nemesis {
    /// Strikes again and again for so long.
    pub(crate) fn torment(
        self,
        trial: &mut Trial,
        field: &mut Field<'_>,
        time: Duration,
        rng: &mut Rng,
    ) -> Struck {
        let (mut struck, begin) = (Struck::default(), Instant::now());
        let is_enough = |trial: &Trial, struck: &Struck| {
            let done = || trial.records().map(|(text, ..)| told(&text)).sum::<usize>();
            let is_proven = struck.proven > 0 || self == Nemesis::Nothing;
            is_proven && (begin.elapsed() > LONGEST || done() > LEAST)
        };
        while begin.elapsed() < time || !is_enough(trial, &struck) {
            assert!(begin.elapsed() < time + LONGEST * 2, "{self:?} was never proven");
            rest(rng);
            if self == Nemesis::Nothing {
                continue;
            }
            let begin = now();
            let is_proven = self.strike(trial, field, rng);
            let (end, name) = (now(), self.name());
            struck.times += 1;
            struck.proven += u64::from(is_proven);
            let proven = if is_proven { "yes" } else { "no" };
            struck.lines.push((begin, format!("{begin} - nemesis {name} begin")));
            struck.lines.push((end, format!("{end} - nemesis {name} end proven={proven}")));
        }
        struck
    }

    /// Strikes once, and returns whether a witness saw it.
    fn strike(self, trial: &mut Trial, field: &mut Field<'_>, rng: &mut Rng) -> bool {
        let fired: Fired = match self {
            Nemesis::Nothing => return true,
            Nemesis::HolderKilled => {
                let victim = field.victim(&trial.pids(), rng);
                let active = process::Killed.begin(trial.pids()[victim]);
                trial.kill(victim);
                active.fired()
            }
            Nemesis::HolderStopped => {
                let victim = field.victim(&trial.pids(), rng);
                let mut active = process::Stopped.begin(trial.pids()[victim]);
                lasts(rng, 0.4, 1.6);
                active.heal();
                active.fired()
            }
            Nemesis::ConnectionsKilled => {
                let which = if rng.bool() { "normal" } else { "pubsub" };
                field.inject(&server::ClientsKilled { which }, field.home(rng)).fired()
            }
            Nemesis::ScriptsFlushed => {
                let mut active = field.inject(&server::Forgetful, 0);
                lasts(rng, 0.1, 0.4);
                active.heal();
                active.fired()
            }
            Nemesis::ServerStopped => {
                let mut active = field.inject(&server::Stopped, 0);
                lasts(rng, 0.2, 1.4);
                active.heal();
                active.fired()
            }
            Nemesis::ServerRestarted => {
                let mut active = field.inject(&server::Killed, 0);
                lasts(rng, 0.0, 0.4);
                let fired = active.fired();
                active.heal();
                // Its clients connect anew first.
                lasts(rng, 0.2, 0.6);
                fired
            }
            Nemesis::KeyDeleted => return field.delete_locks(),
            Nemesis::Flushed => field.inject(&command::FLUSHED, 0).fired(),
            Nemesis::ClockForward => return field.set_forward(),
            Nemesis::ReplicaKilled => return field.kill_replica(rng),
            Nemesis::Promoted => return field.promote(),
            Nemesis::TakenOver => return field.take_over(rng),
            Nemesis::MasterKilled => return field.kill_master(rng),
            Nemesis::SlotMoved => return field.move_slot(rng),
            Nemesis::TwoKilled => return field.kill_voters(2, rng),
            Nemesis::OneRestarted => return field.kill_voters(1, rng),
        };
        fired.is_proven()
    }
}

/// Waits for a random part of a lease.
pub(crate) fn lasts(rng: &mut Rng, from: f64, to: f64) {
    sleep(LEASE.mul_f64(from + (to - from) * rng.f64()));
}

/// How many calls told their callers something.
fn told(text: &str) -> usize {
    text.matches(" ok ").count() + text.matches(" done-by=").count()
}

impl Field<'_> {
    /// Begins a fault of one of the servers.
    pub(crate) fn inject(&self, fault: &impl Injector, server: usize) -> Active<'_> {
        fault.inject(&Site::new(&self.place.servers()[server], &self.proxy, ""))
    }

    /// A lock that is in use at this moment.
    pub(crate) fn lock(&self, rng: &mut Rng) -> String {
        let mut locks = self.workload.locks(now());
        locks.swap_remove(rng.usize(..locks.len()))
    }

    /// The number of a server that has a lock which is in use.
    fn home(&self, rng: &mut Rng) -> usize {
        match self.place {
            Place::Quorum(servers) => rng.usize(..servers.len()),
            place => place.home(&self.lock(rng)),
        }
    }

    /// The place of a process that has a lock, if there is one at this moment.
    fn victim(&self, pids: &[u32], rng: &mut Rng) -> usize {
        let holder = self.holder(&self.lock(rng));
        let place = holder.and_then(|holder| pids.iter().position(|pid| *pid == holder));
        place.unwrap_or_else(|| rng.usize(..pids.len()))
    }

    fn holder(&self, lock: &str) -> Option<u32> {
        let client = || self.client.locks();
        let holder = match self.workload {
            Workload::Mutex | Workload::Set | Workload::Transaction => {
                self.client.mutex_with(lock, LockOptions::new()).ok()?.holder().ok()?
            }
            Workload::Reentrant => client().reentrant(lock).ok()?.holder().ok()?,
            Workload::Semaphore => client().semaphore(lock, LIMIT).ok()?.holders().ok()?.pop(),
            Workload::Access => client().rw_lock(lock).ok()?.holders().ok()?.pop(),
            Workload::Election => return client().election(lock).ok()?.leader().ok()??.pid(),
            Workload::Once => return None,
        };
        holder?.pid()
    }

    /// Deletes locks, and returns whether one was there.
    fn delete_locks(&self) -> bool {
        let mut unlink = redis::cmd("UNLINK");
        unlink.arg(self.workload.locks(now()));
        let server = &self.place.servers()[0];
        unlink.query::<u64>(&mut server.connection()).expect("a number") > 0
    }

    /// Sets the server's clock forward, and returns whether the server tells that time.
    fn set_forward(&mut self) -> bool {
        let (step, server) = (LEASE * 3, &self.place.servers()[0]);
        let before = time(server);
        self.ahead += step;
        let micros = i64::try_from(self.ahead.as_micros()).expect("less than an age");
        self.clock.expect("a clock of its own").set(micros).expect("a file");
        time(server) - before >= step
    }
}

fn time(server: &Server) -> Duration {
    let time = redis::cmd("TIME").query::<(u64, u64)>(&mut server.connection());
    let (seconds, micros) = time.expect("a time");
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}
