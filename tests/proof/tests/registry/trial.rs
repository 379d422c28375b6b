//! The tools and the measurements of a trial.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{Guard, LockClient, LockClientBuilder, Mutex as Lock};
use leasehold_support::fault::{Active, Fired, Injector, Site};
use leasehold_support::{Proxy, Server};

use crate::common::{SOON, ask, exists, ms, pttl, until, warm};

/// The lock of a trial.
pub(crate) const KEY: &str = "k";
/// The lease of a trial's locks, in milliseconds.
pub(crate) const LEASE: u64 = 1_000;
/// The tail of leases that have one, in milliseconds: longer than a dead waiter is waited for.
pub(crate) const TAIL: u64 = 5_000;
/// How long a command of a trial's client may take.
pub(crate) const COMMAND: Duration = ms(300);
/// How long a call may take that also has to wait for a connection.
pub(crate) const CALL: Duration = ms(600);

/// A private server, a proxy, and the measurements.
pub(crate) struct Trial {
    pub(crate) server: Server,
    pub(crate) proxy: Proxy,
    measured: Mutex<Measured>,
}

/// The measurements of a trial.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// The faults that fired, with their proof.
    pub(crate) fired: Vec<Fired>,
    /// The longest time that a call took beyond its deadline.
    pub(crate) overrun: Duration,
    /// How long after the server was back the first grant came.
    pub(crate) back: Option<Duration>,
    /// The last token that was granted.
    token: u64,
    /// How long its keys may last, where that is more than a lease.
    litter: Duration,
}

impl Trial {
    pub(crate) fn new(arguments: &[&str]) -> Trial {
        let mut builder = Server::builder();
        for argument in arguments {
            builder = builder.arg(argument);
        }
        let server = builder.start().expect("a server");
        warm(&server);
        let proxy = Proxy::start(&server).expect("a proxy");
        Trial { server, proxy, measured: Mutex::default() }
    }

    /// The settings of a client behind the proxy that does not wait long for anything.
    /// It announces nothing, so that each command is one of a lock.
    pub(crate) fn builder(&self) -> LockClientBuilder {
        let builder =
            LockClient::builder(self.proxy.url()).command_timeout(COMMAND).announce(false);
        builder.connect_timeout(COMMAND).max_wait(COMMAND).connect_now(true)
    }

    /// A client behind the proxy, connected.
    pub(crate) fn client(&self) -> LockClient {
        self.builder().build().expect("a client")
    }

    /// A client that the proxy does not trouble.
    pub(crate) fn rival(&self) -> Lock {
        let client = LockClient::open(self.server.url()).expect("a rival");
        client.mutex_with(KEY, crate::common::renewed(LEASE)).expect("a lock")
    }

