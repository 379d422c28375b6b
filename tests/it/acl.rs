//! The permissions in the guide for users of the server: each rule is enough for its kind of lock, and nothing
//! in it can be left out.

use std::any::Any;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex as Shared;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{SOON, ask, behind_proxy, ms, open, renewed, until};
use leasehold::{
    Begun, LockClient, LockClientBuilder, LockOptions, Mutex, Period, QuorumClient, ReentrantLock,
    Release, Result, RunEnd, UpgradableReadGuard, Wait, WriteGuard,
};
use leasehold_support::fault::Operation as At;
use leasehold_support::lag::{self, Spent as _};
use leasehold_support::{Action, Cluster, Fault, Group, Server};

/// A lease that is renewed each second may end in so long a standstill.
const STANDSTILL: Duration = ms(1_000);
/// So often a trial is repeated that a standstill of the machine spoilt.
const TRIALS: u32 = 4;

const GUIDE: &str = include_str!("../../docs/operations.md");

/// The rule in the guide for this kind of lock: the words behind the password.
fn rule(title: &str) -> Vec<String> {
    let begin = "ACL SETUSER locks reset resetchannels on >secret ";
    let (_, rest) = GUIDE.split_once(&format!("\n# {title}\n{begin}")).expect(title);
    let ends = [rest.find("\n\n"), rest.find("\n```")];
    let end = ends.into_iter().flatten().min().expect("an end");
    rest[..end].split_whitespace().map(str::to_owned).collect()
}

/// What the guide adds for this. A line in a word is escaped in its table.
fn added(reason: &str) -> Vec<String> {
    let (_, rest) = GUIDE.split_once(&format!("\n| {reason} | `")).expect(reason);
    let (words, _) = rest.split_once('`').expect("an end");
    words.replace("\\|", "|").split(' ').map(str::to_owned).collect()
}

/// Gives the user these rules and no others.
fn allow(server: &Server, user: &str, rule: &[String]) {
    let begin = ["ACL", "SETUSER", user, "reset", "resetchannels", "on", ">secret"];
    let words: Vec<&str> = begin.into_iter().chain(rule.iter().map(String::as_str)).collect();
    ask::<()>(server, &words);
}

/// Servers, a user of theirs, and the name of a lock.
struct Stage<'a> {
    servers: &'a [&'a Server],
    user: &'a str,
    name: &'a str,
}

impl Stage<'_> {
    /// What the user was denied.
    fn denied(&self) -> Vec<String> {
        let log = |server: &&Server| ask::<Vec<redis::Value>>(server, &["ACL", "LOG"]);
        let entries = self.servers.iter().flat_map(log).map(|entry| format!("{entry:?}"));
        entries.filter(|entry| entry.contains(&format!("\"{}\"", self.user))).collect()
    }

    /// What comes of this. A denial is told; anything else that goes wrong may be a lease that ended because the machine
    /// stood still. That says nothing about permissions, and so it is done again, with another lock.
    fn outcome(&self, live: &dyn Fn(&Stage<'_>) -> Result<()>) -> Result<()> {
        for trial in 1..TRIALS {
            let name = format!("{}-{trial}", self.name);
            let stage = Stage { name: &name, ..*self };
            match panic::catch_unwind(AssertUnwindSafe(|| live(&stage))) {
                Ok(outcome) if outcome.as_ref().err().is_none_or(says_denied) => return outcome,
                _ => {}
            }
        }
        live(self)
    }

    fn url(&self, server: &Server) -> String {
        format!("{}?user={}&pass=secret", server.unix_url(), self.user)
    }

    /// Of clients that send nothing but what locks need.
    fn builder(&self) -> LockClientBuilder {
        LockClient::builder(self.url(self.servers[0])).name_prefix("shop:").announce(false)
    }

    fn client(&self) -> LockClient {
        self.builder().build().expect("a client")
    }

    /// The lock, by a client of its own.
    fn mutex(&self, options: LockOptions) -> Mutex {
        self.client().mutex_with(self.name, options).expect("a lock")
    }

    fn reentrant(&self, options: LockOptions) -> ReentrantLock {
        self.client().reentrant_with(self.name, options).expect("a lock")
    }
}

/// A rule, and what is done by a user that has it.
struct Trial<'a> {
    /// What is allowed all the time.
    base: Vec<String>,
    /// What is allowed besides, all of it or all but one word.
    rule: Vec<String>,
    /// What is missed by nobody but the server's log.
    quiet: &'static [&'static str],
    live: &'a (dyn Fn(&Stage<'_>) -> Result<()> + Sync),
}

impl Trial<'_> {
    /// With its rule all goes well, and nothing is denied; without any word of it something is.
    #[track_caller]
    fn is_exact(&self, stages: &[Vec<&Server>]) {
        lag::watch();
        let trials = Shared::new((0..=self.rule.len()).rev().collect::<Vec<_>>());
        let failures = Shared::new(Vec::new());
        thread::scope(|scope| {
            for servers in stages {
                scope.spawn(|| {
                    loop {
                        let trial = trials.lock().unwrap().pop();
                        let Some(trial) = trial else { return };
                        if let Err(failure) = self.without(trial, servers) {
                            failures.lock().unwrap().push(failure);
                        }
                    }
                });
            }
        });
        let failures = failures.into_inner().unwrap();
        assert!(failures.is_empty(), "{failures:#?}");
    }

    /// Leaves out the word of this number, or none.
    ///
    /// A lease that ends because the machine stood still takes another path, which needs other rights. That says nothing
    /// about the rule, and so it is done again.
    fn without(&self, number: usize, servers: &[&Server]) -> Result<(), String> {
        let mut trials = 0;
        loop {
            let begin = Instant::now();
            let outcome = self.once_without(number, servers);
            trials += 1;
            let withheld = begin.elapsed().saturating_sub(begin.spent());
            if outcome.is_ok() || withheld < STANDSTILL || trials == TRIALS {
                return outcome;
            }
        }
    }

    fn once_without(&self, number: usize, servers: &[&Server]) -> Result<(), String> {
        let mut rule = self.rule.clone();
        let word = (number < rule.len()).then(|| rule.remove(number));
        rule.extend_from_slice(&self.base);
        let (user, name) = (format!("locks{number}"), format!("x{number}"));
        for server in servers {
            allow(server, &user, &rule);
        }
        let stage = Stage { servers, user: &user, name: &name };
        let quiet = |word: &str| word == "+client|setname" || self.quiet.contains(&word);
        let quiet = word.as_deref().is_some_and(quiet);
        let mut outcome = stage.outcome(self.live);
        let mut denied = stage.denied();
        // Some are needed only where two things meet, which a slow machine may keep apart.
        for _ in 0..4 {
            if quiet && outcome.is_ok() && denied.is_empty() {
                outcome = stage.outcome(self.live);
                denied = stage.denied();
            }
        }
        for server in servers {
            ask::<()>(server, &["ACL", "DELUSER", &user]);
        }
        match &outcome {
            Ok(()) if denied.is_empty() == word.is_none() && quiet == word.is_some() => Ok(()),
            Err(error) if says_denied(error) && word.is_some() && !quiet => Ok(()),
            _ => Err(format!("without {word:?}: {outcome:?}, {denied:#?}")),
        }
    }
}

