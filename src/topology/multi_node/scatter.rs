//! Requests to several servers at once, on the caller's thread. All requests are sent before any
//! reply is read, so that they take one round trip together and not one each.
//!
//! | step | what happens | how long it takes |
//! | --- | --- | --- |
//! | send | each server with a connection is sent its request | no time |
//! | receive | the replies are read in turn, the fastest server first | until the deadline at most, for all together |
//! | connect | the missing connections are waited for, all at once | half of the time left; no time for a server that was silent before, if enough others are connected |
//!
//! The steps are repeated for new connections. A connection that died unnoticed is replaced, and
//! its commands are sent again. So every command sent from here must be safe to repeat, unless the request
//! says that it is sent once.

use std::time::Duration;

use crate::base::sync;
use crate::base::time::{Clock, Moment};
use crate::topology::multi_node::node::Node;
use crate::wire::connection::{Reply, ServerRun, is_no_script};
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::fork_guard;
use crate::wire::lane::LaneConnections;
use crate::wire::pool::Borrowed;
use crate::wire::script::Call;
use crate::wire::transport::Lane;

/// A server may meet a dead connection, one more that died with it, and then a new one.
const STEPS: u32 = 3;
/// How often the pools are polled while connections are made.
const POLL_INTERVAL: Duration = Duration::from_micros(500);
/// A reply that is read in less time had arrived before.
const MIN_WAIT: Duration = Duration::from_micros(200);

/// The request to one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeRequest<'a> {
    pub(crate) node: &'a Node,
    /// Without calls, only a connection is made.
    pub(crate) calls: &'a [Call],
    /// Whether no call may be sent twice, not even where a connection breaks.
    pub(crate) once: bool,
}

/// The outcome of a request to one server.
#[derive(Debug)]
pub(crate) struct NodeReply {
    /// One for each call.
    pub(crate) outcomes: Vec<Result<Reply, Failure>>,
    /// Nothing was sent before this moment. It dates the outcomes that are no replies.
    pub(crate) asked: Moment,
    /// The run of the server, if there was a connection.
    pub(crate) server_run: Option<ServerRun>,
    /// Whether calls were sent twice, so that the server may have run them before this outcome.
    pub(crate) repeated: bool,
    /// Why there was no connection, where there was none.
    pub(crate) not_sent: Option<Failure>,
}