    pub(crate) fn site(&self) -> Site<'_> {
        Site::new(&self.server, &self.proxy, KEY)
    }

    /// Begins a fault.
    pub(crate) fn inject(&self, injector: &dyn Injector) -> Active<'_> {
        injector.inject(&self.site())
    }

    /// Makes a call that is to end within this time.
    pub(crate) fn timed<T>(&self, within: Duration, call: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let answer = call();
        self.overran(begin.elapsed().saturating_sub(within));
        answer
    }

    /// Something came so long after its bound.
    pub(crate) fn overran(&self, span: Duration) {
        self.note(|measured| measured.overrun = measured.overrun.max(span));
    }

    /// The fault took effect, as its injector and its witness confirm.
    #[track_caller]
    pub(crate) fn prove(&self, active: &Active<'_>) {
        until("the fault fires", || active.fired().is_proven());
        self.note(|measured| measured.fired.push(active.fired()));
    }

    /// Ends a fault that can be proven only then.
    #[track_caller]
    pub(crate) fn heal(&self, mut active: Active<'_>) {
        // A shorter delay is not late for the proxy's journal.
        thread::sleep(ms(30));
        active.heal();
        self.prove(&active);
    }

    /// A fault that the trial makes itself: the trial counts it, and names the witness.
    #[track_caller]
    pub(crate) fn witnessed(&self, injected: u64, witnessed: u64, witness: &'static str) {
        let fired = Fired { injected, witnessed, witness };
        assert!(fired.is_proven(), "{fired:?}");
        self.note(|measured| measured.fired.push(fired));
    }

    /// The next grant: its token is above those of all before (C2), and Redis agrees that it is
    /// this one's.
    #[track_caller]
    pub(crate) fn granted(&self, guard: &Guard) {
        self.minted(guard);
        let left = Duration::from_millis(pttl(&self.server, KEY).unsigned_abs());
        assert!(guard.remaining() <= left + ms(1), "{:?} of {left:?}", guard.remaining());
    }

    /// The next grant: its token is above those of all before (C2).
    #[track_caller]
    pub(crate) fn minted(&self, guard: &Guard) {
        let token = guard.fencing_token().get();
        let before = self.note(|measured| std::mem::replace(&mut measured.token, token));
        assert!(token > before, "{token} after {before}");
        assert!(guard.is_valid());
    }

    /// The first grant came so long after the server was back.
    pub(crate) fn back(&self, span: Duration) {
        self.note(|measured| measured.back = measured.back.max(Some(span)));
    }

    /// The lifetime of the keys that a killed process leaves.
    pub(crate) fn litters(&self, span: Duration) {
        self.note(|measured| measured.litter = span);
    }

    /// The end of a release. If it had no reply, the repeated one found no lock: then the outcome is unknown.
    pub(crate) fn released(&self, outcome: leasehold::Result<()>) {
        if let Err(error) = outcome {
            assert!(error.is_unknown_outcome(), "{error:?}");
        }
    }

    /// The lock is released before its lease ends, and does not come back.
    #[track_caller]
    pub(crate) fn given_back(&self) {
        until("it is given back", || !exists(&self.server, KEY));
        self.stays_away();
    }

    /// The key stays away, although there is time for whatever might bring it back.
    #[track_caller]
    pub(crate) fn stays_away(&self) {
        let begin = Instant::now();
        while begin.elapsed() < ms(150) {
            let left = pttl(&self.server, KEY);
            assert!(left == -2, "a ghost, for {left} ms more");
            thread::sleep(ms(5));
        }
    }

    /// How many wait in the queue of the lock.
    pub(crate) fn waiting(&self) -> u64 {
        ask(&self.server, &["ZCARD", "{k}:queue"])
    }

    /// Heals the proxy. One lease later no key may be left (C5).
    pub(crate) fn finish(self) -> (Measured, Result<(), String>) {
        self.proxy.heal();
        let measured = self.measured();
        let end = Instant::now() + ms(LEASE).max(measured.litter) + ms(300);
        let scan = || {
            let keys = self.server.keys();
            let mut left: Vec<String> =
                keys.iter().map(|key| key.escape_ascii().to_string()).collect();
            let channels: Vec<String> = ask(&self.server, &["PUBSUB", "CHANNELS"]);
            // A client of another test may look for its sentinel where one had this port before.
            left.extend(channels.into_iter().filter(|channel| channel != "+switch-master"));
            left
        };
        loop {
            let left = scan();
            if left.is_empty() {
                return (measured, Ok(()));
            } else if Instant::now() > end {
                return (measured, Err(format!("left behind one lease later: {left:?}")));
            }
            thread::sleep(ms(10));
        }
    }

    /// The measurements so far.
    pub(crate) fn measured(&self) -> Measured {
        self.note(|measured| measured.clone())
    }

    fn note<T>(&self, change: impl FnOnce(&mut Measured) -> T) -> T {
        change(&mut self.measured.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A resource that several trials share, one at a time. A trial that failed half-way may have
/// changed it, so the next one, which may be its repetition, gets another.
pub(crate) fn shared<T>(
    kept: &'static OnceLock<Mutex<T>>,
    start: impl Fn() -> T,
) -> MutexGuard<'static, T> {
    let kept = kept.get_or_init(|| Mutex::new(start()));
    kept.lock().unwrap_or_else(|poisoned| {
        let mut guard = poisoned.into_inner();
        *guard = start();
        kept.clear_poison();
        guard
    })
}

/// A grant to a waiting thread: its token is recorded, and the lock is released.
pub(crate) fn wait(trial: &Trial, lock: &Lock) -> Instant {
    let guard = lock.try_lock_for(SOON).expect("an answer").expect("granted");
    let granted = Instant::now();
    trial.granted(&guard);
    guard.release().expect("a release");
    granted
}
