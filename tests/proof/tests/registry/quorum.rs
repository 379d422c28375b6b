//! Faults of a few and of most of several servers, whose majority decides.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{LossCause, QuorumClient, QuorumClientBuilder};
use leasehold_support::fault::network::{BlackHole, Refused, Slow};
use leasehold_support::fault::server::{
    Busy, ClientsKilled, Forgetful, Killed, Loading, MaxClients, Stopped,
};
use leasehold_support::fault::setting::{NO_PERMISSION, OUT_OF_MEMORY, READ_ONLY};
use leasehold_support::fault::{Active, Injector, Site};
use leasehold_support::lag::Spent as _;
use leasehold_support::{Proxy, Server};

use crate::common::{SLACK, SOON, exists, ms, pttl, renewed, until, warm};
use crate::kind::kinds;
use crate::trial::{COMMAND, KEY, LEASE, Trial};

kinds! {
    killed_few_at_acquire "few-killed@acquire" "S,L" = few(&Killed);
    stopped_few_at_acquire "few-stopped@acquire" "S,L" = few(&Stopped);
    partitioned_few_at_acquire "few-partitioned@acquire" "S,L" = few(&BlackHole);
    refused_few_at_acquire "few-refused@acquire" "S,L" = few(&Refused { cut: true });
    slow_few_at_acquire "few-slow@acquire" "S,L" = few(&Slow(NODE));
    full_few_at_acquire "few-out-of-memory@acquire" "S,L" = few(&OUT_OF_MEMORY);
    read_only_few_at_acquire "few-read-only@acquire" "S,L" = few(&READ_ONLY);
    loading_few_at_acquire "few-loading@acquire" "S,L" = few(&Loading(ms(800)));
    busy_few_at_acquire "few-busy@acquire" "S,L" = few(&Busy);
    forgetful_few_at_acquire "few-no-script@acquire" "S,L" = few(&Forgetful);
    denied_few_at_acquire "few-no-permission@acquire" "S,L" = few(&NO_PERMISSION);
    killed_few_at_hold "few-killed@hold" "S" = few_at_hold(&Killed);
    stopped_few_at_hold "few-stopped@hold" "S" = few_at_hold(&Stopped);
    partitioned_few_at_hold "few-partitioned@hold" "S" = few_at_hold(&BlackHole);
    clients_killed_few_at_hold "few-clients-killed@hold" "S"
        = few_at_hold(&ClientsKilled { which: "normal" });
    emptied_few_at_hold "few-restarted-empty@hold" "S";
    killed_most_at_acquire "most-killed@acquire" "E,L" = most(&Killed);
    stopped_most_at_acquire "most-stopped@acquire" "E,A,L" = most(&Stopped);
    partitioned_most_at_acquire "most-partitioned@acquire" "E,A,L" = most(&BlackHole);
    refused_most_at_acquire "most-refused@acquire" "E,L" = most(&Refused { cut: true });
    // Each reply takes longer than a server may.
    slow_most_at_acquire "most-slow@acquire" "E,A,L" = most(&Slow(NODE));
    full_most_at_acquire "most-out-of-memory@acquire" "E" = most(&OUT_OF_MEMORY);
    read_only_most_at_acquire "most-read-only@acquire" "E,L" = most(&READ_ONLY);
    loading_most_at_acquire "most-loading@acquire" "E,L" = most(&Loading(ms(1_000)));
    crowded_most_at_connect "most-max-clients@connect" "E,L";
    stopped_most_at_hold "most-stopped@hold" "S,L" = most_at_hold(&Stopped);
    partitioned_most_at_hold "most-partitioned@hold" "S,L" = most_at_hold(&BlackHole);
    emptied_most_at_hold "most-restarted-empty@hold" "S,L";
    partitioned_most_at_release "most-partitioned@release" "E,A";
}

/// How long one of the servers may take.
const NODE: Duration = COMMAND;

/// A server of several.
struct Node {
    server: Server,
    proxy: Proxy,
}

