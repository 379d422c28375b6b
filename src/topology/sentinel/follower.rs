//! The thread that follows the master: it listens to a sentinel, and looks again itself.
//!
//! A server that is no longer the master may live on and take what it is sent, until its sentinels
//! reach it. So nobody waits for its errors: when another is told of, all connections are closed.
//!
//! Sentinels that refuse the user are left alone until the client next connects for a caller, which may
//! find them mended; each attempt is noted there. While the connections to the master are healthy, nobody
//! connects, so the follower tries again after a minute in any case.

use std::time::Duration;

use crate::base::sync::{self, Arc, Weak};
use crate::base::thread::{Role, Threads};
use crate::topology::sentinel::{SWITCHES, Sentinels};
use crate::wire::failure::{self, Failure, is_denial};
use crate::wire::locator::Locator as _;
use crate::wire::manager::Manager;
use crate::wire::retry::{Refusal, RetryBackoff};
use crate::wire::subscription::{Event, Subscriber as _, Subscription};

/// How often it looks whether its client has gone, and where the master is: one sentinel may be cut
/// off from the others.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How soon it looks again when the master is gone.
const FAST_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long it rests when a sentinel is gone, at first and at most.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(200);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Follows the master for as long as the manager of its connections lives.
pub(crate) fn follow(sentinels: Arc<Sentinels>, manager: &Arc<Manager>, threads: Threads) {
    let weak = Arc::downgrade(manager);
    let body = move || {
        let mut follower = Follower::new(sentinels, weak);
        while follower.manager.strong_count() > 0 {
            if let Err(failure) = follower.listen() {
                log!(debug, "a sentinel is not heard: {failure}");
                follower.rest(&failure);
            }
        }
    };
    if let Err(error) = sync::spawn(&threads.name(Role::Follower), body) {
        log!(error, "no thread to listen to sentinels could be started: {error}");
    }
}

struct Follower {
    sentinels: Arc<Sentinels>,
    manager: Weak<Manager>,
    pauses: RetryBackoff,
    /// How many sentinels refused to be listened to since the last one was heard.
    refusals: usize,
    /// Read before the first of them, and again before the first after a rest for the sake of all.
    refusal: Option<Refusal>,
}

impl Follower {
    fn new(sentinels: Arc<Sentinels>, manager: Weak<Manager>) -> Follower {
        let pauses = RetryBackoff::between(FIRST_RETRY_PAUSE, MAX_RETRY_PAUSE);
        Follower { sentinels, manager, pauses, refusals: 0, refusal: None }
    }

    /// Rests before it listens to another sentinel. When all have refused, it rests until the refusal is
    /// over.
    fn rest(&mut self, failure: &Failure) {
        if self.manager.strong_count() == 0 {
            return;
        }
        self.sentinels.suspect();
        if failure.is_transient() {
            (self.refusals, self.refusal) = (0, None);
        } else {
            self.refusals += 1;
        }
        let all = self.refusals >= self.sentinels.count();
        sync::sleep(self.pauses.next());
        if !all {
            return;
        }
        let refusal = self.refusal.take();
        while let (Some(manager), Some(refusal)) = (self.manager.upgrade(), refusal)
            && !refusal.is_over(manager.attempts().counts().all(), manager.now())
        {
            drop(manager);
            sync::sleep(POLL_INTERVAL);
        }
    }

    /// Makes a connection that listens to the sentinel that is asked first. Returns which that is.
    fn subscribe(&self, manager: &Manager) -> Result<(usize, Subscription), Failure> {
        let (number, info) = self.sentinels.first();
        let opened = manager.subscribe_at(info, SWITCHES, None);
        // One that greets and is silent then may have been noted as silent meanwhile, which stands.
        match &opened {
            Ok(_) => self.sentinels.note_outcome(number, None),
            Err(failure) => {
                if let Some(error) = failure.in_connecting() {
                    self.sentinels.note_outcome(number, Some(error));
                }
            }
        }
        Ok((number, opened?))
    }

    /// Listens to one sentinel until it fails, or the client has gone (`Ok`).
    fn listen(&mut self) -> Result<(), Failure> {
        let Some(manager) = self.manager.upgrade() else { return Ok(()) };
        self.refusal.get_or_insert_with(|| refusal_now(&manager));
        let (number, mut subscription) = self.subscribe(&manager)?;
        drop(manager);
        let mut next = NextPoll::new();
        loop {
            let event = subscription.next(next.wait)?;
            let Some(manager) = self.manager.upgrade() else { return Ok(()) };
            match event {
                Event::Message { payload, .. } if self.sentinels.is_news(&payload) => {
                    // Also where nobody can be asked for the new one.
                    manager.move_on();
                    next.look(&manager, true);
                }
                // Something else was told, or nothing for a while.
                Event::Message { .. } => {}
                // A message may have been missed, and this sentinel may be the last to know.
                Event::Subscribed { .. } | Event::Nothing => {
                    if matches!(event, Event::Subscribed { .. }) {
                        (self.refusals, self.refusal) = (0, None);
                        self.pauses.reset();
                    }
                    self.sentinels.suspect();
                    next.look(&manager, false);
                }
            }
            // Nothing breaks where it lost its power.
            if !self.sentinels.is_responsive(number) {
                return Err(Failure::silent());
            }
        }
    }
}