/// Whether an error tells of the denial. One server of several that had no vote to take back has done what it
/// was asked for, so that the outcome is unknown, and the others' denial is in the text.
fn says_denied(error: &leasehold::Error) -> bool {
    let names_reason = error.to_string().contains("has no permissions");
    error.is_denied() || error.is_unknown_outcome() && names_reason
}

/// So many servers at once, for as many trials.
fn servers(count: usize) -> Vec<Server> {
    let start = || Server::start().expect("a server");
    thread::scope(|scope| {
        let starting: Vec<_> = (0..count).map(|_| scope.spawn(start)).collect();
        starting.into_iter().map(|server| server.join().expect("a server")).collect()
    })
}

/// Tries the rule of the guide with this title on several servers at once.
#[track_caller]
fn is_exact(
    title: &str,
    quiet: &'static [&'static str],
    live: impl Fn(&Stage<'_>) -> Result<()> + Sync,
) {
    let servers = servers(5);
    let stages: Vec<_> = servers.iter().map(|server| vec![server]).collect();
    Trial { base: Vec::new(), rule: rule(title), quiet, live: &live }.is_exact(&stages);
}

/// The same for what is to be added to the rule of the mutex, or another.
#[track_caller]
fn is_exact_beside(
    base: &str,
    reason: &str,
    quiet: &'static [&'static str],
    live: impl Fn(&Stage<'_>) -> Result<()> + Sync,
) {
    let server = Server::start().expect("a server");
    let trial = Trial { base: rule(base), rule: added(reason), quiet, live: &live };
    trial.is_exact(&[vec![&server]]);
}

/// Everything that can be done with locks of all kinds.
macro_rules! life {
    ($name:ident, $lock:ty) => {
        fn $name(servers: &[&Server], one: &$lock, other: &$lock) -> Result<()> {
            for server in servers {
                // Or it would not show that a script has to be sent whole.
                ask::<()>(server, &["SCRIPT", "FLUSH"]);
            }
            let guard = one.lock()?;
            // Passed on inside the process, which it is only for a short time.
            let guard = thread::scope(|scope| -> Result<_> {
                let next = scope.spawn(|| one.lock().map(|guard| guard.into_owned().expect("one")));
                until("it waits", || guard.waiters() > 0);
                guard.release()?;
                Ok(next.join().expect("no panic")?.into_guard())
            })?;
            guard.check()?;
            assert!(other.is_locked()? && other.holder()?.is_some());
            assert!(other.try_lock()?.is_none());
            match other.try_lock_for(ms(200)) {
                // The machine stood still.
                Err(error) if error.is_unknown_outcome() => {}
                other => assert!(other?.is_none()),
            }
            guard.extend(ms(3_200))?;
            guard.confirm()?;
            // Until after its release.
            guard.keep_for(ms(2_000))?;
            thread::scope(|scope| -> Result<()> {
                let waiter = scope.spawn(|| -> Result<()> {
                    other.try_lock_for(SOON)?.expect("its turn").release()
                });
                // It renews meanwhile, and the waiter asks again.
                thread::sleep(ms(1_400));
                let released = guard.release();
                waiter.join().expect("no panic")?;
                released
            })?;
            assert!(!one.force_release()?);
            let guard = one.lock()?;
            assert!(other.force_release()?);
            let next = other.lock()?;
            // What it has lost it does not give back.
            let error = guard.release().unwrap_err();
            if !error.is_lost() {
                return Err(error);
            }
            next.release()
        }
    };
}

life!(live, Mutex);
life!(live_reentrant, ReentrantLock);

/// Renewed while it is lived.
fn short() -> LockOptions {
    renewed(3_000)
}

#[test]
fn permissions_of_a_mutex_are_exact() {
    is_exact("Mutex", &["+pubsub|numsub"], |stage| {
        let locks = [(); 3].map(|()| stage.mutex(short()));
        live(stage.servers, &locks[0], &locks[1])?;
        let guard = stage.mutex(renewed(3_000).linger(ms(500))).lock()?;
        thread::scope(|scope| -> Result<()> {
            let waiters = [&locks[1], &locks[2]]
                .map(|lock| scope.spawn(|| lock.try_lock_for(SOON)?.expect("its turn").release()));
            // Both ask again.
            thread::sleep(ms(1_300));
            let requested = locks[1].request_release();
            let released = guard.release();
            for waiter in waiters {
                waiter.join().expect("no panic")?;
            }
            requested?;
            released
        })?;
        // A process that was killed while it queued.
        let guard = locks[0].lock()?;
        let dead = "1q:00000000000000000000000000000000:1:3000:1:host:";
        let beside = |end: &str| format!("{{shop:{}}}:{end}", stage.name);
        ask::<()>(stage.servers[0], &["ZADD", &beside("queue"), "1", dead]);
        ask::<()>(stage.servers[0], &["ZADD", &beside("beats"), "9000000000000000", dead]);
        guard.release()?;
        locks[2].inspect()?;
        locks[1].lock()?.release()
    });
}