/// Those that no trial uses at the moment.
static SPARES: Mutex<Vec<Node>> = Mutex::new(Vec::new());

fn spare() -> Node {
    let found = SPARES.lock().unwrap_or_else(PoisonError::into_inner).pop();
    found.unwrap_or_else(|| {
        let server = Server::start().expect("a server");
        warm(&server);
        let proxy = Proxy::start(&server).expect("a proxy");
        Node { server, proxy }
    })
}

/// The trial's server and two more, each behind a proxy.
struct Several<'a> {
    trial: &'a Trial,
    spares: [Node; 2],
}

impl<'a> Several<'a> {
    fn of(trial: &'a Trial) -> Several<'a> {
        Several { trial, spares: [spare(), spare()] }
    }

    fn servers(&self) -> [&Server; 3] {
        [&self.trial.server, &self.spares[0].server, &self.spares[1].server]
    }

    /// A client behind the proxies that does not wait long for anything.
    fn builder(&self) -> QuorumClientBuilder {
        let proxies = [&self.trial.proxy, &self.spares[0].proxy, &self.spares[1].proxy];
        let builder = QuorumClient::builder(proxies.map(Proxy::url)).keeps_data(true);
        builder.node_timeout(NODE).max_lease(ms(LEASE))
    }

    /// A lock behind the proxies, to which all three are connected.
    fn lock(&self) -> leasehold::Mutex {
        let client = self.builder().build().expect("a client");
        let lock = client.mutex_with(KEY, renewed(LEASE)).expect("a lock");
        until("all three are connected to", || {
            let guard = lock.lock().expect("a majority");
            let all = self.servers().iter().all(|server| exists(server, KEY));
            guard.release().expect("a majority");
            all
        });
        lock
    }

    /// One that the proxies do not trouble.
    fn rival(&self) -> leasehold::Mutex {
        let builder = QuorumClient::builder(self.servers().map(Server::unix_url));
        let builder = builder.keeps_data(true).node_timeout(NODE).max_lease(ms(LEASE));
        let client = builder.build().expect("a rival");
        client.mutex_with(KEY, renewed(LEASE)).expect("a lock")
    }

    /// Begins a fault at one of the three, which is not the trial's, or at the two that are not.
    fn inject(&self, count: usize, injector: &dyn Injector) -> Vec<Active<'_>> {
        let spares = self.spares.iter().take(count);
        spares.map(|node| injector.inject(&Site::new(&node.server, &node.proxy, KEY))).collect()
    }

    /// Ends it, and shows that it took effect at each of them.
    fn heal(&self, mut active: Vec<Active<'_>>) {
        // A shorter delay is not late for the proxies' journal.
        thread::sleep(ms(30));
        active.iter_mut().for_each(Active::heal);
        active.iter().for_each(|active| self.trial.prove(active));
    }

    /// A grant while all three reply, and two of them confirm its owner.
    #[track_caller]
    fn granted(&self, guard: &leasehold::Guard) {
        self.trial.minted(guard);
        let left = self.servers().map(|server| pttl(server, KEY).unsigned_abs());
        let agree = left.iter().filter(|left| guard.remaining() <= ms(**left + 1)).count();
        assert!(agree >= 2, "{:?} of {left:?}", guard.remaining());
    }

    /// It is released everywhere, and does not come back.
    fn given_back(&self) {
        until("it is given back", || self.servers().iter().all(|server| !exists(server, KEY)));
        let begin = Instant::now();
        while begin.elapsed() < ms(150) {
            for server in self.servers() {
                assert_eq!(pttl(server, KEY), -2, "a ghost");
            }
            thread::sleep(ms(5));
        }
    }
}

