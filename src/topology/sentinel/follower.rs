//! The thread that follows the master: it subscribes to a sentinel, and polls the sentinels as
//! well.
//!
//! A demoted master may go on accepting writes until its sentinels reach it. So the client does not
//! wait for its errors: when a sentinel announces another master, all connections are closed.
//!
//! Sentinels that refuse the user are left alone until the client next connects for a caller: that
//! attempt may show that the refusal is mended. Each attempt is noted in the sentinel's log. While
//! the connections to the master are healthy, no caller connects, so the follower tries again after
//! a minute in any case.

use std::time::Duration;

use crate::base::sync::{self, Arc, Weak};
use crate::base::thread::{Role, Threads};
use crate::topology::sentinel::{SWITCHES, Sentinels};
use crate::wire::failure::{self, Failure, is_denial};
use crate::wire::locator::Locator as _;
use crate::wire::manager::Manager;
use crate::wire::retry::{ConnectRefusal, RetryBackoff};
use crate::wire::subscription::{Event, Subscriber as _, Subscription};

/// How often it checks whether its client has ended, and locates the master: the sentinel that it
/// is subscribed to may be cut off from the others.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How soon it polls again while no master is found.
const FAST_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The first and the longest pause after a sentinel failed.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(200);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Follows the master for as long as the manager of its connections lives.
pub(crate) fn follow(sentinels: Arc<Sentinels>, manager: &Arc<Manager>, threads: Threads) {
    // Weak, so that the thread does not keep the client's connections alive. It notices their end
    // within a poll.
    let weak = Arc::downgrade(manager);
    let body = move || {
        let mut follower = Follower::new(sentinels, weak);
        while follower.manager.strong_count() > 0 {
            if let Err(failure) = follower.listen() {
                log!(debug, "the subscription to a sentinel failed: {failure}");
                follower.rest(&failure);
            }
        }
    };
    if let Err(error) = threads.spawn(Role::Follower, body) {
        log!(error, "the thread that follows the master could not be started: {error}");
    }
}

struct Follower {
    sentinels: Arc<Sentinels>,
    manager: Weak<Manager>,
    pauses: RetryBackoff,
    /// How many sentinels refused the subscription since the last one accepted it.
    refusals: usize,
    /// Taken before the first of these attempts, and again before the first one after a rest.
    refusal: Option<ConnectRefusal>,
}

impl Follower {
    fn new(sentinels: Arc<Sentinels>, manager: Weak<Manager>) -> Follower {
        let pauses = RetryBackoff::between(FIRST_RETRY_PAUSE, MAX_RETRY_PAUSE);
        Follower { sentinels, manager, pauses, refusals: 0, refusal: None }
    }

    /// Pauses before the next sentinel is tried. When all have refused the user, it rests until the
    /// refusal may be over.
    fn rest(&mut self, failure: &Failure) {
        if self.manager.strong_count() == 0 {
            return;
        }
        // The next subscription goes to another sentinel.
        self.sentinels.suspect();
        if failure.is_transient() {
            (self.refusals, self.refusal) = (0, None);
        } else {
            self.refusals += 1;
        }
        // One sentinel that refuses is passed over like one that is down. Only if all of them do is
        // a further attempt pointless, and a wrong password in their logs every second a nuisance.
        let all = self.refusals >= self.sentinels.count();
        sync::sleep(self.pauses.next());
        if !all {
            return;
        }
        // Taken before the first refused attempt. If a caller connected after that, the attempt may
        // have shown the refusal mended, and the rest ends at once: with a count taken only now,
        // that attempt would be overlooked.
        let refusal = self.refusal.take();
        while let (Some(manager), Some(refusal)) = (self.manager.upgrade(), refusal)
            && !refusal.is_over(manager.attempts().counts().all(), manager.now())
        {
            // Not kept during the sleep, or the client could not end.
            drop(manager);
            sync::sleep(POLL_INTERVAL);
        }
    }