/// As the guide says of this permission. No message tells of the grant, so the waiter asks.
#[test]
fn queue_without_publish_is_served_by_heartbeats() {
    let server = Server::start().expect("a server");
    let rule: Vec<String> = rule("Mutex").into_iter().filter(|word| word != "+publish").collect();
    allow(&server, "locks", &rule);
    let stage = Stage { servers: &[&server], user: "locks", name: "x" };
    let (lock, other) = (stage.mutex(renewed(30_000)), stage.mutex(renewed(30_000)));
    let guard = lock.lock().unwrap();
    assert!(other.request_release().unwrap_err().is_denied(), "nobody can be asked to let go");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| -> Result<_> {
            Ok(other.try_lock_for(SOON)?.expect("its turn").into_owned().expect("held once"))
        });
        until("it queues", || ask::<u64>(&server, &["ZCARD", "{shop:x}:queue"]) == 1);
        let owner = lock.holder().unwrap().expect("a holder");
        guard.release().unwrap();
        // The waiter keeps it, whenever it finds out.
        until("it is handed over", || {
            let next: Option<String> = ask(&server, &["GET", "shop:x"]);
            next.is_some_and(|next| next.as_bytes() != owner.owner())
        });
        drop(waiter.join().expect("no panic").unwrap());
    });
}

#[test]
fn permissions_of_a_spinning_mutex_are_exact() {
    is_exact("Mutex, Wait::spin()", &["+zrange"], |stage| {
        let lock = || stage.mutex(short().wait(Wait::spin()));
        live(stage.servers, &lock(), &lock())
    });
}

#[test]
fn permissions_of_a_release_by_watch_are_exact() {
    is_exact("Mutex, Wait::spin(), Release::watch()", &["+zrange", "+zrem"], |stage| {
        let options = short().wait(Wait::spin()).release(Release::watch());
        let lock = || stage.mutex(options);
        live(stage.servers, &lock(), &lock())?;
        // What became of a request without a reply is not known. A script takes it back, also from the queue.
        let hasty =
            stage.builder().command_timeout(ms(100)).build()?.mutex_with(stage.name, options)?;
        assert!(!hasty.is_locked()?);
        ask::<()>(stage.servers[0], &["CLIENT", "PAUSE", "250"]);
        let outcome = hasty.try_lock();
        thread::sleep(ms(500));
        match outcome {
            Err(error) if error.is_denied() => Err(error),
            _ => Ok(()),
        }
    });
}

#[test]
fn permissions_of_a_reentrant_lock_are_exact() {
    is_exact("ReentrantLock", &["+get", "+unsubscribe"], |stage| {
        let (lock, other) = (stage.reentrant(short()), stage.reentrant(short()));
        live_reentrant(stage.servers, &lock, &other)?;
        // Meanwhile the channel that nobody needs any longer is left, and the count is shown.
        let (outer, inner) = (lock.lock()?, lock.lock()?);
        thread::sleep(ms(1_500));
        inner.release()?;
        outer.release()
    });
}

#[test]
fn permissions_of_a_spinning_reentrant_lock_are_exact() {
    let quiet = &["+get", "+publish", "&leasehold:*", "&redisson_lock__channel:{shop:*"];
    is_exact("ReentrantLock, Wait::spin()", quiet, |stage| {
        let lock = || stage.reentrant(short().wait(Wait::spin()));
        live_reentrant(stage.servers, &lock(), &lock())
    });
}

/// Everything that can be done with a semaphore.
fn live_permits(stage: &Stage<'_>, options: LockOptions) -> Result<()> {
    let server = stage.servers[0];
    // Or it would not show that a script has to be sent whole.
    ask::<()>(server, &["SCRIPT", "FLUSH"]);
    let gpus = || stage.client().semaphore_with(stage.name, 2, options);
    let (one, other) = (gpus()?, gpus()?);
    // Behind the one that asks, permits are passed on inside the process.
    let all = one.acquire_many(2)?;
    thread::scope(|scope| -> Result<()> {
        let wait = || one.acquire_many(2)?.release();
        let waits = [0; 4].map(|_| scope.spawn(wait));
        let fails = || waits.iter().any(|it| it.is_finished());
        until("they wait", || all.waiters() > 3 || fails());
        all.release()?;
        waits.into_iter().try_for_each(|it| it.join().expect("no panic"))
    })?;
    let (first, second) = (one.acquire()?, one.acquire()?);
    let second = thread::scope(|scope| -> Result<_> {
        let next = scope.spawn(|| one.acquire());
        until("it waits", || first.waiters() > 0 || next.is_finished());
        second.release()?;
        next.join().expect("no panic")
    })?;
    second.check()?;
    assert!(other.try_acquire()?.is_none() && other.available()? == 0);
    match other.try_acquire_for(ms(200)) {
        // The machine stood still.
        Err(error) if error.is_unknown_outcome() => {}
        other => assert!(other?.is_none()),
    }
    first.extend(ms(3_200))?;
    first.confirm()?;
    // Two ask for more than is free, renew meanwhile, and ask again.
    thread::scope(|scope| -> Result<()> {
        let wait =
            || -> Result<()> { other.try_acquire_many_for(2, SOON)?.expect("its turn").release() };
        let third = gpus()?;
        let waits = scope.spawn(wait);
        let behind = scope.spawn(move || third.try_acquire_for(SOON)?.expect("its turn").release());
        thread::sleep(ms(1_400));
        let resized = other.resize(3).and_then(|()| other.resize(2));
        let released = [first.release(), second.release()];
        waits.join().expect("no panic")?;
        behind.join().expect("no panic")?;
        resized?;
        released.into_iter().collect()
    })?;
    // More is in use than the limit allows: its holders are told.
    let whole = one.acquire_many(2)?;
    other.resize(1)?;
    whole.release()?;
    other.resize(2)?;
    let held = one.acquire()?;
    let holders = other.holders()?;
    let holder = holders.iter().find(|holder| holder.slots() == held.slots()).expect("a holder");
    assert!(other.force_release(holder)?);
    let next = other.acquire()?;
    // What it has lost it does not give back.
    match held.release().unwrap_err() {
        error if error.is_lost() => next.release(),
        error => Err(error),
    }
}

