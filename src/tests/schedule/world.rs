//! A server, processes, and the witness of their holds.

use std::time::Duration;

use shuttle::thread::{JoinHandle, spawn};

use crate::base::id::Identity;
use crate::base::sync::time::{ModelClock, passed};
use crate::base::sync::{Arc, Weak, sleep};
use crate::base::time::{Clock, Moment};
use crate::engine::hold::Hold;
use crate::engine::{Bounds, Callbacks, Engine};
use crate::protocol::script_protocol::ScriptProtocol;
use crate::tests::schedule::faults::{EXCHANGE, FaultyBackend};
use crate::topology::memory::backend::MemoryBackend;
use crate::topology::memory::server::MemoryServer;
use crate::wire::Value;
use crate::{Guard, LockClient, LockOptions, Mutex, Result};

/// The lock of all scenarios.
pub(super) const NAME: &str = "x";
/// What nobody should have waited for is shorter than a heartbeat, and longer than a retry.
const AT_ONCE: Duration = Duration::from_millis(400);

/// A server that all processes of a scenario share.
pub(super) struct World {
    pub(super) server: Arc<MemoryServer>,
    pub(super) witness: Arc<Witness>,
}

impl World {
    pub(super) fn new() -> World {
        let witness = Arc::new(Witness::default());
        World { server: MemoryServer::new(Arc::new(ModelClock)), witness }
    }

    pub(super) fn process(&self) -> Process {
        self.process_with(Callbacks::default(), FaultyBackend::before)
    }

    /// A process with callbacks, and with something of one's own before the server.
    pub(super) fn process_with(
        &self,
        callbacks: Callbacks,
        before: impl FnOnce(MemoryBackend) -> FaultyBackend,
    ) -> Process {
        let memory = MemoryBackend::new(Arc::clone(&self.server), Arc::new(Identity::new("")));
        let give_up_after = Duration::from_secs(10);
        let bounds = Bounds { reply: EXCHANGE, exchange: EXCHANGE, give_up_after, slow_wait: None };
        let engine = Engine::new(
            Arc::new(ScriptProtocol::new(before(memory))),
            Arc::new(ModelClock),
            bounds,
            callbacks,
        );
        let client =
            LockClient::new(Arc::clone(&engine), Vec::new(), String::new(), Duration::ZERO);
        Process { engine, client, witness: Arc::clone(&self.witness) }
    }

    /// The keys of the lock that live.
    pub(super) fn keys(&self) -> Vec<String> {
        let keys = self.server.keys().into_iter();
        keys.map(|key| String::from_utf8_lossy(&key).into_owned()).collect()
    }

    /// How many stand in the queue of the server.
    pub(super) fn queued(&self) -> u64 {
        let queue = format!("{{{NAME}}}:queue").into_bytes();
        match self.server.call(&[b"ZCARD", &queue]) {
            Ok(Value::Int(count)) => count.unsigned_abs(),
            other => panic!("{other:?}"),
        }
    }

    /// Ends a scenario: nobody has anything any more, here and on the server.
    pub(super) fn end(self, processes: impl IntoIterator<Item = Process>) {
        for process in processes {
            eventually("slots are left", || process.engine.table().is_empty());
        }
        // The last token is remembered for a while.
        eventually("keys are left", || self.keys().iter().all(|key| key.ends_with(":fence")));
    }
}

/// One process: a client of its own.
#[derive(Clone)]
pub(super) struct Process {
    pub(super) engine: Arc<Engine>,
    pub(super) client: LockClient,
    witness: Arc<Witness>,
}

impl Process {
    pub(super) fn mutex(&self) -> Mutex {
        self.mutex_with(LockOptions::new())
    }

    pub(super) fn mutex_with(&self, options: LockOptions) -> Mutex {
        self.client.mutex_with(NAME, options).expect("allowed")
    }

    /// A thread that takes the lock so many times, and is alone in it each time.
    pub(super) fn worker(&self, options: LockOptions, times: usize) -> JoinHandle<()> {
        let process = self.clone();
        spawn(move || {
            let mutex = process.mutex_with(options);
            for _ in 0..times {
                let guard = mutex.lock().expect("granted");
                process.witness.visit(&guard);
                released(guard.release());
            }
        })
    }
}

/// A release that must have gone well.
pub(super) fn released(outcome: Result<()>) {
    outcome.expect("released");
}

/// Waits until every thread has ended.
pub(super) fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        thread.join().expect("no panic");
    }
}

/// Waits for something that must come to be, without a limit but the scenario's.
pub(super) fn eventually(what: &str, is: impl Fn() -> bool) {
    let mut looks = 0;
    while !is() {
        looks += 1;
        assert!(looks < 1000, "{what} after {:?}", passed());
        sleep(Duration::from_millis(100));
    }
}

/// Where time moves only when nobody can run: lets all others go on until they wait.
pub(super) fn let_all_wait() {
    sleep(Duration::from_millis(1));
}

/// Nobody was helped by a heartbeat or by the end of a lease.
pub(super) fn assert_at_once() {
    assert!(passed() < AT_ONCE, "somebody waited {:?}, and was not told", passed());
}

/// Sees who went in last.
#[derive(Default)]
pub(super) struct Witness(std::sync::Mutex<Seen>);

#[derive(Default)]
struct Seen {
    inside: Option<Weak<Hold>>,
    last_token: u64,
    visits: usize,
}

impl Witness {
    /// Goes in with a hold, and lets others go on.
    pub(super) fn visit(&self, guard: &Guard) {
        self.enter(guard);
        sleep(Duration::ZERO);
    }

    /// Goes in, unless the hold was lost by then, as its owner would see. Nobody goes out: a hold that
    /// is given back is not valid from then on, and that is what the next one checks.
    pub(super) fn enter(&self, guard: &Guard) {
        self.enter_by(guard.hold(), guard.fencing_token().get());
    }

    /// The same for any kind of hold.
    pub(super) fn enter_by(&self, lease: &Arc<Hold>, token: u64) {
        loop {
            let before = self.with(|seen| seen.inside.clone());
            // Each look at a lease lets others go on; from the last one to the end nobody does.
            let other = before.as_ref().and_then(Weak::upgrade);
            let others_end = other.as_ref().map_or(Moment::PAST, |other| other.valid_until());
            let end = lease.valid_until();
            let now = ModelClock.now();
            if end <= now {
                return;
            }
            let entered = self.with(|seen| {
                if seen.inside.as_ref().map(Weak::as_ptr) != before.as_ref().map(Weak::as_ptr) {
                    return false;
                }
                assert!(others_end <= now, "{other:?} is valid while {lease:?} goes in");
                assert!(token > seen.last_token, "token {token} after {}", seen.last_token);
                seen.inside = Some(Arc::downgrade(lease));
                seen.last_token = token;
                seen.visits += 1;
                true
            });
            if entered {
                return;
            }
        }
    }

    /// If this hold is valid, nobody has gone in since it did. It may have been silent meanwhile.
    pub(super) fn is_still_inside(&self, hold: &Hold, token: u64) {
        // Looked at before the validity: who goes in later does so beside a hold that is valid.
        let last_token = self.with(|seen| seen.last_token);
        if hold.is_valid_at(ModelClock.now()) {
            assert_eq!(last_token, token, "{hold:?} is valid, and another was inside");
        }
    }

    /// How many went in.
    pub(super) fn visits(&self) -> usize {
        self.with(|seen| seen.visits)
    }

    fn with<T>(&self, work: impl FnOnce(&mut Seen) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}
