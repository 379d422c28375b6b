//! Faults of TLS connections, each shown to have happened: what they do to a lock over TLS is what they
//! do to one without.

use std::time::{Duration, Instant};

use leasehold::{Lease, LockClient, LockClientBuilder, LockOptions, LossCause, Mutex};
use leasehold_support::Server;
use leasehold_support::lag::{self, Spent as _};
use leasehold_tls_test::{Authority, Harm, Relay, Terminator};

const COMMAND: Duration = Duration::from_millis(1_000);
const LEASE: Duration = Duration::from_millis(4_000);
const SOON: Duration = Duration::from_secs(10);
/// For a machine that has much else to do.
const SLACK: Duration = Duration::from_millis(400);
/// More than once: every time.
const ALWAYS: usize = usize::MAX;

struct Topology {
    server: Server,
    relay: Relay,
    _terminator: Terminator,
    authority: Authority,
}

impl Topology {
    fn start() -> Topology {
        lag::watch();
        let (server, authority) = (Server::start().expect("a server"), Authority::new("ours"));
        let certificate = authority.sign("127.0.0.1");
        let terminator = Terminator::start(server.socket(), &certificate, None).expect("a port");
        let relay = Relay::to(terminator.address()).expect("a port");
        Topology { server, relay, _terminator: terminator, authority }
    }

    fn builder(&self) -> LockClientBuilder {
        let builder = LockClient::builder(format!("rediss://{}", self.relay.address()));
        let builder = builder.ca_certificate(self.authority.pem()).max_wait(COMMAND);
        builder.command_timeout(COMMAND).connect_timeout(COMMAND)
    }

    fn lock(&self) -> Mutex {
        let options = LockOptions::new().lease(Lease::renewed(LEASE));
        self.builder().build().expect("a client").mutex_with("x", options).expect("a name")
    }

    /// A lock whose connection is there, and the scripts known.
    fn warm(&self) -> Mutex {
        let lock = self.lock();
        lock.lock().unwrap().release().unwrap();
        lock
    }

    fn rival(&self) -> Mutex {
        let client = LockClient::open(self.server.url()).expect("a rival");
        client.mutex("x").expect("a name")
    }

    fn is_there(&self) -> bool {
        self.server.keys().iter().any(|key| key == b"x")
    }

    #[track_caller]
    fn given_back(&self) {
        let end = Instant::now() + SOON;
        while self.is_there() {
            assert!(Instant::now() < end, "it is not given back");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// In the midst of the handshake, and so before anything was asked for.
#[test]
fn wait_outlasts_a_cut_handshake() {
    let topology = Topology::start();
    topology.relay.harm(Harm::CutAfter(100), ALWAYS);
    let lock = topology.lock();
    let begin = Instant::now();
    let error = lock.try_lock().unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    assert!(begin.spent() < COMMAND + SLACK, "{:?}", begin.spent());
    assert!(!topology.is_there());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.try_lock_for(SOON).map(|guard| guard.is_some()));
        std::thread::sleep(COMMAND);
        assert!(!waiter.is_finished());
        assert!(topology.relay.heal() >= 2);
        assert!(waiter.join().unwrap().unwrap());
    });
}

#[test]
fn stalled_handshake_fails_in_time() {
    let topology = Topology::start();
    topology.relay.harm(Harm::Hold, ALWAYS);
    let lock = topology.lock();
    let begin = Instant::now();
    let error = lock.try_lock().unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    assert!(begin.spent() < COMMAND * 2 + SLACK, "{:?}", begin.spent());
    assert!(topology.relay.heal() >= 1);
    lock.try_lock_for(SOON).unwrap().expect("free").release().unwrap();
}

/// Whoever changes what was sealed is found out: that is no answer, and no certificate's fault either.
#[test]
fn flipped_bit_in_the_handshake_makes_no_connection() {
    let topology = Topology::start();
    topology.relay.harm(Harm::Flip, ALWAYS);
    let lock = topology.lock();
    let begin = Instant::now();
    let error = lock.try_lock().unwrap_err();
    assert!(error.is_refused() || error.is_unreachable(), "{error:?}");
    assert!(begin.spent() < COMMAND * 2 + SLACK, "{:?}", begin.spent());
    assert!(!topology.is_there());
    assert!(topology.relay.heal() >= 1);
    lock.try_lock_for(SOON).unwrap().expect("free").release().unwrap();
}

/// The lock was taken and the answer did not come: the attempt is recognised.
fn acquired_again(harm: Harm) {
    let topology = Topology::start();
    let lock = topology.warm();
    topology.server.reset_stats();
    topology.relay.harm(harm, 1);
    let guard = lock.try_lock().unwrap().expect("ours");
    assert_eq!(topology.relay.heal(), 1);
    assert_eq!(topology.server.command_calls(&["evalsha", "eval"]), 2);
    assert_eq!(lock.hold_count(), 1);
    assert!(topology.rival().try_lock().unwrap().is_none());
    guard.check().unwrap();
    guard.release().unwrap();
    assert!(!topology.is_there());
}

#[test]
fn lock_is_recognised_after_a_cut_at_its_reply() {
    acquired_again(Harm::CutAfter(0));
}

#[test]
fn lock_is_recognised_after_a_flipped_bit_in_its_reply() {
    acquired_again(Harm::Flip);
}

/// The second request finds nothing, which the first may have done, or somebody else before it.
#[test]
fn release_with_a_cut_reply_is_repeated() {
    let topology = Topology::start();
    let guard = topology.warm().lock().unwrap();
    topology.relay.harm(Harm::CutAfter(0), 1);
    let error = guard.release().unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    assert_eq!(topology.relay.heal(), 1);
    assert!(!topology.is_there());
}

/// Nothing comes any more: what is under way is told as unknown, in time, and what is held is lost here
/// before another has it.
#[test]
fn black_hole_ends_a_hold_in_time_and_fences_it() {
    let topology = Topology::start();
    let lock = topology.warm();
    let guard = lock.lock().unwrap();
    let other = topology.builder().build().unwrap().mutex("y").unwrap();
    other.lock().unwrap().release().unwrap();
    topology.relay.harm(Harm::Hold, ALWAYS);
    let end = Instant::now() + guard.remaining();
    let error = other.try_lock().unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    let next = topology.rival().try_lock_for(SOON).unwrap().expect("free");
    assert!(!guard.is_valid() && Instant::now() >= end);
    assert_eq!(guard.loss().expect("a loss").cause(), LossCause::Unreachable);
    assert!(next.fencing_token() > guard.fencing_token());
    assert!(topology.relay.heal() >= 2);
    // What was held up arrives, and does nothing.
    std::thread::sleep(Duration::from_millis(200));
    next.check().unwrap();
    next.release().unwrap();
    topology.given_back();
}