#[test]
fn permissions_of_a_semaphore_are_exact() {
    is_exact("Semaphore", &["+publish", "+pubsub|numsub", "+get"], |stage| {
        live_permits(stage, short())?;
        // A process that was killed while it waited, and another whose time is over.
        let gpus = stage.client().semaphore_with(stage.name, 2, short())?;
        let held = gpus.acquire_many(2)?;
        let beside = |end: &str| format!("{{shop:{}}}:{end}", stage.name);
        for (number, death) in [("1", "9000000000000000"), ("2", "1")] {
            let dead = format!("1q:00000000000000000000000000000000:{number}:3000:1:1:host:");
            ask::<()>(stage.servers[0], &["ZADD", &beside("line"), number, &dead]);
            ask::<()>(stage.servers[0], &["ZADD", &beside("signs"), death, &dead]);
        }
        held.release()
    });
}

/// Everything that can be done with an election.
fn live_election(stage: &Stage<'_>) -> Result<()> {
    // Or it would not show that a script has to be sent whole.
    ask::<()>(stage.servers[0], &["SCRIPT", "FLUSH"]);
    let election = || stage.client().election_with(stage.name, short());
    let (one, other) = (election()?, election()?);
    let mut observation = other.observe()?;
    observation.next()?;
    let leadership = one.campaign()?;
    leadership.proclaim("word")?;
    leadership.check()?;
    leadership.extend(ms(3_200))?;
    leadership.confirm()?;
    assert!(other.try_campaign()?.is_none());
    let seen = observation.next_timeout(SOON)?;
    assert!(seen.is_some_and(|seen| seen.leader().is_some()));
    // Its channel is left within the next second.
    drop(observation);
    let next = thread::scope(|scope| {
        let next = scope.spawn(|| other.try_campaign_for(SOON));
        // It renews meanwhile, and the candidate asks again.
        thread::sleep(ms(1_400));
        let resigned = leadership.resign();
        let next = next.join().expect("no panic")?.expect("its turn");
        resigned.map(|()| next)
    })?;
    assert!(one.leader()?.is_some() && one.candidates()?.is_empty());
    // Processes that were killed while they stood in the line.
    let beside = |end: &str| format!("{{shop:{}}}:{end}", stage.name);
    for (number, death) in [("1", "9000000000000000"), ("2", "1")] {
        let dead = format!("1q:00000000000000000000000000000000:{number}:3000:e:1:host:");
        ask::<()>(stage.servers[0], &["ZADD", &beside("candidates"), number, &dead]);
        ask::<()>(stage.servers[0], &["ZADD", &beside("pulses"), death, &dead]);
    }
    assert!(one.force_release()?);
    // What it has lost it does not give back.
    match next.resign() {
        Err(error) if error.is_lost() => Ok(()),
        outcome => outcome,
    }
}

#[test]
fn permissions_of_an_election_are_exact() {
    is_exact("Election", &["+publish", "+pubsub|numsub", "+unsubscribe"], live_election);
}

#[test]
fn permissions_of_an_observer_are_exact() {
    let quiet = &["+publish", "+subscribe", "+unsubscribe", "&leasehold:*"];
    is_exact("Election, only `leader` and `observe`", quiet, |stage| {
        let begin = ["1q:00000000000000000000000000000000:1:30000:e:1:host:", "PX", "30000"];
        let key = format!("shop:{}", stage.name);
        let words: Vec<&str> = ["SET", &key].into_iter().chain(begin).collect();
        ask::<()>(stage.servers[0], &words);
        ask::<()>(stage.servers[0], &["SCRIPT", "FLUSH"]);
        let client = stage.client();
        let (one, other) = (client.election(stage.name)?, client.election("other")?);
        assert!(one.leader()?.is_some());
        let mut first = one.observe()?;
        assert!(first.next()?.leader().is_some());
        // By now it listens, or is refused.
        thread::sleep(ms(300));
        let mut second = other.observe()?;
        assert!(second.next()?.leader().is_none());
        assert!(first.next_timeout(ms(1_200))?.is_none());
        drop((first, second));
        // The channels are left within the next second.
        thread::sleep(ms(1_400));
        Ok(())
    });
}

#[test]
fn permissions_of_a_spinning_semaphore_are_exact() {
    is_exact("Semaphore, Wait::spin()", &["&leasehold:*", "+publish"], |stage| {
        live_permits(stage, short().wait(Wait::spin()))
    });
}

/// Everything that can be done with a read-write lock.
fn live_reads_and_writes(stage: &Stage<'_>, spins: bool) -> Result<()> {
    let options = if spins { short().wait(Wait::spin()) } else { short() };
    // Or it would not show that a script has to be sent whole.
    ask::<()>(stage.servers[0], &["SCRIPT", "FLUSH"]);
    let lock = || stage.client().rw_lock_with(stage.name, options);
    let (one, other) = (lock()?, lock()?);
    let (held, beside) = (one.upgradable_read()?, other.read()?);
    held.check()?;
    held.extend(ms(3_200))?;
    held.confirm()?;
    beside.release()?;
    let writer = UpgradableReadGuard::upgrade(held)?;
    assert!(other.try_read()?.is_none() && other.is_locked()?);
    let reader = thread::scope(|scope| -> Result<_> {
        let next = scope.spawn(|| other.read()?.release());
        // One that spins is seen by nobody.
        until("it waits", || spins || writer.waiters() > 0 || next.is_finished());
        thread::sleep(ms(1_400));
        let reader = WriteGuard::downgrade(writer)?;
        next.join().expect("no panic")?;
        Ok(reader)
    })?;
    let holders = other.holders()?;
    assert!(other.force_release(&holders[0])?);
    other.write()?.release()?;
    // What it has lost it does not give back.
    match reader.release() {
        Err(error) if error.is_lost() => Ok(()),
        outcome => outcome,
    }
}

