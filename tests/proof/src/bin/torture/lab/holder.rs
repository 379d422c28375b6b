//! The part of a child process: threads that lock, work and release, and record all of it.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use leasehold::{
    Error, Guard, Lease, LockClient, LockOptions, Loss, Mutex as Lock, QuorumClient, Release, Wait,
};
use leasehold_support::child::{hear, tell};
use leasehold_support::history::{Outcome, Recorder, Resource, What, now};

use super::Result;
use super::plan::{Plan, Planted};

/// The role of a child.
pub(crate) const ROLE: &str = "holder";
pub(crate) const URL: &str = "TORTURE_URL";
pub(crate) const FOLDER: &str = "TORTURE_FOLDER";
/// The threads of a process that contend.
pub(crate) const THREADS: u32 = 4;
/// How long a command of a holder may take.
const COMMAND: Duration = Duration::from_millis(150);
/// How long one of several servers may take, and the longest lease there.
const NODE: Duration = Duration::from_millis(60);
const LONGEST: Duration = Duration::from_secs(1);
const GIVE_UP: Duration = Duration::from_millis(1200);
/// No bound: a wait for a holder.
const UNBOUNDED: u64 = u64::MAX / 2;
/// How often a hold that may be silent is looked at.
const LOOK: Duration = Duration::from_millis(3);
const TICK: Duration = Duration::from_millis(1);
/// A validity that lasts so much longer is another one, in ns.
const LONGER: u64 = 1_000_000;
/// A thread that is later than this was kept waiting for the processor.
const LAG: u64 = 2_000_000;

/// The file that a process records a trial to.
pub(crate) fn record(folder: &Path, trial: u64, process: u32) -> PathBuf {
    folder.join(format!("record-{trial}-{process}"))
}

/// The file of what a lock protects.
pub(crate) fn resource(folder: &Path, trial: u64, lock: u32) -> PathBuf {
    folder.join(format!("resource-{trial}-{lock}"))
}

/// The list that transactions under a lock add to.
pub(crate) fn list(trial: u64, lock: u32) -> String {
    format!("list:{}", Plan::name(trial, lock))
}

/// The number of a trial, and where it is recorded.
type Record = (u64, Arc<Recorder>);

/// The file to which a process records now.
#[derive(Clone, Default)]
struct Current(Arc<Mutex<Option<Record>>>);

impl Current {
    fn set(&self, recorder: Option<Record>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = recorder;
    }

    fn get(&self) -> Option<Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lost(&self, loss: &Loss) {
        let at = now();
        let Some((current, recorder)) = self.get() else { return };
        let name = String::from_utf8_lossy(loss.name()).into_owned();
        let numbers = name.strip_prefix('t').and_then(|name| name.split_once(':'));
        if let Some((trial, lock)) = numbers
            && trial.parse() == Ok(current)
            && let Ok(lock) = lock.parse()
        {
            let token = loss.fencing_token().get();
            recorder.note(at, 0, 0, lock, What::Lost { token });
        }
    }
}

/// Plays the role of a child until its parent closes the pipe.
pub(crate) fn serve() -> Result<()> {
    let (url, folder) = (env::var(URL)?, PathBuf::from(env::var(FOLDER)?));
    let current = Current::default();
    let lagging = current.clone();
    thread::spawn(move || watch_lag(&lagging));
    let kept = client(&url, &current)?;
    tell("ready");
    while let Some(line) = hear() {
        let Some(task) = Task::parse(&line) else { continue };
        let recorder = Arc::new(Recorder::open(&record(&folder, task.trial, std::process::id()))?);
        // A client without messages does not receive a loss either.
        let hears = task.planted != Planted::Deaf;
        current.set(hears.then(|| (task.trial, Arc::clone(&recorder))));
        let fresh = task.fresh.then(|| client(&url, &current)).transpose()?;
        let client = fresh.as_ref().unwrap_or(&kept);
        let failures: Vec<String> = thread::scope(|scope| {
            let threads = (1..=THREADS).map(|number| {
                let (recorder, folder, task) = (&*recorder, &*folder, &task);
                scope.spawn(move || Worker::new(number, client, recorder, folder, task)?.run())
            });
            let threads: Vec<_> = threads.collect();
            let ends = threads.into_iter().map(|thread| match thread.join() {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("a thread panicked".to_owned()),
            });
            ends.flatten().collect()
        });
        if let Some(client) = fresh {
            // A lock that cannot be released now ends with its lease.
            let _ = client.shutdown(task.lease);
        }
        // A loss that is reported late is reported by then.
        current.set(None);
        tell(&format!("done {} {}", task.trial, failures.join("; ")));
    }
    let _ = kept.shutdown(Duration::from_secs(1));
    Ok(())
}

