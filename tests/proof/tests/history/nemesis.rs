//! What goes wrong in a round, again and again, each time proven by a witness.

use std::thread::sleep;
use std::time::{Duration, Instant};

use fastrand::Rng;
use leasehold::LockClient;
use leasehold_proof::trial::{Trial, rest};
use leasehold_support::fault::{Fired, Injector, Site, command, process, server};
use leasehold_support::history::now;
use leasehold_support::{Proxy, Server, WallClock};

use crate::semaphore::LIMIT;
use crate::worker::LEASE;
use crate::workload::Workload;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nemesis {
    ConnectionsKilled,
    HolderStopped,
    HolderKilled,
    ScriptsFlushed,
    ServerStopped,
    /// The server is killed, and keeps all that it has replied to.
    ServerRestarted,
    KeyDeleted,
    Flushed,
    /// The server's clock is set forward, so that all leases end.
    ClockForward,
}

impl Nemesis {
    pub(crate) const ALL: [Nemesis; 9] = [
        Nemesis::ConnectionsKilled,
        Nemesis::HolderStopped,
        Nemesis::HolderKilled,
        Nemesis::ScriptsFlushed,
        Nemesis::ServerStopped,
        Nemesis::ServerRestarted,
        Nemesis::KeyDeleted,
        Nemesis::Flushed,
        Nemesis::ClockForward,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Nemesis::ConnectionsKilled => "connections-killed",
            Nemesis::HolderStopped => "holder-stopped",
            Nemesis::HolderKilled => "holder-killed",
            Nemesis::ScriptsFlushed => "scripts-flushed",
            Nemesis::ServerStopped => "server-stopped",
            Nemesis::ServerRestarted => "server-restarted",
            Nemesis::KeyDeleted => "key-deleted",
            Nemesis::Flushed => "flushed",
            Nemesis::ClockForward => "clock-forward",
        }
    }

    /// Whether it ends locks that their holders rely on: then only the token holds.
    pub(crate) fn takes_locks(self) -> bool {
        matches!(self, Nemesis::KeyDeleted | Nemesis::Flushed | Nemesis::ClockForward)
    }

    /// Whether a holder may go on after its lease without knowing.
    fn stops(self) -> bool {
        matches!(self, Nemesis::HolderStopped | Nemesis::ServerStopped)
    }

    /// Whether a workload says anything about it.
    pub(crate) fn is_for(self, workload: Workload) -> bool {
        match workload {
            // Its record is a key of its own, and its periods are those of the server's clock.
            Workload::Once => !self.takes_locks(),
            // What it writes would be gone, too.
            Workload::Transaction => self != Nemesis::Flushed,
            _ => true,
        }
    }

    /// What must hold of a kind of object: `always`, or only what compares the `token`.
    pub(crate) fn verdict(self, kind: &str) -> &'static str {
        match kind {
            "tokens" | "transaction" => "always",
            "set" if self.stops() => "token",
            _ if self.takes_locks() => "token",
            _ => "always",
        }
    }
}