/// An upgrade that waits, asks again, and is given up; and one that a reader finds who leaves.
fn live_upgrade(stage: &Stage<'_>, options: LockOptions) -> Result<()> {
    let lock = || stage.client().rw_lock_with(stage.name, options);
    let (held, beside) = (lock()?.upgradable_read()?, lock()?.read()?);
    let held = UpgradableReadGuard::try_upgrade_for(held, ms(1_400))?.expect_err("a reader is in");
    held.release()?;
    thread::scope(|scope| {
        let upgrade = scope.spawn(|| -> Result<()> {
            let held = lock()?.upgradable_read()?;
            UpgradableReadGuard::try_upgrade_for(held, SOON)?.expect("the reader leaves").release()
        });
        let line = format!("{{shop:{}}}:line", stage.name);
        let waits = || ask::<u64>(stage.servers[0], &["ZCARD", &line]) > 0;
        until("it waits", || waits() || upgrade.is_finished());
        let released = beside.release();
        upgrade.join().expect("no panic").and(released)
    })
}

#[test]
fn permissions_of_a_read_write_lock_are_exact() {
    is_exact("RwLock", &["+publish", "+pubsub|numsub", "+get"], |stage| {
        live_reads_and_writes(stage, false)?;
        live_upgrade(stage, short())?;
        // A process that was killed while it waited, and another whose time is over.
        let held = stage.client().rw_lock_with(stage.name, short())?.write()?;
        let beside = |end: &str| format!("{{shop:{}}}:{end}", stage.name);
        for (number, death) in [("1", "9000000000000000"), ("2", "1")] {
            let dead = format!("1q:00000000000000000000000000000000:{number}:3000:r:1:host:");
            ask::<()>(stage.servers[0], &["ZADD", &beside("line"), number, &dead]);
            ask::<()>(stage.servers[0], &["ZADD", &beside("signs"), death, &dead]);
        }
        held.release()
    });
}

#[test]
fn permissions_of_a_spinning_read_write_lock_are_exact() {
    let quiet = &["&leasehold:*", "+publish", "+pubsub|numsub", "+get"];
    is_exact("RwLock, Wait::spin()", quiet, |stage| {
        live_reads_and_writes(stage, true)?;
        live_upgrade(stage, short().wait(Wait::spin()))
    });
}

/// The rule of the guide with this title, tried on three servers at a time.
#[track_caller]
fn is_exact_of_several(title: &str, quiet: &'static [&'static str], options: LockOptions) {
    const LONGEST: Duration = ms(3_500);
    let servers = servers(9);
    let stages: Vec<_> = servers.chunks(3).map(|servers| servers.iter().collect()).collect();
    // They count when they have surely run for longer than the longest lease, in whole seconds.
    thread::sleep(LONGEST + ms(2_500));
    let live = |stage: &Stage<'_>| {
        let urls: Vec<_> = stage.servers.iter().map(|server| stage.url(server)).collect();
        let builder = || QuorumClient::builder(&urls).name_prefix("shop:").node_timeout(ms(3_000));
        let client = || builder().max_lease(LONGEST).build().expect("a client");
        let lock = || client().mutex_with(stage.name, options);
        let (lock, other) = (lock()?, lock()?);
        live(stage.servers, &lock, &other)?;
        // Meanwhile the channel that nobody needs any longer is left.
        let guard = lock.lock()?;
        thread::sleep(ms(1_500));
        guard.release()
    };
    Trial { base: Vec::new(), rule: rule(title), quiet, live: &live }.is_exact(&stages);
}

#[test]
fn permissions_of_a_quorum_are_exact() {
    let quiet = &["+unsubscribe"];
    is_exact_of_several("QuorumClient, on each of its servers", quiet, short());
}

#[test]
fn permissions_of_a_spinning_quorum_are_exact() {
    let title = "QuorumClient, Wait::spin(), on each of its servers";
    let quiet = &["+publish", "&leasehold:*"];
    is_exact_of_several(title, quiet, short().wait(Wait::spin()));
}

#[test]
fn keeps_data_needs_no_info_permission() {
    let servers = servers(3);
    let mut rule = rule("QuorumClient, on each of its servers");
    rule.retain(|word| word != "+info");
    servers.iter().for_each(|server| allow(server, "locks", &rule));
    let all: Vec<&Server> = servers.iter().collect();
    let stage = Stage { servers: &all, user: "locks", name: "x" };
    let urls = servers.iter().map(|server| stage.url(server));
    let builder = QuorumClient::builder(urls).name_prefix("shop:").keeps_data(true);
    let client = builder.node_timeout(SOON).build().unwrap();
    client.mutex("x").unwrap().lock().unwrap().release().unwrap();
}

#[test]
fn permissions_at_sentinels_and_masters_are_exact() {
    let group = Group::start(1, SOON * 6).expect("a group");
    let (master, sentinels) = (&group.servers[0], group.sentinels.iter().collect::<Vec<_>>());
    let through = |servers: Vec<String>, user: &str, name: &str| {
        let url = format!("redis://{user}:secret@{}", Group::MASTER);
        let lock = || {
            let client = LockClient::builder(&url).sentinels(servers.clone()).name_prefix("shop:");
            client
                .announce(false)
                .build()
                .expect("a client")
                .mutex_with(name, short())
                .expect("a lock")
        };
        live(&[master], &lock(), &lock())
    };
    let whole = [rule("Mutex"), added("a server that sentinels tell of")].concat();
    allow(master, "master", &whole);
    let live = |stage: &Stage<'_>| {
        let url = |server: &&Server| format!("redis://{}:secret@{}", stage.user, server.addr());
        through(sentinels.iter().map(url).collect(), "master", stage.name)
    };
    let quiet = &["&+switch-master", "+subscribe"];
    let rule_of_sentinels = rule("sentinels, on each of them");
    Trial { base: Vec::new(), rule: rule_of_sentinels, quiet, live: &live }
        .is_exact(std::slice::from_ref(&sentinels));
    let live = |stage: &Stage<'_>| through(group.sentinel_urls(), stage.user, stage.name);
    let rule_of_master = added("a server that sentinels tell of");
    Trial { base: rule("Mutex"), rule: rule_of_master, quiet: &["+role"], live: &live }
        .is_exact(&[vec![master]]);
}