/// A fault of one of the three, from before the acquire until after the release.
fn few(trial: &Trial, injector: &dyn Injector) {
    let several = Several::of(trial);
    let lock = several.lock();
    let active = several.inject(1, injector);
    let guard = trial.timed(NODE * 2, || lock.try_lock()).unwrap().expect("two of three");
    trial.granted(&guard);
    // It is renewed once.
    keeps(&several, &guard, ms(LEASE / 2));
    trial.timed(NODE * 2, || guard.release()).unwrap();
    several.heal(active);
    several.given_back();
    let next = several.rival().try_lock_for(SOON).unwrap().expect("free");
    several.granted(&next);
    next.release().unwrap();
    several.done();
}

/// The hold goes on, and no other client gets the lock meanwhile.
fn keeps(several: &Several<'_>, guard: &leasehold::Guard, span: Duration) {
    let (begin, rival) = (Instant::now(), several.rival());
    while begin.elapsed() < span {
        assert!(guard.is_valid(), "{:?}", guard.loss());
        if let Ok(Some(_)) = rival.try_lock() {
            // On a machine that stalls a lease may run out, and then its holder knows.
            assert!(!guard.is_valid(), "two holders");
            panic!("it was not kept: {:?}", guard.loss());
        }
        thread::sleep(ms(20));
    }
    // The first look may take a server longer than it may: its script goes there in a second round.
    until("two of three say so", || guard.check().is_ok());
}

/// A fault of one of the three while the lock is held.
fn few_at_hold(trial: &Trial, injector: &dyn Injector) {
    let several = Several::of(trial);
    let lock = several.lock();
    let guard = lock.lock().unwrap();
    several.granted(&guard);
    let active = several.inject(1, injector);
    // It outlives its first lease.
    keeps(&several, &guard, ms(LEASE + 200));
    several.heal(active);
    guard.check().unwrap();
    trial.timed(NODE * 2, || guard.release()).unwrap();
    several.given_back();
    several.done();
}

/// A fault of two of the three: no client gets the lock, that is reported in time, and no key is
/// left. The lock is granted once they are back.
fn most(trial: &Trial, injector: &dyn Injector) {
    let several = Several::of(trial);
    let lock = several.lock();
    let active = several.inject(2, injector);
    most_for(&several, &lock, active);
    several.done();
}

fn most_for(several: &Several<'_>, lock: &leasehold::Mutex, active: Vec<Active<'_>>) {
    let trial = several.trial;
    for _ in 0..2 {
        let error = trial.timed(NODE * 2, || lock.try_lock().map(drop)).unwrap_err();
        let is_expected =
            error.is_unreachable() || error.is_unknown_outcome() || error.is_refused();
        assert!(is_expected, "{error:?}");
        until("nothing is left", || !exists(&trial.server, KEY));
    }
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let wait = || lock.try_lock_for(SOON);
            // A lasting refusal is reported at once, without a wait.
            let guard = loop {
                match wait() {
                    Err(error) if error.is_refused() => thread::sleep(ms(5)),
                    other => break other.unwrap().expect("granted"),
                }
            };
            let granted = Instant::now();
            trial.minted(&guard);
            guard.release().unwrap();
            granted
        });
        thread::sleep(ms(300));
        assert!(!waiter.is_finished());
        several.heal(active);
        let healed = Instant::now();
        let took = waiter.join().unwrap().saturating_duration_since(healed);
        assert!(took < ms(500) + SLACK, "{took:?}");
    });
    several.given_back();
}

/// A fault of two of the three while the lock is held: the hold ends here no later than there.
fn most_at_hold(trial: &Trial, injector: &dyn Injector) {
    let several = Several::of(trial);
    let lock = several.lock();
    let guard = lock.lock().unwrap();
    several.granted(&guard);
    let active = several.inject(2, injector);
    let begin = Instant::now();
    until("its validity ends", || !guard.is_valid());
    assert!(begin.spent() < ms(LEASE) + SLACK, "{:?}", begin.spent());
    assert_eq!(guard.loss().expect("a loss").cause(), LossCause::Unreachable);
    several.heal(active);
    let next = several.rival().try_lock_for(SOON).unwrap().expect("free");
    several.granted(&next);
    assert!(trial.timed(NODE * 2, || guard.release()).unwrap_err().is_lost());
    thread::sleep(ms(100));
    next.check().unwrap();
    next.release().unwrap();
    several.given_back();
    several.done();
}