    /// Subscribes to the sentinel that is asked first. Returns its number too.
    fn subscribe(&self, manager: &Manager) -> Result<(usize, Subscription), Failure> {
        let (number, info) = self.sentinels.first();
        let opened = manager.subscribe_at(info, SWITCHES, None);
        // Only an error in connecting is noted. A sentinel that accepts the connection and is
        // silent afterwards may have been noted as silent by `locate` meanwhile, and this must not
        // undo that.
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

    /// Follows the messages of one sentinel until it fails, or the client has ended (`Ok`).
    fn listen(&mut self) -> Result<(), Failure> {
        let Some(manager) = self.manager.upgrade() else { return Ok(()) };
        // Noted before the attempt. If a caller connects while the attempt is refused, `rest` must
        // see that (`ConnectRefusal::before`).
        self.refusal.get_or_insert_with(|| refusal_now(&manager));
        let (number, mut subscription) = self.subscribe(&manager)?;
        drop(manager);
        let mut next = NextPoll::new();
        loop {
            let event = subscription.next(next.wait)?;
            let Some(manager) = self.manager.upgrade() else { return Ok(()) };
            match event {
                Event::Message { payload, .. } if self.sentinels.is_news(&payload) => {
                    // Before the new master is located: also if no sentinel can be asked, the old
                    // connections must not be used any more. All sentinels are asked, because the
                    // one that announced the switch may be the only one to know it, or a liar.
                    manager.move_on();
                    next.look(&manager, true);
                }
                // About another master, or about an address that is known already.
                Event::Message { .. } => {}
                // Published messages are not repeated: one may have been lost before the
                // subscription, and this sentinel may be cut off from the others. So the master is
                // located anyway, beginning with another sentinel.
                Event::Subscribed { .. } | Event::Nothing => {
                    if matches!(event, Event::Subscribed { .. }) {
                        (self.refusals, self.refusal) = (0, None);
                        self.pauses.reset();
                    }
                    self.sentinels.suspect();
                    next.look(&manager, false);
                }
            }
            // A host without power closes no connection, so that reading here would never fail. The
            // polls above send requests to all sentinels, and find out.
            if !self.sentinels.is_responsive(number) {
                return Err(Failure::silent());
            }
        }
    }
}

/// To be kept if the next attempt is refused.
fn refusal_now(manager: &Manager) -> ConnectRefusal {
    ConnectRefusal::before(manager.attempts().counts().all(), manager.now())
}

/// The next poll of the sentinels.
struct NextPoll {
    wait: Duration,
    /// When all sentinels refused the query.
    refused: Option<ConnectRefusal>,
}

impl NextPoll {
    fn new() -> NextPoll {
        NextPoll { wait: POLL_INTERVAL, refused: None }
    }

    /// Locates the master. A failure says nothing about the sentinel that this thread is subscribed
    /// to.
    fn look(&mut self, manager: &Manager, asks_all: bool) {
        let now = refusal_now(manager);
        let rests =
            |it: ConnectRefusal| !it.is_over(manager.attempts().counts().all(), manager.now());
        // A user who may subscribe but not query would otherwise be refused twice a second. An
        // announced switch is worth the attempt.
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
            log!(debug, "no sentinel reported the master: {}", failure::shown(&error));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use leasehold_support::{Server, until};

    use super::*;
    use crate::base::testing::manual_clock::ManualClock;
    use crate::base::time::Clock as _;
    use crate::wire::endpoint;
    use crate::wire::manager::Timeouts;
    use crate::wire::pool::{Pool, PoolSettings, connector};
    use crate::wire::retry::REFUSED;

    /// No machine pauses for so long.
    const LONG: Duration = Duration::from_secs(600);

    /// A server in the role of a sentinel, and a manager with a wrong password for it. The clock
    /// stands still.
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
            let threads = Threads::of_a_new_client();
            let sentinels = Arc::new(Sentinels::new(vec![node], template, clock.clone(), threads));
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
            // Less than a minute has passed after the first of these steps, and more after the
            // second.
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
        rested.recv().unwrap();
    }
}