/// Also while a slot is on its way from one node to another.
#[test]
fn added_permissions_of_a_cluster_are_exact() {
    let cluster = Cluster::start(2, 0).expect("a cluster");
    let nodes: Vec<&Server> = cluster.nodes().iter().collect();
    let client = |stage: &Stage<'_>| {
        let url = |node: &&Server| format!("redis://{}:secret@{}", stage.user, node.addr());
        let urls: Vec<_> = stage.servers.iter().map(url).collect();
        let builder = LockClient::builder(&urls[0]).cluster(&urls[1..]).name_prefix("shop:");
        builder.announce(false).build().expect("a client")
    };
    let on_its_way = |stage: &Stage<'_>| {
        let name = format!("shop:{}", stage.name);
        let (slot, from) = (cluster.slot(&name), cluster.home(&name));
        cluster.open(slot, from, 1 - from);
        let held = client(stage).mutex(stage.name)?.is_locked();
        cluster.migrate(slot, from, 1 - from);
        held.map(drop)
    };
    let live_as_mutex = |stage: &Stage<'_>| {
        let lock = || client(stage).mutex_with(stage.name, short());
        live(stage.servers, &lock()?, &lock()?)?;
        on_its_way(stage)
    };
    let live_as_reentrant = |stage: &Stage<'_>| {
        let lock = || client(stage).reentrant_with(stage.name, short());
        live_reentrant(stage.servers, &lock()?, &lock()?)
    };
    let rule = added("each node of a cluster");
    let shared = added("a `ReentrantLock` in a cluster that is shared with Redisson");
    let whole = [self::rule("ReentrantLock"), rule.clone(), shared].concat();
    Trial { base: self::rule("Mutex"), rule, quiet: &[], live: &live_as_mutex }
        .is_exact(std::slice::from_ref(&nodes));
    let stage = Stage { servers: &nodes, user: "reentrant", name: "reentrant" };
    nodes.iter().for_each(|node| allow(node, stage.user, &whole));
    stage.outcome(&live_as_reentrant).unwrap();
    assert_eq!(stage.denied(), [""; 0]);
}

#[test]
fn added_permissions_of_database_and_test_on_borrow_are_exact() {
    is_exact_beside("Mutex", "a database other than 0 in the URL", &[], |stage| {
        let url = format!("{}&db=2", stage.url(stage.servers[0]));
        let client = LockClient::builder(url).name_prefix("shop:").build()?;
        client.mutex(stage.name)?.lock()?.release()
    });
    is_exact_beside("Mutex", "`test_on_borrow(true)`", &["+ping"], |stage| {
        let lock = stage.builder().test_on_borrow(true).build()?.mutex(stage.name)?;
        lock.lock()?.release()?;
        lock.lock()?.release()
    });
}

/// Redisson's read-write lock. Without its channel those who wait for it are not woken.
#[test]
fn added_permissions_to_evict_one_of_several_are_exact() {
    let (reason, quiet) = (
        "taking Redisson's read-write lock from one of its holders",
        &["&redisson_rwlock:{shop:*"],
    );
    is_exact_beside("ReentrantLock", reason, quiet, |stage| {
        let name = format!("shop:{}", stage.name);
        for thread in [52, 53] {
            let reader = format!("285475da-9152-4c83-822a-67ee2f116a79:{thread}");
            ask::<()>(stage.servers[0], &["HSET", &name, "mode", "read", &reader, "1"]);
        }
        let lock = stage.reentrant(short());
        let holder = lock.holder()?.expect("a holder");
        assert!(lock.force_release_of(&holder)?);
        assert!(lock.force_release()?);
        Ok(())
    });
}

#[test]
fn added_permissions_of_replicas_are_exact() {
    let (master, _replica) = Server::start_with_replica().expect("a server and its replica");
    let live = |stage: &Stage<'_>| {
        let client = stage.builder().command_timeout(SOON).build()?;
        let options = LockOptions::new().min_replicas(1, SOON / 2);
        client.mutex_with(stage.name, options)?.lock()?.release()
    };
    let trial =
        Trial { base: rule("Mutex"), rule: added("`min_replicas`"), quiet: &[], live: &live };
    trial.is_exact(&[vec![&master]]);
}

#[test]
fn added_permissions_of_disks_are_exact() {
    let server = Server::builder().arg("--appendonly").arg("yes").start().expect("a server");
    let mut known = redis::cmd("COMMAND");
    let known =
        known.arg("INFO").arg("WAITAOF").query::<Vec<redis::Value>>(&mut server.connection());
    let live = |stage: &Stage<'_>| {
        let client = stage.builder().command_timeout(SOON).build()?;
        let options = LockOptions::new().min_fsyncs(true, 0, SOON / 2);
        client.mutex_with(stage.name, options)?.lock()?.release()
    };
    let trial = Trial { base: rule("Mutex"), rule: added("`min_fsyncs`"), quiet: &[], live: &live };
    if known.is_ok_and(|known| known != [redis::Value::Nil]) {
        trial.is_exact(&[vec![&server]]);
    } else {
        // Before Redis 7.2 there is nothing to allow.
        let lock = open(&server).mutex_with("x", LockOptions::new().min_fsyncs(true, 0, ms(500)));
        assert!(lock.unwrap().lock().unwrap_err().is_config());
    }
}

#[test]
fn added_permissions_of_a_transaction_are_exact() {
    is_exact_beside("Mutex", "`guard.transaction`", &[], |stage| {
        let (lock, other) = (stage.mutex(short()), stage.mutex(short()));
        let guard = lock.lock()?;
        let write = |guard: &leasehold::Guard| {
            guard.transaction(|pipe| {
                pipe.cmd("SET").arg("shop:stock").arg(41);
            })
        };
        write(&guard)?;
        // It looks, and leaves it at that.
        assert!(other.force_release()?);
        match write(&guard) {
            Err(error) if error.is_lost() => Ok(()),
            outcome => outcome.map(drop),
        }
    });
}

#[test]
fn added_permissions_of_a_job_are_exact() {
    is_exact_beside("Mutex", "`client.once`", &[], |stage| {
        let job = || stage.client().once(stage.name, Period::every(SOON));
        let (one, other) = (job()?, job()?);
        let Begun::Run(run) = one.begin()? else { panic!("it is due") };
        assert!(matches!(other.last_run()?.map(|last| last.end().clone()), Some(RunEnd::Running)));
        assert!(stage.mutex(short()).force_release()?);
        // What it has lost it does not record.
        match run.succeed() {
            Err(error) if error.is_lost() => {}
            outcome => outcome?,
        }
        // That it died is noted.
        let careful = other.clone().retry_after(SOON);
        let Begun::Failing { .. } = careful.begin()? else { panic!("it is not due") };
        let _ = other.run(|_guard| {})?;
        one.forget().map(drop)
    });
}