/// A client of one server or of several.
enum Client {
    One(LockClient),
    Several(QuorumClient),
}

impl Client {
    fn mutex_with(&self, name: &str, options: LockOptions) -> leasehold::Result<Lock> {
        match self {
            Client::One(client) => client.mutex_with(name, options),
            Client::Several(client) => client.mutex_with(name, options),
        }
    }

    fn shutdown(&self, within: Duration) -> leasehold::Result<()> {
        match self {
            Client::One(client) => client.shutdown(within),
            Client::Several(client) => client.shutdown(within),
        }
    }

    fn is_of_several(&self) -> bool {
        matches!(self, Client::Several(_))
    }
}

/// The URL is a list where there are several servers.
fn client(url: &str, current: &Current) -> leasehold::Result<Client> {
    let current = current.clone();
    if url.contains(',') {
        return QuorumClient::builder(url.split(','))
            .max_size(THREADS)
            .node_timeout(NODE)
            .max_lease(LONGEST)
            .give_up_after(GIVE_UP)
            .on_loss(move |loss| current.lost(loss))
            .build()
            .map(Client::Several);
    }
    LockClient::builder(url)
        .max_size(THREADS)
        .command_timeout(COMMAND)
        .connect_timeout(COMMAND)
        .max_wait(COMMAND)
        .give_up_after(GIVE_UP)
        .on_loss(move |loss| current.lost(loss))
        .build()
        .map(Client::One)
}

/// Notes how much later than it should this process gets the processor.
fn watch_lag(current: &Current) {
    let pause = Duration::from_millis(5);
    loop {
        let due = now() + pause.as_nanos() as u64;
        thread::sleep(pause);
        let at = now();
        if let Some((_, recorder)) = current.get().filter(|_| at > due + LAG) {
            recorder.note(at, 0, 0, 0, What::Lagged { by: at - due });
        }
    }
}

/// The task of a child.
pub(crate) struct Task {
    pub(crate) trial: u64,
    pub(crate) seed: u64,
    pub(crate) lease: Duration,
    /// That of some leases; zero where none has one.
    pub(crate) tail: Duration,
    pub(crate) locks: u32,
    pub(crate) until: u64,
    pub(crate) fresh: bool,
    pub(crate) long: u32,
    /// Whether all wait by asking again and again.
    pub(crate) spins: bool,
    pub(crate) planted: Planted,
}

impl Task {
    pub(crate) fn line(&self) -> String {
        let Task { trial, seed, lease, tail, locks, until, fresh, long, spins, planted } = self;
        let planted = Planted::ALL.iter().position(|other| other == planted).unwrap_or(0);
        let (lease, tail) = (lease.as_millis(), tail.as_millis());
        let (fresh, spins) = (u64::from(*fresh), u64::from(*spins));
        format!(
            "trial {trial} {seed} {lease} {tail} {locks} {until} {fresh} {long} {spins} {planted}"
        )
    }