/// Sends all requests and collects the replies. A server that was silent before is waited for only
/// while fewer than `enough` servers are connected.
pub(crate) fn ask(
    requests: &[NodeRequest<'_>],
    lane: Lane,
    enough: usize,
    deadline: Moment,
    clock: &dyn Clock,
) -> Vec<NodeReply> {
    let asked = clock.now();
    let mut calls: Vec<NodeCall<'_>> =
        requests.iter().map(|request| NodeCall::new(request, lane, asked)).collect();
    for _ in 0..STEPS {
        for call in calls.iter_mut().filter(|call| call.is_open()) {
            call.send(deadline);
        }
        // A reply is dated when it is read. Behind a slow server, a fast server's reply would be
        // dated too late, and its clock reading and the grant would lose that time.
        let mut under_way: Vec<_> = calls.iter_mut().filter(|call| call.sent.is_some()).collect();
        under_way.sort_by_key(|call| call.node.took());
        for call in under_way {
            call.receive(deadline, clock);
        }
        // Reading comes before connecting: the wait for a connection would date the replies late.
        if !calls.iter().any(NodeCall::is_open) {
            break;
        }
        connect(&mut calls, enough, deadline, clock);
    }
    calls.into_iter().map(NodeCall::end).collect()
}

/// Waits for the missing connections.
fn connect(calls: &mut [NodeCall<'_>], enough: usize, deadline: Moment, clock: &dyn Clock) {
    let start = clock.now();
    // The other half is for the exchange. Without it, a connection that arrives in the last moment
    // would carry requests to which no reply can come in time, and each would be an unknown
    // outcome.
    let until = start.after(deadline.since(start) / 2);
    loop {
        for call in calls.iter_mut().filter(|call| call.is_missing()) {
            call.poll();
        }
        // Polling instead of a wait on each pool: one thread cannot wait for several pools at once,
        // and waiting for one after the other would let a dead server use up the time of the
        // others.
        let found = calls.iter().filter(|call| call.server_run.is_some()).count();
        let worth = |call: &&mut NodeCall<'_>| !call.node.is_silent() || found < enough;
        let waits = calls.iter_mut().filter(|call| call.is_missing()).any(|call| worth(&call));
        if !waits || clock.now() >= until {
            break;
        }
        sync::sleep(POLL_INTERVAL);
    }
    for call in calls.iter_mut().filter(|call| call.is_missing()) {
        call.give_up(clock.now().since(start));
    }
}

/// The request to one server while it is under way.
struct NodeCall<'a> {
    node: &'a Node,
    connections: LaneConnections<'a>,
    calls: &'a [Call],
    once: bool,
    /// The replies so far. Where a connection breaks half-way, only the rest is sent again.
    done: Vec<Result<Reply, Failure>>,
    outcomes: Option<Vec<Result<Reply, Failure>>>,
    connection: Option<Borrowed>,
    asked: Moment,
    server_run: Option<ServerRun>,
    /// When the request was sent that has no reply yet.
    sent: Option<Moment>,
    /// Why an earlier sending got no reply.
    doubt: Option<Failure>,
    not_sent: Option<Failure>,
    /// How many attempts to connect had failed before this one.
    failed: u64,
    /// Whether an attempt to connect was requested.
    ordered: bool,
}

impl<'a> NodeCall<'a> {
    fn new(request: &NodeRequest<'a>, lane: Lane, asked: Moment) -> NodeCall<'a> {
        let NodeRequest { node, calls, once } = *request;
        NodeCall {
            node,
            connections: node.transport().lane(lane),
            calls,
            once,
            done: Vec::new(),
            outcomes: None,
            connection: None,
            asked,
            server_run: None,
            sent: None,
            doubt: None,
            not_sent: fork_guard::check().err(),
            failed: node.attempts().counts().failed,
            ordered: false,
        }
    }

    /// Whether there is something left to do.
    fn is_open(&self) -> bool {
        self.outcomes.is_none() && self.not_sent.is_none()
    }

    fn is_missing(&self) -> bool {
        self.is_open() && self.connection.is_none()
    }

    fn send(&mut self, deadline: Moment) {
        if self.connection.is_none() {
            self.connection = self.connections.ready_or_request();
            // `ask` starts an attempt at once and skips the pause after a failure. Once per
            // request, or the polling below would connect to a dead server without a pause.
            if self.connection.is_none() && !std::mem::replace(&mut self.ordered, true) {
                self.connections.ask();
            }
        }
        let Some(connection) = &mut self.connection else { return };
        self.server_run = Some(connection.server_run);
        if self.calls.is_empty() {
            self.outcomes = Some(Vec::new());
            return;
        }
        match connection.send_all(&self.calls[self.done.len()..], deadline) {
            Ok(sent) => self.sent = Some(sent),
            // The server had hung up before: nothing was sent, and the next sending is the first.
            Err(Failure::NotSent(NotSentReason::Closed(_))) => self.close_connection(None),
            // A part was written before the connection broke. The server may have run what came
            // whole, so the next sending is a repetition.
            Err(failure @ Failure::Unknown(_)) => self.break_off(failure),
            Err(failure) => self.not_sent = Some(failure),
        }
    }

    fn receive(&mut self, deadline: Moment, clock: &dyn Clock) {
        let (Some(sent), Some(connection)) = (self.sent.take(), &mut self.connection) else {
            return;
        };
        let begin = clock.now();
        // Also when the deadline has passed while another server was read: `receive_for` returns
        // replies that have arrived, and a vote that was cast is better known than not.
        let mut replies = connection.receive_for(&self.calls[self.done.len()..], deadline);
        let end = clock.now();
        self.node.note_took((end.since(begin) >= MIN_WAIT).then(|| end.since(sent)));

        let is_unknown =
            |reply: &&Result<Reply, Failure>| matches!(reply, Err(Failure::Unknown(_)));
        // One reply of several is enough: the server runs, although it may have stopped since.
        if replies.iter().any(|reply| !is_unknown(&reply)) {
            self.node.set_silent(false);
            self.server_run = self.server_run.map(|known| self.node.note_reply(known, sent));
        }
        match replies.iter().find(is_unknown) {
            // Only a broken connection is worth another sending. Where the server is silent, a
            // second sending would wait behind the first.
            Some(Err(failure)) if failure.is_disconnect() => {
                let failure = failure.clone();
                let is_final = |reply: &Result<Reply, Failure>| match reply {
                    Ok(_) => true,
                    // The script was never run, so this call must be sent again.
                    Err(Failure::Refused(error)) => !is_no_script(error),
                    Err(_) => false,
                };
                // A pipeline runs in order, so all calls before the first missing reply are done.
                // Sending those again would run each of them twice without need.
                replies.truncate(replies.iter().take_while(|reply| is_final(reply)).count());
                self.done.append(&mut replies);
                return self.break_off(failure);
            }
            Some(_) => self.node.missed(clock.now().since(sent)),
            None => {}
        }
        self.done.append(&mut replies);
        (self.outcomes, self.connection) = (Some(std::mem::take(&mut self.done)), None);
    }

    /// A connection broke after something was sent. What has no reply is sent again, unless it must not be.
    fn break_off(&mut self, failure: Failure) {
        self.close_connection(Some(failure));
        if self.once {
            self.outcomes = self.doubt.clone().map(|failure| {
                let mut outcomes = std::mem::take(&mut self.done);
                outcomes.resize(self.calls.len(), Err(failure));
                outcomes
            });
        }
    }

    /// Gives up a dead connection; another one may be alive.
    fn close_connection(&mut self, doubt: Option<Failure>) {
        // A doubt stays: a first sending without a reply may have run, whatever comes later.
        self.doubt = doubt.or(self.doubt.take());
        self.connection = None;
        // The next connection may lead to another run of the server, after a restart.
        self.server_run = None;
        // Failures before this moment do not concern the connection that is sought now.
        self.failed = self.node.attempts().counts().failed;
    }

    /// Takes a connection, if there is one by now.
    fn poll(&mut self) {
        if let Some(connection) = self.connections.ready_or_request() {
            self.server_run = Some(connection.server_run);
            self.connection = Some(connection);
        // An attempt failed since this request began. That ends the wait only where no connection
        // exists that another thread may give back: a full server refuses a new one while the
        // others go on.
        } else if self.node.attempts().counts().failed != self.failed
            && self.connections.is_empty()
            && let Some(error) = self.node.attempts().last_error()
        {
            self.node.set_silent(true);
            self.not_sent = Some(Failure::NotSent(NotSentReason::Connect(error)));
        }
    }

    fn give_up(&mut self, waited: Duration) {
        // With connections in the pool, other threads are using them: the pool is too small, and
        // the server is not silent.
        if self.connections.is_empty() {
            self.node.set_silent(true);
        }
        self.not_sent = Some(Failure::NotSent(self.connections.shortage(waited)));
    }

    fn end(self) -> NodeReply {
        let limit = self.node.transport().manager().reply_limit();
        let silent = || Failure::silent().at(&self.node.address(), limit);
        // The doubt outranks a later failure to connect. "Not sent" would claim that the server did
        // nothing, although the first sending may have run.
        let repeated = self.doubt.is_some();
        let missing = self.doubt.or_else(|| self.not_sent.clone());
        let mut outcomes = self.outcomes.unwrap_or(self.done);
        outcomes.resize(self.calls.len(), Err(missing.unwrap_or_else(silent)));
        NodeReply {
            outcomes,
            asked: self.asked,
            server_run: self.server_run,
            repeated,
            not_sent: self.not_sent,
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_support::{Action, Fault, Proxy, Server, WallClock};

    use super::*;
    use crate::base::sync::Arc;
    use crate::base::testing::manual_clock::ManualClock;
    use crate::base::thread::Threads;
    use crate::base::time::BootClock;
    use crate::topology::multi_node::node::NodeSettings;
    use crate::wire::endpoint;
    use crate::wire::manager::Timeouts;
    use crate::wire::pool::PoolSettings;

    /// No machine pauses for so long.
    const LONG: Duration = Duration::from_secs(600);
    const SPAN: Duration = Duration::from_secs(30);

    fn settings(quarantine: Option<Duration>) -> NodeSettings {
        let timeouts = Timeouts { connect: LONG, command: LONG, settings: ["node_timeout"; 2] };
        let threads = Threads::of_a_new_client();
        NodeSettings { pool: PoolSettings::default(), timeouts, quarantine, threads }
    }

    fn server_run(node: &Node, clock: &ManualClock) -> ServerRun {
        let calls = [Call::plain(&[b"PING"])];
        let requests = [NodeRequest { node, calls: &calls, once: false }];
        let deadline = clock.now().after(LONG);
        loop {
            let mut replies = ask(&requests, Lane::Callers, 1, deadline, clock);
            let NodeReply { outcomes, server_run, .. } = replies.remove(0);
            if let (Some(server_run), [Ok(_)]) = (server_run, outcomes.as_slice()) {
                return server_run;
            }
        }
    }

    fn uptime(server: &Server) -> u64 {
        let info: String =
            redis::cmd("INFO").arg("server").query(&mut server.connection()).unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:")).unwrap();
        line.trim().parse().unwrap_or(0)
    }

    #[test]
    fn broken_pipeline_goes_on_after_its_last_reply() {
        let server = Server::start().unwrap();
        let proxy = Proxy::start(&server).unwrap();
        let cut = proxy.add(Fault::reply("the-cut", Action::CutHalf));
        let clock: Arc<dyn Clock> = Arc::new(BootClock);
        let info = endpoint::parse(&proxy.url()).unwrap();
        let node = Node::new(info, &clock, &settings(None)).unwrap();
        let words: [&[&[u8]]; 3] = [&[b"INCR", b"once"], &[b"ECHO", b"the-cut"], &[b"PING"]];
        let calls = words.map(Call::plain);
        let deadline = clock.now().after(LONG);
        let requests = [NodeRequest { node: &node, calls: &calls, once: false }];
        let replies = ask(&requests, Lane::Callers, 1, deadline, &*clock);
        assert_eq!(cut.fired(), 1);
        assert!(replies[0].outcomes.iter().all(Result::is_ok), "{:?}", replies[0].outcomes);
        assert!(replies[0].repeated);
        let count: u64 = redis::cmd("GET").arg("once").query(&mut server.connection()).unwrap();
        assert_eq!(count, 1, "what had its reply was sent again");
    }

    /// The reply to a command bounds how old the next run can be, as a connection does.
    #[test]
    fn restarted_server_is_no_older_than_the_last_reply() {
        let wall = WallClock::new().unwrap();
        let server = Server::builder().envs(wall.variables()).start().unwrap();
        let clock = Arc::new(ManualClock::new(false));
        let shared: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
        let info = endpoint::parse(&server.unix_url()).unwrap();
        let node = Node::new(info, &shared, &settings(Some(SPAN))).unwrap();
        let first = server_run(&node, &clock);
        clock.put_forward(clock.now().after(Duration::from_secs(3_600)));
        // The same connection, and the same run.
        assert_eq!(server_run(&node, &clock).run, first.run);
        server.restart();
        wall.set(1_000_000_000).unwrap();
        while uptime(&server) < 1_000 {}
        // It says it has run for less than has passed since the first connection.
        let second = server_run(&node, &clock);
        assert_ne!(second.run, first.run);
        assert_eq!(second.counts_from, clock.now().after(SPAN));
    }
}
