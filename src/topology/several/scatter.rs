//! The same question to several servers at once, on the thread that asks: all is sent before any
//! answer is waited for, so that it takes one round trip, not one for each.
//!
//! | step | what is done | how long that takes |
//! | --- | --- | --- |
//! | send | to each server to which there is a connection | no time |
//! | receive | from each of them in turn, the fastest first, while the others' answers are on their way | until the deadline at most, for all together |
//! | connect | who has no connection is waited for, all at once | half of what is left; for a server that was silent before not at all, if enough others answer |
//!
//! The steps are repeated where there is a new connection, or a script that a server did not know.
//! A connection that had died unnoticed is replaced, and the commands on it are sent again, so they
//! must be such as may be repeated.

use std::time::Duration;

use crate::base::sync;
use crate::base::time::{Clock, Moment};
use crate::topology::several::node::{Lane, Node};
use crate::wire::connection::{Reply, Standing, is_no_script};
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::pool::Borrowed;
use crate::wire::script::Call;

/// A dead connection, a new one, and on it a script that is not known.
const STEPS: u32 = 4;
/// While connections are made, how often to look.
const LOOK: Duration = Duration::from_micros(500);
/// What is read in less was there already.
const WAITED: Duration = Duration::from_micros(200);

/// What a server is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) node: &'a Node,
    /// Without any it is only connected to.
    pub(crate) calls: &'a [Call],
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// One for each call.
    pub(crate) outcomes: Vec<Result<Reply, Failure>>,
    /// Nothing was sent before then. An outcome that is no reply has no moment of its own.
    pub(crate) asked: Moment,
    /// What the server told of itself, if there was a connection.
    pub(crate) standing: Option<Standing>,
    /// Whether the calls may have been done before they were done for this answer.
    pub(crate) repeated: bool,
    /// Why there was no connection, where there was none.
    pub(crate) hindrance: Option<Failure>,
}