/// What a nemesis needs besides the trial.
pub(crate) struct Field<'a> {
    pub(crate) workload: Workload,
    /// To ask who has a lock.
    pub(crate) client: LockClient,
    /// The server's clock, where the nemesis sets it, and how far it is ahead.
    pub(crate) clock: Option<&'a WallClock>,
    pub(crate) ahead: Duration,
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
        let proxy = Proxy::start(&trial.server).expect("a proxy, which nobody uses");
        let is_enough = |trial: &Trial, struck: &Struck| {
            let done = || trial.records().map(|(text, ..)| told(&text)).sum::<usize>();
            struck.proven > 0 && (begin.elapsed() > LONGEST || done() > LEAST)
        };
        while begin.elapsed() < time || !is_enough(trial, &struck) {
            assert!(begin.elapsed() < time + LONGEST * 2, "{self:?} was never proven");
            rest(rng);
            let begin = now();
            let is_proven = self.strike(trial, &proxy, field, rng);
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
    fn strike(
        self,
        trial: &mut Trial,
        proxy: &Proxy,
        field: &mut Field<'_>,
        rng: &mut Rng,
    ) -> bool {
        let victim = field.victim(&trial.pids(), rng);
        let lasts = |rng: &mut Rng, from: f64, to: f64| {
            sleep(LEASE.mul_f64(from + (to - from) * rng.f64()));
        };
        if self == Nemesis::HolderKilled {
            let active = process::Killed.begin(trial.pids()[victim]);
            trial.kill(victim);
            return active.fired().is_proven();
        }
        let site = Site::new(&trial.server, proxy, "");
        let fired: Fired = match self {
            Nemesis::HolderKilled => unreachable!("it was above"),
            Nemesis::HolderStopped => {
                let mut active = process::Stopped.begin(trial.pids()[victim]);
                lasts(rng, 0.4, 1.6);
                active.heal();
                active.fired()
            }
            Nemesis::ConnectionsKilled => {
                let which = if rng.bool() { "normal" } else { "pubsub" };
                server::ClientsKilled { which }.inject(&site).fired()
            }
            Nemesis::ScriptsFlushed => {
                let mut active = server::Forgetful.inject(&site);
                lasts(rng, 0.1, 0.4);
                active.heal();
                active.fired()
            }
            Nemesis::ServerStopped => {
                let mut active = server::Stopped.inject(&site);
                lasts(rng, 0.2, 1.4);
                active.heal();
                active.fired()
            }
            Nemesis::ServerRestarted => {
                let mut active = server::Killed.inject(&site);
                lasts(rng, 0.0, 0.4);
                let fired = active.fired();
                active.heal();
                // Its clients connect anew first.
                lasts(rng, 0.2, 0.6);
                fired
            }
            Nemesis::KeyDeleted => return deleted(&trial.server, &field.workload.locks(now())),
            Nemesis::Flushed => command::FLUSHED.inject(&site).fired(),
            Nemesis::ClockForward => return field.set_forward(&trial.server),
        };
        fired.is_proven()
    }
}

/// How many calls told their callers something.
fn told(text: &str) -> usize {
    text.matches(" ok ").count() + text.matches(" done-by=").count()
}

/// Deletes locks, and returns whether one was there.
fn deleted(server: &Server, locks: &[String]) -> bool {
    let mut unlink = redis::cmd("UNLINK");
    unlink.arg(locks).query::<u64>(&mut server.connection()).expect("a number") > 0
}

impl Field<'_> {
    /// The place of a process that has a lock, if there is one at this moment.
    fn victim(&self, pids: &[u32], rng: &mut Rng) -> usize {
        let locks = self.workload.locks(now());
        let lock = &locks[rng.usize(..locks.len())];
        let holder = self.holder(lock);
        let place = holder.and_then(|holder| pids.iter().position(|pid| *pid == holder));
        place.unwrap_or_else(|| rng.usize(..pids.len()))
    }

    fn holder(&self, lock: &str) -> Option<u32> {
        let client = &self.client;
        let holder = match self.workload {
            Workload::Mutex | Workload::Set | Workload::Transaction => {
                client.mutex(lock).ok()?.holder().ok()?
            }
            Workload::Reentrant => client.reentrant(lock).ok()?.holder().ok()?,
            Workload::Semaphore => client.semaphore(lock, LIMIT).ok()?.holders().ok()?.pop(),
            Workload::Access => client.rw_lock(lock).ok()?.holders().ok()?.pop(),
            Workload::Election => return client.election(lock).ok()?.leader().ok()??.pid(),
            Workload::Once => return None,
        };
        holder?.pid()
    }

    /// Sets the server's clock forward, and returns whether the server tells that time.
    fn set_forward(&mut self, server: &Server) -> bool {
        let step = LEASE * 3;
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