/// To be kept if what is tried next is refused.
fn refusal_now(manager: &Manager) -> Refusal {
    Refusal::before(manager.attempts().counts().all(), manager.now())
}

/// When it looks again where the master is.
struct NextPoll {
    wait: Duration,
    /// When all sentinels refused to tell.
    refused: Option<Refusal>,
}

impl NextPoll {
    fn new() -> NextPoll {
        NextPoll { wait: POLL_INTERVAL, refused: None }
    }

    /// Looks where the master is. A look that fails says nothing of the sentinel that is listened to.
    fn look(&mut self, manager: &Manager, asks_all: bool) {
        let now = refusal_now(manager);
        let rests = |it: Refusal| !it.is_over(manager.attempts().counts().all(), manager.now());
        if self.refused.is_some_and(rests) && !asks_all {
            return;
        }
        let outcome = manager.look(asks_all);
        (self.wait, self.refused) = match &outcome {
            Ok(()) => (POLL_INTERVAL, None),
            Err(error) if is_denial(error) => (POLL_INTERVAL, Some(now)),
            Err(_) => (FAST_POLL_INTERVAL, None),
        };
        if let Err(error) = outcome {
            log!(debug, "the master is not found: {}", failure::shown(&error));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use leasehold_support::Server;

    use super::*;
    use crate::base::testing::manual_clock::ManualClock;
    use crate::base::time::Clock as _;
    use crate::wire::endpoint;
    use crate::wire::manager::Timeouts;
    use crate::wire::pool::{Pool, PoolSettings, connector};
    use crate::wire::retry::REFUSED;

    /// The longest that a test waits for what must come.
    const LONG: Duration = Duration::from_secs(20);

    /// A server that can be listened to as a sentinel can, and a manager whose password is wrong there. Its
    /// clock stands still.
    struct Refusing {
        server: Server,
        clock: Arc<ManualClock>,
        sentinels: Arc<Sentinels>,
        manager: Arc<Manager>,
    }

    impl Refusing {
        fn new() -> Refusing {
            let server = Server::builder().tcp().start().unwrap();
            let clock = Arc::new(ManualClock::new(false));
            let node = endpoint::parse(&format!("redis://locks:wrong@{}", server.addr())).unwrap();
            let template = endpoint::parse("redis://mymaster").unwrap();
            let sentinels = Arc::new(Sentinels::new(vec![node], template, clock.clone()));
            let timeouts = Timeouts::both(LONG);
            let manager = Manager::new(sentinels.clone(), clock.clone(), timeouts);
            let refusing = Refusing { server, clock, sentinels, manager: Arc::new(manager) };
            refusing.set_password("right");
            refusing
        }

        fn set_password(&self, password: &str) {
            let mut command = redis::cmd("ACL");
            command.arg(&["SETUSER", "locks", "reset", "on", "~*", "&*", "+@all"]);
            command.arg(format!(">{password}"));
            command.exec(&mut self.server.connection()).unwrap();
        }

        fn is_listened_to(&self) -> bool {
            let mut command = redis::cmd("CLIENT");
            command.arg(&["LIST", "TYPE", "PUBSUB"]);
            let clients: String = command.query(&mut self.server.connection()).unwrap();
            clients.contains("user=locks")
        }
    }

    #[track_caller]
    fn until(what: &str, condition: impl Fn() -> bool) {
        let begin = std::time::Instant::now();
        while !condition() {
            assert!(begin.elapsed() < LONG, "not within {LONG:?}: {what}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn repaired_sentinel_is_followed_without_any_connection() {
        let refusing = Refusing::new();
        follow(refusing.sentinels.clone(), &refusing.manager, Threads::of_a_new_client());
        until("it refuses", || refusing.server.error_count("WRONGPASS") > 0);
        refusing.set_password("wrong");
        refusing.clock.put_forward(refusing.clock.now().after(REFUSED));
        until("it is listened to", || refusing.is_listened_to());
    }

    #[test]
    fn refused_subscription_is_repeated_after_a_minute() {
        let refusing = Refusing::new();
        let mut next = NextPoll::new();
        for refused in [1, 1, 2] {
            next.look(&refusing.manager, false);
            assert_eq!(refusing.server.error_count("WRONGPASS"), refused);
            // The first time less than a minute passes.
            refusing.clock.put_forward(refusing.clock.now().after(REFUSED * 2 / 3));
        }
    }

    #[test]
    fn attempt_after_a_refusal_ends_the_rest_at_once() {
        let refusing = Refusing::new();
        let mut follower =
            Follower::new(refusing.sentinels.clone(), Arc::downgrade(&refusing.manager));
        let failure = follower.listen().unwrap_err();
        let settings = PoolSettings::default().of_one();
        let connector = connector(Threads::of_a_new_client()).unwrap();
        let pool = Pool::new(&refusing.manager, &settings, connector);
        pool.get(refusing.clock.now().after(LONG)).unwrap_err();
        let (sender, rested) = mpsc::channel();
        thread::spawn(move || {
            follower.rest(&failure);
            sender.send(())
        });
        assert_eq!(rested.recv_timeout(LONG), Ok(()), "it rests on");
    }
}