impl Several<'_> {
    /// Nothing is left one lease later (C5); who comes next has servers as good as new.
    fn done(self) {
        let end = Instant::now() + ms(LEASE * 2) + SLACK;
        while let Some(key) = self.spares.iter().flat_map(|node| node.server.keys()).next() {
            assert!(Instant::now() < end, "left behind one lease later: {}", key.escape_ascii());
            thread::sleep(ms(10));
        }
        for node in &self.spares {
            // The data of a fault that makes the server load again.
            let _ = std::fs::remove_file(node.server.directory().join("dump.rdb"));
        }
        let mut spares = SPARES.lock().unwrap_or_else(PoisonError::into_inner);
        spares.extend(self.spares);
    }
}

/// One of three loses its vote: two remember theirs.
fn emptied_few_at_hold(trial: &Trial) {
    let several = Several::of(trial);
    let lock = several.lock();
    let guard = lock.lock().unwrap();
    several.granted(&guard);
    let active = several.inject(1, &Killed);
    several.heal(active);
    assert!(!exists(several.servers()[1], KEY), "it remembers");
    keeps(&several, &guard, ms(LEASE + 200));
    guard.release().unwrap();
    several.given_back();
    several.done();
}

/// Two of three take no more connections, and the client has none yet.
fn crowded_most_at_connect(trial: &Trial) {
    let several = Several::of(trial);
    let client = several.builder().build().unwrap();
    let lock = client.mutex_with(KEY, renewed(LEASE)).unwrap();
    let active = several.inject(2, &MaxClients);
    most_for(&several, &lock, active);
    several.done();
}

/// Two of three lose their votes. The holder learns of the loss; no client gets the lock before all
/// leases have ended that they may have forgotten.
fn emptied_most_at_hold(trial: &Trial) {
    let several = Several::of(trial);
    let client = several.builder().keeps_data(false).build().unwrap();
    let lock = client.mutex_with(KEY, renewed(LEASE)).unwrap();
    let guard = lock.lock().unwrap();
    several.granted(&guard);
    let active = several.inject(2, &Killed);
    several.heal(active);
    let restarted = Instant::now();
    assert!(several.servers()[1..].iter().all(|server| !exists(server, KEY)), "they remember");
    let builder = QuorumClient::builder(several.servers().map(Server::unix_url));
    let other = builder.node_timeout(NODE).max_lease(ms(LEASE)).build().unwrap();
    let next = other.mutex_with(KEY, renewed(LEASE)).unwrap().try_lock_for(SOON).unwrap();
    let next = next.expect("free");
    assert!(restarted.elapsed() >= ms(LEASE), "{:?}", restarted.elapsed());
    assert!(!guard.is_valid());
    let cause = guard.loss().expect("a loss").cause();
    // Those that forgot take the other's attempts too, whose votes do not count yet.
    let causes = [LossCause::Deleted, LossCause::Taken, LossCause::Unreachable];
    assert!(causes.contains(&cause), "{cause:?}");
    several.granted(&next);
    assert!(guard.release().unwrap_err().is_lost());
    next.check().unwrap();
    next.release().unwrap();
    several.given_back();
    several.done();
}

/// The release reaches one of three: that is reported, and finished once the others are back.
fn partitioned_most_at_release(trial: &Trial) {
    let several = Several::of(trial);
    let lock = several.lock();
    let guard = lock.lock().unwrap();
    several.granted(&guard);
    let active = several.inject(2, &BlackHole);
    let error = trial.timed(NODE * 2, || guard.release()).unwrap_err();
    assert!(error.is_unknown_outcome(), "{error:?}");
    several.heal(active);
    several.given_back();
    let next = several.rival().try_lock_for(SOON).unwrap().expect("free");
    several.granted(&next);
    next.release().unwrap();
    several.done();
}
