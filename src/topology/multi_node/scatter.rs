//! The same question to several servers at once, on the thread that asks: all is sent before any
//! answer is waited for, so that it takes one round trip, not one for each.
//!
//! | step | what is done | how long that takes |
//! | --- | --- | --- |
//! | send | to each server to which there is a connection | no time |
//! | receive | from each of them in turn, the fastest first, while the others' answers are on their way | until the deadline at most, for all together |
//! | connect | who has no connection is waited for, all at once | half of what is left; for a server that was silent before not at all, if enough others answer |
//!
//! The steps are repeated where there is a new connection.
//! A connection that had died unnoticed is replaced, and the commands on it are sent again, so they
//! must be such as may be repeated.

use std::time::Duration;

use crate::base::sync;
use crate::base::time::{Clock, Moment};
use crate::topology::multi_node::node::Node;
use crate::wire::connection::{Reply, ServerRun, is_no_script};
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::fork_guard;
use crate::wire::pool::{Borrowed, Pool};
use crate::wire::script::Call;
use crate::wire::transport::Lane;

/// A dead connection, another one, and a new one.
const STEPS: u32 = 3;
/// While connections are made, how often to look.
const POLL_INTERVAL: Duration = Duration::from_micros(500);
/// What is read in less was there already.
const MIN_WAIT: Duration = Duration::from_micros(200);

/// What a server is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeRequest<'a> {
    pub(crate) node: &'a Node,
    /// Without any it is only connected to.
    pub(crate) calls: &'a [Call],
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct NodeReply {
    /// One for each call.
    pub(crate) outcomes: Vec<Result<Reply, Failure>>,
    /// Nothing was sent before then. An outcome that is no reply has no moment of its own.
    pub(crate) asked: Moment,
    /// What the server told of itself, if there was a connection.
    pub(crate) server_run: Option<ServerRun>,
    /// Whether the calls may have been done before they were done for this answer.
    pub(crate) repeated: bool,
    /// Why there was no connection, where there was none.
    pub(crate) not_sent: Option<Failure>,
}

/// Asks all at once. Servers that were silent before are waited for only while fewer than `enough`
/// others are connected.
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
        // An answer that waits behind a slow one is dated late: it is read before.
        let mut under_way: Vec<_> = calls.iter_mut().filter(|call| call.sent.is_some()).collect();
        under_way.sort_by_key(|call| call.node.took());
        for call in under_way {
            call.receive(deadline, clock);
        }
        if !calls.iter().any(NodeCall::is_open) {
            break;
        }
        connect(&mut calls, enough, deadline, clock);
    }
    calls.into_iter().map(NodeCall::end).collect()
}