#[test]
fn added_permissions_of_a_permits_transaction_are_exact() {
    is_exact_beside("Semaphore", "`transaction` of a permit, a reader or a writer", &[], |stage| {
        let gpus = || stage.client().semaphore_with(stage.name, 2, short());
        let (here, other) = (gpus()?, gpus()?);
        let permit = here.acquire()?;
        let write = || {
            permit.transaction(|pipe| {
                pipe.cmd("SET").arg("shop:stock").arg(41);
            })
        };
        write()?;
        assert!(other.force_release(&other.holders()?[0])?);
        match write() {
            Err(error) if error.is_lost() => Ok(()),
            outcome => outcome.map(drop),
        }
    });
}

#[test]
fn index_and_scan_need_what_is_added() {
    let quiet = &["+zadd", "+zremrangebyscore"];
    let title = "ReentrantLock, Wait::spin()";
    is_exact_beside(title, "announcements, and `client.locks`", quiet, |stage| {
        let client = stage.builder().announce(true).build()?;
        let guard = client.reentrant(stage.name)?.lock()?;
        // Announced at a whole second, at the latest after two.
        thread::sleep(ms(2_300));
        let _ = client.locks("none")?.count();
        guard.release()
    });
    let base = [rule("Mutex"), added("announcements, and `client.locks`")].concat();
    let live = |stage: &Stage<'_>| {
        let key = format!("shop:{}", stage.name);
        ask::<()>(stage.servers[0], &["SET", &key, "me", "PX", "60000"]);
        let found = stage.client().locks("*")?.with_scan().collect::<Result<Vec<_>>>()?;
        assert!(found.iter().any(|lock| lock.name() == stage.name.as_bytes()), "{found:?}");
        ask::<()>(stage.servers[0], &["DEL", &key]);
        Ok(())
    };
    let server = Server::start().expect("a server");
    Trial { base, rule: added("`client.locks` with `with_scan`"), quiet: &[], live: &live }
        .is_exact(&[vec![&server]]);
}

#[test]
fn inspection_needs_what_is_added() {
    is_exact_beside("Mutex, Wait::spin()", "`inspect` of a `Mutex` that spins", &[], |stage| {
        let lock = stage.mutex(short().wait(Wait::spin()));
        let guard = lock.lock()?;
        lock.inspect()?;
        guard.release()
    });
    is_exact_beside("ReentrantLock", "`inspect` of a `ReentrantLock`", &[], |stage| {
        stage.reentrant(short()).inspect().map(drop)
    });
}

#[test]
fn added_permissions_of_a_tagged_reentrant_lock_are_exact() {
    let added_for = "a `ReentrantLock` whose name has a `{`";
    is_exact_beside("ReentrantLock", added_for, &[], |stage| {
        let name = format!("{{{}}}", stage.name);
        let lock = || stage.client().reentrant_with(&name, short());
        live_reentrant(stage.servers, &lock()?, &lock()?)
    });
}

/// Not at the first lock.
#[test]
fn missing_script_permission_is_reported_at_connect() {
    let cluster = Cluster::start(3, 0).expect("a cluster");
    let server = || Server::builder().tcp().start().expect("a server");
    let (server, group) = (&server(), [server(), server(), server()]);
    let url = |server: &Server| format!("redis://locks:secret@{}", server.addr());
    for word in ["+eval", "+evalsha", "+time", "none"] {
        let without = |title: &str| -> Vec<String> {
            rule(title).into_iter().filter(|rule| rule != word).collect()
        };
        for server in cluster.nodes().iter().chain([server]) {
            allow(server, "locks", &[without("Mutex"), added("each node of a cluster")].concat());
        }
        for server in &group {
            allow(server, "locks", &without("QuorumClient, on each of its servers"));
        }
        let first = &cluster.nodes()[0];
        let nodes = LockClient::builder(url(first)).cluster([""; 0]).connect_now(true);
        let majority = QuorumClient::builder(group.iter().map(url)).keeps_data(true);
        let majority = majority.node_timeout(SOON);
        let outcomes = [
            LockClient::open(url(server)).map(drop),
            nodes.build().map(drop),
            majority.connect_now(true).build().map(drop),
        ];
        for outcome in outcomes {
            assert_eq!(outcome.is_err(), word != "none", "{word}: {outcome:?}");
            let denied = outcome.is_err_and(|error| error.is_denied());
            assert_eq!(denied, word != "none", "{word}");
        }
    }
}

/// What a waiter may not hear it does not wait for.
#[test]
fn connect_now_needs_no_more_permissions() {
    let server = Server::start().expect("a server");
    allow(&server, "locks", &rule("Mutex"));
    let stage = Stage { servers: &[&server], user: "locks", name: "x" };
    let client = stage.builder().connect_now(true).build().unwrap();
    client.mutex("x").unwrap().lock().unwrap().release().unwrap();
}

/// What is kept of all keys: members, scores and values. Of a fence only that it is there, as a token may be used up.
fn kept(server: &Server) -> Vec<String> {
    let mut keys: Vec<String> = ask(server, &["KEYS", "*"]);
    keys.retain(|key| !key.ends_with(":fence"));
    keys.sort();
    let content = |key: &String| -> String {
        let kind: String = ask(server, &["TYPE", key]);
        let words: &[&str] = match kind.as_str() {
            "zset" => &["ZRANGE", key, "0", "-1", "WITHSCORES"],
            "hash" => &["HGETALL", key],
            "string" => &["GET", key],
            other => panic!("{key} is a {other}"),
        };
        format!("{key}: {:?}", ask::<redis::Value>(server, words))
    };
    keys.iter().map(content).collect()
}

/// What another client holds meanwhile.
type Held = Vec<Box<dyn Any>>;