    fn parse(line: &str) -> Option<Task> {
        let words = line.strip_prefix("trial ")?.split(' ');
        let numbers: Vec<u64> =
            words.map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
        let [trial, seed, lease, tail, locks, until, fresh, long, spins, planted] = numbers[..]
        else {
            return None;
        };
        Some(Task {
            trial,
            seed,
            lease: Duration::from_millis(lease),
            tail: Duration::from_millis(tail),
            locks: u32::try_from(locks).ok()?,
            until,
            fresh: fresh == 1,
            long: u32::try_from(long).ok()?,
            spins: spins == 1,
            planted: *Planted::ALL.get(usize::try_from(planted).ok()?)?,
        })
    }
}

/// One thread that contends.
struct Worker<'a> {
    number: u32,
    call: u64,
    rng: Rng,
    client: &'a Client,
    recorder: &'a Recorder,
    task: &'a Task,
    resources: Vec<Resource>,
    /// Whether its lease has a tail, until when it was known to be valid, and whether it is not, and may be again.
    hold: Known,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    has_tail: bool,
    valid_until: u64,
    is_silent: bool,
}

impl<'a> Worker<'a> {
    fn new(
        number: u32,
        client: &'a Client,
        recorder: &'a Recorder,
        folder: &Path,
        task: &'a Task,
    ) -> Result<Worker<'a>> {
        let open = |lock| {
            let opened = Resource::open(&resource(folder, task.trial, lock))?;
            Ok(if task.planted == Planted::Unfenced { opened.unfenced() } else { opened })
        };
        let resources = (0..task.locks).map(open).collect::<Result<_>>()?;
        let rng = Rng::with_seed(task.seed.wrapping_mul(64).wrapping_add(number.into()));
        let hold = Known::default();
        Ok(Worker { number, call: 0, rng, client, recorder, task, resources, hold })
    }

    fn run(mut self) -> Result<()> {
        while now() < self.task.until {
            self.call += 1;
            let lock = self.rng.u32(..self.task.locks);
            if self.task.planted == Planted::NoLock {
                self.without_lock(lock)?;
            } else {
                self.with_lock(lock)?;
            }
        }
        Ok(())
    }

    fn note(&self, lock: u32, what: What) {
        self.note_at(now(), lock, what);
    }

    fn note_at(&self, at: u64, lock: u32, what: What) {
        self.recorder.note(at, self.number, self.call, lock, what);
    }

    fn options(&mut self) -> LockOptions {
        let lease = self.task.lease;
        let overstays = matches!(self.task.planted, Planted::Deaf | Planted::Unfenced);
        let fixed = overstays || self.rng.u8(..8) == 0;
        let has_tail = !fixed && !self.task.tail.is_zero() && self.rng.u8(..3) != 0;
        self.hold = Known { has_tail, ..Known::default() };
        let lease = match fixed {
            true => Lease::fixed(lease),
            false if has_tail => Lease::renewed(lease).recoverable_for(self.task.tail),
            false => Lease::renewed(lease),
        };
        let options = LockOptions::new().lease(lease);
        if self.client.is_of_several() {
            return match self.rng.u8(..8) {
                _ if self.task.spins => options.wait(Wait::spin()),
                0 | 1 => options.wait(Wait::spin()),
                2..=5 => options.local_handoffs(0),
                _ => options,
            };
        }
        match self.rng.u8(..16) {
            0 => options.wait(Wait::spin()),
            1 => options.wait(Wait::spin()).release(Release::watch()),
            2 => options.linger(Duration::from_millis(20)),
            3 => options.local_handoffs(0),
            _ => options,
        }
    }

    fn with_lock(&mut self, lock: u32) -> Result<()> {
        let name = Plan::name(self.task.trial, lock);
        let options = self.options();
        let mutex = self.client.mutex_with(&name, options)?;
        let wait = Duration::from_millis(self.rng.u64(50..=500));
        let way = self.rng.u8(..16);
        let (budget, waits) = match way {
            // It is repeated once where the connection turned out dead.
            0 | 1 => (nanos(COMMAND * 2), false),
            2 | 3 => (UNBOUNDED, true),
            _ => (nanos(wait), true),
        };
        self.note(lock, What::Invoked { budget, waits });
        let outcome = match way {
            0 | 1 => mutex.try_lock(),
            2 | 3 => mutex.lock().map(Some),
            _ => mutex.try_lock_for(wait),
        };
        let at = now();
        match outcome {
            Ok(Some(guard)) => {
                self.granted(at, lock, &guard);
                if self.rng.u8(..32) == 0 {
                    // Reentry: no command, and the outer hold goes on.
                    drop(mutex.try_lock());
                }
                self.work(lock, &guard)?;
                self.release(lock, guard);
            }
            Ok(None) => {
                self.note_at(at, lock, What::Busy);
                // So that one attempt after the other does not fill the record.
                thread::sleep(Duration::from_millis(self.rng.u64(1..5)));
            }
            Err(error) => {
                self.note_at(at, lock, What::Failed(outcome_of(&error)));
                thread::sleep(Duration::from_millis(self.rng.u64(1..20)));
            }
        }
        Ok(())
    }

    fn granted(&mut self, at: u64, lock: u32, guard: &Guard) {
        let token = guard.fencing_token().get();
        let valid_until = self.valid_until(guard);
        self.hold.valid_until = valid_until;
        self.note_at(at, lock, What::Granted { token, valid_until });
    }

    fn valid_until(&self, guard: &Guard) -> u64 {
        if self.task.planted == Planted::Deaf {
            return u64::MAX / 2;
        }
        // The moment first, so that it is never too late.
        let at = now();
        at + nanos(guard.remaining())
    }

    /// The critical section.
    fn work(&mut self, lock: u32, guard: &Guard) -> Result<()> {
        let token = guard.fencing_token().get();
        let span = match self.rng.u16(..1000) {
            few if u32::from(few) < self.task.long => {
                let most = if self.task.tail.is_zero() { 0.8 } else { 2.0 };
                self.task.lease.mul_f64(0.4 + most * self.rng.f64())
            }
            0..=59 => Duration::from_millis(self.rng.u64(2..15)),
            60..=259 => Duration::from_micros(self.rng.u64(100..2000)),
            _ => Duration::ZERO,
        };
        let overstays = matches!(self.task.planted, Planted::Deaf | Planted::Unfenced);
        let span = if overstays { self.task.lease.mul_f64(1.5) } else { span };
        let entered = self.enter(lock, token)?;
        let transacts = self.rng.u8(..10) == 0 && !self.client.is_of_several();
        if self.task.planted == Planted::Liar || transacts {
            self.transact(lock, guard);
        }
        if !span.is_zero() {
            self.stay(lock, guard, span);
        }
        if let Some(read) = entered {
            self.write(lock, token, read)?;
        }
        Ok(())
    }

    /// One that has a tail is looked at all the time, so that the record has the end of its validity, and its return.
    fn stay(&mut self, lock: u32, guard: &Guard, span: Duration) {
        let end = now() + nanos(span);
        // Until it is known what becomes of it. Some are released before that.
        let outlasts_silence = self.rng.u8(..4) != 0;
        loop {
            let left = Duration::from_nanos(end.saturating_sub(now()));
            let is_looked_at = self.hold.has_tail || self.hold.is_silent;
            thread::sleep(if is_looked_at { LOOK.min(left.max(TICK)) } else { left });
            self.look(lock, guard);
            let is_silent = self.hold.is_silent && guard.loss().is_none();
            if now() >= end && !(is_silent && outlasts_silence) {
                break;
            }
        }
    }

    /// Notes what is new about its validity, and returns whether it is valid.
    fn look(&mut self, lock: u32, guard: &Guard) -> bool {
        let until = self.valid_until(guard);
        let at = now();
        if until > at {
            if self.hold.is_silent || until > self.hold.valid_until + LONGER {
                self.note_at(at, lock, What::Valid { until });
            }
            self.hold.valid_until = until.max(self.hold.valid_until);
            self.hold.is_silent = false;
        } else if !self.task.tail.is_zero() && !self.hold.is_silent && guard.loss().is_none() {
            // Also of one whose lease another thread of this process has begun.
            self.note(lock, What::Silent);
            self.hold.is_silent = true;
        }
        until > at
    }

    fn enter(&mut self, lock: u32, token: u64) -> Result<Option<u64>> {
        let entered = self.resources[lock as usize].enter(token)?;
        let (at, accepted) = entered.map_or_else(|at| (at, false), |touch| (touch.at, true));
        self.note_at(at, lock, What::Entered { token, accepted });
        Ok(entered.ok().map(|touch| touch.value))
    }

    fn write(&mut self, lock: u32, token: u64, read: u64) -> Result<()> {
        let wrote = self.resources[lock as usize].write(token, read)?;
        let (at, accepted) = wrote.map_or_else(|at| (at, false), |touch| (touch.at, true));
        self.note_at(at, lock, What::Wrote { token, accepted });
        Ok(())
    }

    fn transact(&mut self, lock: u32, guard: &Guard) {
        let id = self.rng.u64(..);
        let token = guard.fencing_token().get();
        let key = list(self.task.trial, lock);
        let outcome = if self.task.planted == Planted::Liar {
            Ok(Outcome::Done)
        } else {
            guard
                .transaction(|pipe| {
                    pipe.cmd("RPUSH").arg(&key).arg(format!("{token} {id}"));
                    pipe.cmd("EXPIRE").arg(&key).arg(600);
                })
                // The reply to a command that failed on its own.
                .map(|values| match values.first() {
                    Some(leasehold::redis::Value::Int(_)) => Outcome::Done,
                    _ => Outcome::NotDone,
                })
        };
        let outcome = outcome.unwrap_or_else(|error| outcome_of(&error));
        self.note(lock, What::Transacted { id, outcome });
    }

    fn release(&mut self, lock: u32, guard: Guard) {
        let valid = self.look(lock, &guard);
        // It is repeated once where the connection turned out dead.
        let budget = nanos(COMMAND * 2);
        self.note(lock, What::Releasing { valid, budget });
        let outcome = if self.rng.u8(..20) == 0 {
            drop(guard);
            Outcome::Unknown
        } else {
            match guard.release() {
                Ok(()) => Outcome::Done,
                Err(error) if error.is_lost() => Outcome::NotDone,
                // The worker goes on trying.
                Err(_) => Outcome::Unknown,
            }
        };
        let outcome = if self.task.planted == Planted::Deaf { Outcome::Done } else { outcome };
        self.note(lock, What::Released(outcome));
        if self.task.planted == Planted::Litter {
            self.litter(lock);
        }
    }

    fn litter(&self, lock: u32) {
        let name = Plan::name(self.task.trial, lock);
        let url = env::var(URL).unwrap_or_default();
        let first = url.split(',').next().unwrap_or_default();
        let client = leasehold::redis::Client::open(first);
        if let Ok(mut connection) = client.and_then(|client| client.get_connection()) {
            let key = format!("{name}:litter");
            let _ = leasehold::redis::cmd("SET").arg(key).arg(1).exec(&mut connection);
        }
    }

    /// A critical section that no lock protects, and that reports one.
    fn without_lock(&mut self, lock: u32) -> Result<()> {
        self.note(lock, What::Invoked { budget: UNBOUNDED, waits: false });
        let token = now();
        let valid_until = now() + nanos(self.task.lease);
        self.note(lock, What::Granted { token, valid_until });
        let entered = self.enter(lock, token)?;
        thread::sleep(Duration::from_millis(self.rng.u64(1..5)));
        if let Some(read) = entered {
            self.write(lock, token, read)?;
        }
        self.note(lock, What::Releasing { valid: true, budget: UNBOUNDED });
        self.note(lock, What::Released(Outcome::Done));
        Ok(())
    }
}

fn outcome_of(error: &Error) -> Outcome {
    if error.is_unknown_outcome() { Outcome::Unknown } else { Outcome::NotDone }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX / 4)
}