/// Waits for the connections that are missing.
fn connect(calls: &mut [NodeCall<'_>], enough: usize, deadline: Moment, clock: &dyn Clock) {
    let start = clock.now();
    // The other half is for the exchange.
    let until = start.after(deadline.since(start) / 2);
    loop {
        for call in calls.iter_mut().filter(|call| call.is_missing()) {
            call.poll();
        }
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

/// The way to one server and back.
struct NodeCall<'a> {
    node: &'a Node,
    pool: &'a Pool,
    calls: &'a [Call],
    /// The replies so far. Where a connection breaks half-way, only the rest is sent again.
    done: Vec<Result<Reply, Failure>>,
    outcomes: Option<Vec<Result<Reply, Failure>>>,
    connection: Option<Borrowed>,
    asked: Moment,
    server_run: Option<ServerRun>,
    /// When that was sent which is under way.
    sent: Option<Moment>,
    /// A sending that brought no answer.
    doubt: Option<Failure>,
    not_sent: Option<Failure>,
    /// How many connections could not be made before.
    failed: u64,
    /// Whether it asked for an attempt to connect.
    ordered: bool,
}

impl<'a> NodeCall<'a> {
    fn new(request: &NodeRequest<'a>, lane: Lane, asked: Moment) -> NodeCall<'a> {
        let NodeRequest { node, calls } = *request;
        NodeCall {
            node,
            pool: node.transport().pool(lane),
            calls,
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
            self.connection = self.pool.ready_or_request();
            // Once for each request, however often it looks.
            if self.connection.is_none() && !std::mem::replace(&mut self.ordered, true) {
                self.pool.ask();
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
            Err(Failure::NotSent(NotSentReason::Closed(_))) => self.close_connection(None),
            Err(failure @ Failure::Unknown(_)) => self.close_connection(Some(failure)),
            Err(failure) => self.not_sent = Some(failure),
        }
    }

    fn receive(&mut self, deadline: Moment, clock: &dyn Clock) {
        let (Some(sent), Some(connection)) = (self.sent.take(), &mut self.connection) else {
            return;
        };
        let begin = clock.now();
        // An answer that is there already is read also when the time is over.
        let mut replies = connection.receive_for(&self.calls[self.done.len()..], deadline);
        let end = clock.now();
        self.node.note_took((end.since(begin) >= MIN_WAIT).then(|| end.since(sent)));
        let is_unknown =
            |reply: &&Result<Reply, Failure>| matches!(reply, Err(Failure::Unknown(_)));
        if replies.iter().any(|reply| !is_unknown(&reply)) {
            self.node.set_silent(false);
            self.server_run = self.server_run.map(|known| self.node.note_reply(known, sent));
        }
        match replies.iter().find(is_unknown) {
            Some(Err(failure)) if failure.is_disconnect() => {
                let failure = failure.clone();
                let is_final = |reply: &Result<Reply, Failure>| match reply {
                    Ok(_) => true,
                    Err(Failure::Refused(error)) => !is_no_script(error),
                    Err(_) => false,
                };
                replies.truncate(replies.iter().take_while(|reply| is_final(reply)).count());
                self.done.append(&mut replies);
                return self.close_connection(Some(failure));
            }
            Some(_) => self.node.missed(clock.now().since(sent)),
            None => {}
        }
        self.done.append(&mut replies);
        (self.outcomes, self.connection) = (Some(std::mem::take(&mut self.done)), None);
    }

    /// The connection was dead; another may be alive.
    fn close_connection(&mut self, doubt: Option<Failure>) {
        self.doubt = doubt.or(self.doubt.take());
        self.connection = None;
        self.server_run = None;
        self.failed = self.node.attempts().counts().failed;
    }

    /// Looks for a connection.
    fn poll(&mut self) {
        if let Some(connection) = self.pool.ready_or_request() {
            self.server_run = Some(connection.server_run);
            self.connection = Some(connection);
        } else if self.node.attempts().counts().failed != self.failed
            && self.pool.is_empty()
            && let Some(error) = self.node.attempts().last_error()
        {
            self.node.set_silent(true);
            self.not_sent = Some(Failure::NotSent(NotSentReason::Connect(error)));
        }
    }

    fn give_up(&mut self, waited: Duration) {
        // Where there are connections, others may be talking on them, and no more be had.
        if self.pool.is_empty() {
            self.node.set_silent(true);
        }
        self.not_sent = Some(Failure::NotSent(self.pool.shortage(waited)));
    }

    fn end(self) -> NodeReply {
        let limit = self.node.transport().manager().reply_limit();
        let silent = || Failure::silent().at(&self.node.address(), limit);
        // What was sent once may have been done, whatever came later.
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

    const SPAN: Duration = Duration::from_secs(30);

    fn settings(quarantine: Option<Duration>) -> NodeSettings {
        let span = Duration::from_secs(20);
        let timeouts = Timeouts { connect: span, command: span, settings: ["node_timeout"; 2] };
        let threads = Threads::of_a_new_client();
        NodeSettings { pool: PoolSettings::default(), timeouts, quarantine, threads }
    }

    fn server_run(node: &Node, clock: &ManualClock) -> ServerRun {
        let calls = [Call::plain(&[b"PING"])];
        let requests = [NodeRequest { node, calls: &calls }];
        let deadline = clock.now().after(Duration::from_secs(20));
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
        let deadline = clock.now().after(Duration::from_secs(20));
        let requests = [NodeRequest { node: &node, calls: &calls }];
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