/// A request of one kind, and what is there before.
struct Operation {
    name: &'static str,
    title: &'static str,
    /// Holds until the end of the trial.
    begin: fn(&LockClient) -> Result<Held>,
    /// By a user who lacks one permission.
    ask: fn(&LockClient, &mut Held) -> Result<()>,
}

fn boxed<T: 'static>(held: T) -> Held {
    vec![Box::new(held)]
}

const OPERATIONS: &[Operation] = &[
    Operation {
        name: "lock a mutex",
        title: "Mutex",
        begin: |_| Ok(Vec::new()),
        ask: |client, _| client.mutex("x")?.try_lock().map(mem::forget),
    },
    Operation {
        name: "wait for a mutex",
        title: "Mutex",
        begin: |other| Ok(boxed(other.mutex("x")?.lock()?.into_owned().expect("one"))),
        ask: |client, _| client.mutex("x")?.try_lock_for(ms(50)).map(mem::forget),
    },
    Operation {
        name: "lock a reentrant lock",
        title: "ReentrantLock",
        begin: |_| Ok(Vec::new()),
        ask: |client, _| client.reentrant("x")?.try_lock().map(mem::forget),
    },
    Operation {
        name: "first permit",
        title: "Semaphore",
        begin: |_| Ok(Vec::new()),
        ask: |client, _| client.semaphore("x", 2)?.try_acquire().map(mem::forget),
    },
    Operation {
        name: "permit beside another",
        title: "Semaphore",
        begin: |other| Ok(boxed(other.semaphore("x", 2)?.acquire()?)),
        ask: |client, _| client.semaphore("x", 2)?.try_acquire().map(mem::forget),
    },
    Operation {
        name: "wait for a permit",
        title: "Semaphore",
        begin: |other| Ok(boxed(other.semaphore("x", 2)?.acquire_many(2)?)),
        ask: |client, _| client.semaphore("x", 2)?.try_acquire_for(ms(300)).map(mem::forget),
    },
    Operation {
        name: "campaign",
        title: "Election",
        begin: |_| Ok(Vec::new()),
        ask: |client, _| client.election("x")?.try_campaign().map(mem::forget),
    },
    Operation {
        name: "wait to lead",
        title: "Election",
        begin: |other| Ok(boxed(other.election("x")?.campaign()?)),
        ask: |client, _| client.election("x")?.try_campaign_for(ms(300)).map(mem::forget),
    },
    Operation {
        name: "read",
        title: "RwLock",
        begin: |_| Ok(Vec::new()),
        ask: |client, _| client.rw_lock("x")?.try_read().map(mem::forget),
    },
    Operation {
        name: "read beside a reader",
        title: "RwLock",
        begin: |other| Ok(boxed(other.rw_lock("x")?.read()?)),
        ask: |client, _| client.rw_lock("x")?.try_read().map(mem::forget),
    },
    Operation {
        name: "write",
        title: "RwLock",
        begin: |_| Ok(Vec::new()),
        ask: |client, _| client.rw_lock("x")?.try_write().map(mem::forget),
    },
    Operation {
        name: "wait to write",
        title: "RwLock",
        begin: |other| Ok(boxed(other.rw_lock("x")?.read()?)),
        ask: |client, _| client.rw_lock("x")?.try_write_for(ms(300)).map(mem::forget),
    },
    Operation {
        name: "read and upgrade later",
        title: "RwLock",
        begin: |_| Ok(Vec::new()),
        ask: |client, _| client.rw_lock("x")?.try_upgradable_read().map(mem::forget),
    },
];

/// Each permission is left out once. A request that needs it is refused, and no holder and no waiter is left of it,
/// also where no release comes through.
#[test]
fn refused_request_leaves_nothing() {
    let (server, proxy) = behind_proxy();
    for release in [At::Release, At::Renew] {
        proxy.add(Fault::request("", Action::Drop).at(release).sticky());
    }
    // Of a wait, the request to queue up alone is asked of the server: a waiter that may not be heard of again dies
    // (rule 8).
    proxy.add(Fault::request("", Action::Cut).at(At::Beat).sticky());
    let admin = open(&server);
    let (mut left, mut refused) = (Vec::new(), 0);
    for operation in OPERATIONS {
        for word in rule(operation.title).iter().filter(|word| word.starts_with('+')) {
            ask::<()>(&server, &["FLUSHALL"]);
            let mut held = (operation.begin)(&admin).unwrap();
            let mut rule = rule(operation.title);
            rule.retain(|other| other != word);
            rule.extend(["~*", "&*"].map(str::to_owned));
            allow(&server, "locks", &rule);
            let before = kept(&server);
            let url = proxy.url().replace("redis://", "redis://locks:secret@");
            let client = LockClient::builder(url).announce(false).command_timeout(SOON);
            let client = client.build().unwrap();
            let outcome = (operation.ask)(&client, &mut held);
            if outcome.is_err_and(|error| error.is_denied()) {
                refused += 1;
                let after = kept(&server);
                if after != before {
                    left.push(format!("{} without {word}: {after:?}", operation.name));
                }
            }
        }
    }
    assert!(left.is_empty(), "{} left something: {left:#?}", left.len());
    assert!(refused > 80, "only {refused} were refused");
}

/// The script may not take back what it wrote, until somebody mends the permissions. So the client goes on.
#[test]
fn attempt_of_a_refused_request_is_removed_later() {
    let server = Server::start().expect("a server");
    let whole = rule("Semaphore");
    let partly = whole.iter().filter(|word| !["+pexpire", "+zrem"].contains(&word.as_str()));
    allow(&server, "locks", &partly.cloned().collect::<Vec<_>>());
    let stage = Stage { servers: &[&server], user: "locks", name: "x" };
    let client = stage.client();
    let gpus = client.semaphore_with(stage.name, 2, renewed(30_000)).unwrap();
    let error = gpus.try_acquire().unwrap_err();
    assert!(error.is_denied(), "{error}");
    let used = || ask::<Option<String>>(&server, &["ZSCORE", "shop:x", "used"]);
    assert_eq!(used().as_deref(), Some("1"), "a holder that nobody is");
    allow(&server, "locks", &whole);
    until("it is removed", || used().as_deref() != Some("1"));
}