/// Asks all at once. Servers that were silent before are waited for only while fewer than `enough`
/// others are connected.
pub(crate) fn ask(
    questions: &[Question<'_>],
    lane: Lane,
    enough: usize,
    deadline: Moment,
    clock: &dyn Clock,
) -> Vec<Delivery> {
    let asked = clock.now();
    let mut legs: Vec<Leg<'_>> =
        questions.iter().map(|question| Leg::new(*question, lane, asked)).collect();
    for _ in 0..STEPS {
        for leg in legs.iter_mut().filter(|leg| leg.is_open()) {
            leg.send(lane, deadline);
            if mutated!("servers-asked-one-by-one") && leg.is_under_way() {
                leg.receive(lane, deadline, clock);
            }
        }
        // An answer that waits behind a slow one is dated late: it is read before.
        let mut under_way: Vec<_> = legs.iter_mut().filter(|leg| leg.is_under_way()).collect();
        under_way.sort_by_key(|leg| leg.node.took());
        for leg in under_way {
            leg.receive(lane, deadline, clock);
        }
        if !legs.iter().any(Leg::is_open) {
            break;
        }
        connect(&mut legs, lane, enough, deadline, clock);
    }
    legs.into_iter().map(Leg::end).collect()
}

/// Waits for the connections that are missing.
fn connect(legs: &mut [Leg<'_>], lane: Lane, enough: usize, deadline: Moment, clock: &dyn Clock) {
    let start = clock.now();
    // The other half is for the exchange.
    let until = start.after(deadline.since(start) / 2);
    loop {
        for leg in legs.iter_mut().filter(|leg| leg.is_missing()) {
            leg.look(lane);
        }
        let found = legs.iter().filter(|leg| leg.standing.is_some()).count();
        let every = mutated!("silent-server-waited-for-again");
        let worth = |leg: &&mut Leg<'_>| !leg.node.is_silent() || found < enough || every;
        let waits = legs.iter_mut().filter(|leg| leg.is_missing()).any(|leg| worth(&leg));
        if !waits || clock.now() >= until {
            break;
        }
        sync::sleep(LOOK);
    }
    for leg in legs.iter_mut().filter(|leg| leg.is_missing()) {
        leg.give_up(lane, clock.now().since(start));
    }
}

/// The way to one server and back.
struct Leg<'a> {
    node: &'a Node,
    calls: &'a [Call],
    /// The calls that must carry their script.
    whole: Vec<Option<Call>>,
    outcomes: Vec<Option<Result<Reply, Failure>>>,
    connection: Option<Borrowed>,
    asked: Moment,
    standing: Option<Standing>,
    /// What was sent and is not answered, and when that was.
    under_way: Vec<usize>,
    sent: Moment,
    /// A sending that brought no answer.
    doubt: Option<Failure>,
    hindrance: Option<Failure>,
    /// How many connections could not be made before.
    failed: u64,
    /// Whether it asked for an attempt to connect.
    ordered: bool,
}

impl<'a> Leg<'a> {
    fn new(question: Question<'a>, lane: Lane, asked: Moment) -> Leg<'a> {
        let Question { node, calls } = question;
        Leg {
            node,
            calls,
            whole: calls.iter().map(|_| None).collect(),
            outcomes: calls.iter().map(|_| None).collect(),
            connection: None,
            asked,
            standing: None,
            under_way: Vec::new(),
            sent: Moment::PAST,
            doubt: None,
            hindrance: node.check_process().err(),
            failed: node.attempts(lane).failed,
            ordered: false,
        }
    }

    /// Whether there is something left to do.
    fn is_open(&self) -> bool {
        let done = match self.calls {
            [] => self.standing.is_some(),
            _ => self.outcomes.iter().all(Option::is_some),
        };
        !done && self.hindrance.is_none()
    }

    fn is_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    fn is_missing(&self) -> bool {
        self.is_open() && self.connection.is_none()
    }

    fn send(&mut self, lane: Lane, deadline: Moment) {
        if self.connection.is_none() {
            self.connection = self.node.ready(lane);
            // Once for each question, however often it looks.
            if self.connection.is_none() && !std::mem::replace(&mut self.ordered, true) {
                self.node.ask(lane);
            }
        }
        let Some(connection) = &mut self.connection else { return };
        self.standing = Some(connection.standing);
        let pending: Vec<usize> =
            (0..self.calls.len()).filter(|&number| self.outcomes[number].is_none()).collect();
        if pending.is_empty() {
            return;
        }
        let calls = pending
            .iter()
            .map(|&number| self.whole[number].as_ref().unwrap_or(&self.calls[number]));
        match connection.send_all(calls, deadline) {
            Ok(sent) => (self.sent, self.under_way) = (sent, pending),
            Err(Failure::NotSent(NotSentReason::Closed(_))) => self.hang_up(lane),
            Err(failure @ Failure::Unknown(_)) => {
                self.doubt = Some(failure);
                self.hang_up(lane);
            }
            Err(failure) => self.hindrance = Some(failure),
        }
    }

    fn receive(&mut self, lane: Lane, deadline: Moment, clock: &dyn Clock) {
        let numbers = std::mem::take(&mut self.under_way);
        let Some(connection) = &mut self.connection else { return };
        let begin = clock.now();
        // An answer that is there already is read also when the time is over.
        let replies = connection.receive_all(deadline);
        let end = clock.now();
        self.node.note_took((end.since(begin) >= WAITED).then(|| end.since(self.sent)));
        let mut broken = None;
        for (number, reply) in numbers.into_iter().zip(replies) {
            match reply {
                Err(Failure::Refused(error))
                    if is_no_script(&error) && self.whole[number].is_none() =>
                {
                    self.whole[number] = self.calls[number].with_source();
                    if self.whole[number].is_none() {
                        self.outcomes[number] = Some(Err(Failure::Refused(error)));
                    }
                }
                Err(failure @ Failure::Unknown(_)) if failure.is_disconnect() => {
                    broken = Some(failure);
                }
                Err(failure @ Failure::Unknown(_)) => {
                    self.outcomes[number] = Some(Err(failure));
                    self.node.missed(clock.now().since(self.sent));
                }
                outcome => {
                    self.outcomes[number] = Some(outcome);
                    self.node.set_silent(false);
                    let sent = self.sent;
                    self.standing = self.standing.map(|known| self.node.heard(known, sent));
                }
            }
        }
        if broken.is_some() {
            self.doubt = broken;
            self.hang_up(lane);
        } else if !self.is_open() {
            self.connection = None;
        }
    }

    /// The connection was dead; another may be alive.
    fn hang_up(&mut self, lane: Lane) {
        self.connection = None;
        self.standing = None;
        self.failed = self.node.attempts(lane).failed;
    }

    /// Looks for a connection.
    fn look(&mut self, lane: Lane) {
        if let Some(connection) = self.node.ready(lane) {
            self.standing = Some(connection.standing);
            self.connection = Some(connection);
        } else if self.node.attempts(lane).failed != self.failed
            && self.node.is_cut_off(lane)
            && let Some(error) = self.node.trouble(lane)
        {
            self.node.set_silent(true);
            self.hindrance = Some(Failure::NotSent(NotSentReason::Connect(error)));
        }
    }

    fn give_up(&mut self, lane: Lane, waited: Duration) {
        // Where there are connections, others may be talking on them, and no more be had.
        if self.node.is_cut_off(lane) {
            self.node.set_silent(true);
        }
        self.hindrance = Some(Failure::NotSent(self.node.hindrance(lane, waited)));
    }

    fn end(self) -> Delivery {
        // What was sent once may have been done, whatever came later.
        let repeated = self.doubt.is_some();
        let silent = || Failure::silent().at(self.node.address(), self.node.limit());
        let missing = self.doubt.or_else(|| self.hindrance.clone()).unwrap_or_else(silent);
        Delivery {
            outcomes: self
                .outcomes
                .into_iter()
                .map(|outcome| outcome.unwrap_or_else(|| Err(missing.clone())))
                .collect(),
            asked: self.asked,
            standing: self.standing,
            repeated,
            hindrance: self.hindrance,
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_support::{Server, WallClock};

    use super::*;
    use crate::base::driven::DrivenClock;
    use crate::base::sync::Arc;
    use crate::base::thread::Threads;
    use crate::topology::several::node::NodeSettings;
    use crate::wire::endpoint;
    use crate::wire::pool::PoolSettings;

    const SPAN: Duration = Duration::from_secs(30);

    fn standing(node: &Node, clock: &DrivenClock) -> Standing {
        let calls = [Call::plain(&[b"PING"])];
        let questions = [Question { node, calls: &calls }];
        let deadline = clock.now().after(Duration::from_secs(20));
        loop {
            let mut deliveries = ask(&questions, Lane::Callers, 1, deadline, clock);
            let Delivery { outcomes, standing, .. } = deliveries.remove(0);
            if let (Some(standing), [Ok(_)]) = (standing, outcomes.as_slice()) {
                return standing;
            }
        }
    }

    fn uptime(server: &Server) -> u64 {
        let info: String =
            redis::cmd("INFO").arg("server").query(&mut server.connection()).unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:")).unwrap();
        line.trim().parse().unwrap_or(0)
    }

    /// The reply to a command bounds how old the next run can be, as a connection does.
    #[test]
    fn restarted_server_is_no_older_than_the_last_reply() {
        let wall = WallClock::new().unwrap();
        let server = Server::builder().envs(wall.variables()).start().unwrap();
        let clock = Arc::new(DrivenClock::new(false));
        let settings = NodeSettings {
            pool: PoolSettings::default(),
            timeout: Duration::from_secs(20),
            setting: "node_timeout",
            probation: Some(SPAN),
            threads: Threads::of_a_new_client(),
        };
        let shared: Arc<dyn Clock> = Arc::<DrivenClock>::clone(&clock);
        let info = endpoint::parse(&server.unix_url()).unwrap();
        let node = Node::new(info, &shared, &settings).unwrap();
        let first = standing(&node, &clock);
        clock.put_forward(clock.now().after(Duration::from_secs(3_600)));
        // The same connection, and the same run.
        assert_eq!(standing(&node, &clock).run, first.run);
        server.restart();
        wall.set(1_000_000_000).unwrap();
        while uptime(&server) < 1_000 {}
        // It says it has run for less than has passed since the first connection.
        let second = standing(&node, &clock);
        assert_ne!(second.run, first.run);
        assert_eq!(second.counts_from, clock.now().after(SPAN));
    }
}
