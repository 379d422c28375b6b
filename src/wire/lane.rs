//! The connections that a request uses: those of callers, or that of the worker.
//!
//! Renewals have a connection of their own, so that they never wait for callers. But sometimes none
//! can be opened: the server is at its `maxclients`, no sentinel replies, a host name does not resolve,
//! a password was changed, a certificate has expired, or no file descriptor is left. Callers go on over
//! the connections that they have, and renewals must be able to as well.
//!
//! | the worker's own connection | an idle one of callers | the worker |
//! | --- | --- | --- |
//! | is there | | uses its own |
//! | is not there | is there | borrows it for one exchange; its own is made meanwhile |
//! | is not there | all are in use | waits for either, for half of its time at most; callers leave it the next one |
//! | cannot be made | there is none | fails at once |
//!
//! The other half of its time is for the exchange. So a busy pool costs the worker no more than half
//! of one try, and the worker reports losses in time.
//!
//! A connection that was idle for a second is looked at before it is used, the worker's own too. A
//! request is sent again over another connection only if it was certainly not sent. After an unknown
//! outcome, such as that of a connection that died without a sign, the worker tries again at its next
//! turn, when that connection is gone. Connections that were idle for as long are probably dead too
//! (`health`): the worker uses one of those only while no new one can be opened.

use std::time::Duration;

use crate::base::time::Moment;
use crate::wire::connection::{Reply, Session as _};
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::pool::{Borrowed, Pool};
use crate::wire::script::Call;
use crate::wire::worker_connection::WorkerConnection;

/// The most connections that a request tries: one that the server has closed, another that was closed
/// with it, and then a new one.
const STEPS: u32 = 3;

/// Whose connections to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Callers,
    Worker,
}

/// The connections of a lane to one server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LaneConnections<'a> {
    Callers(&'a Pool),
    /// The worker's own connection, and those of callers to fall back on.
    Worker {
        own: &'a WorkerConnection,
        callers: &'a Pool,
    },
}

impl LaneConnections<'_> {
    /// Borrows a connection that is there. Orders one if there is none, without waiting for it.
    pub(crate) fn ready_or_request(self) -> Option<Borrowed> {
        match self {
            LaneConnections::Callers(pool) => pool.ready_or_request(),
            // The worker's own is ordered in any case.
            LaneConnections::Worker { own, callers } => {
                own.ready_or_request().or_else(|| callers.lend())
            }
        }
    }

    /// Notes that a caller needs a connection: if the last attempt failed, the next one begins now.
    pub(crate) fn ask(self) {
        match self {
            LaneConnections::Callers(pool) => pool.ask(),
            LaneConnections::Worker { own, .. } => own.ask(),
        }
    }

    /// Whether there is no connection at all.
    pub(crate) fn is_empty(self) -> bool {
        match self {
            LaneConnections::Callers(pool) => pool.is_empty(),
            LaneConnections::Worker { own, callers } => own.is_empty() && callers.is_empty(),
        }
    }

    /// Why there was no connection during this wait.
    pub(crate) fn shortage(self, waited: Duration) -> NotSentReason {
        match self {
            LaneConnections::Callers(pool) => pool.shortage(waited),
            LaneConnections::Worker { own, .. } => own.shortage(waited),
        }
    }

    /// Sends many calls as one pipeline.
    pub(crate) fn call_all(
        self,
        calls: &[Call],
        deadline: Moment,
    ) -> Result<Vec<Result<Reply, Failure>>, Failure> {
        let mut step = 1;
        loop {
            let replies = self.get(deadline)?.call_all(calls, deadline);
            let is_unsent = |reply: &Result<Reply, Failure>| {
                matches!(reply, Err(Failure::NotSent(NotSentReason::Closed(_))))
            };
            if step == STEPS || !replies.iter().all(is_unsent) {
                return Ok(replies);
            }
            step += 1;
        }
    }

    /// Borrows a connection. Waits until `deadline` at most, and the worker for half of that time.
    fn get(self, deadline: Moment) -> Result<Borrowed, Failure> {
        let (own, callers) = match self {
            LaneConnections::Callers(pool) => return pool.get(deadline),
            LaneConnections::Worker { own, callers } => (own, callers),
        };
        let (start, before) = (own.now(), own.counts());
        if let Some(connection) = self.ready_or_request() {
            return Ok(connection);
        }

        own.ask();
        // As in `Pool::get`: nothing was waited for.
        if deadline <= own.now() {
            return Err(Failure::NotSent(NotSentReason::DeadlinePassed));
        }
        let _turn = callers.worker_turn();
        let until = own.limit(start).min(start.after(deadline.since(start) / 2));
        let mut seen = before;
        loop {
            let now = own.now();
            let left = until.since(now);
            if left.is_zero() {
                return Err(Failure::NotSent(self.shortage(now.since(start))));
            }
            let lent = callers.wait_to_lend(seen, left);
            // The worker's own first, because callers need theirs.
            if let Some(connection) = own.ready_or_request().or(lent) {
                return Ok(connection);
            }
            seen = own.counts();
            // Nobody has a connection that could become free, and none can be made.
            if seen.failed != before.failed
                && self.is_empty()
                && let Some(error) = own.last_error()
            {
                return Err(Failure::connect(error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_support::{Action, Fault, Proxy, Server};

    use super::*;
    use crate::base::sync::{self, Arc};
    use crate::base::thread::Threads;
    use crate::base::time::{BootClock, Clock as _};
    use crate::wire::endpoint;
    use crate::wire::locator::FixedServer;
    use crate::wire::manager::Timeouts;
    use crate::wire::pool::{PoolSettings, connector};
    use crate::wire::transport::Transport;

    /// No machine pauses for so long.
    const LONG: Duration = Duration::from_secs(600);

    /// A server, a proxy before it, and connections for one caller and the worker.
    struct Stage {
        server: Server,
        proxy: Proxy,
        transport: Arc<Transport>,
    }

    impl Stage {
        /// A caller is connected. The worker is not, and cannot be.
        fn without_own() -> Stage {
            let server = Server::start().unwrap();
            let proxy = Proxy::start(&server).unwrap();
            let source = Arc::new(FixedServer::new(endpoint::parse(&proxy.url()).unwrap()));
            let settings = PoolSettings { max_size: 1, ..PoolSettings::default() };
            let connector = connector(Threads::of_a_new_client()).unwrap();
            let timeouts = Timeouts::both(LONG);
            let transport =
                Transport::new(source, Arc::new(BootClock), &settings, timeouts, connector);
            transport.connect(Stage::deadline()).unwrap();
            proxy.refuse();
            Stage { server, proxy, transport: Arc::new(transport) }
        }

        fn deadline() -> Moment {
            BootClock.now().after(LONG)
        }

        fn count(&self, lane: Lane, deadline: Moment) -> Result<Reply, Failure> {
            let calls = [Call::plain(&[b"INCR", b"count"])];
            self.transport.call_all(&calls, lane, deadline).swap_remove(0)
        }

        fn counted(&self) -> u64 {
            let count = redis::cmd("GET").arg("count").query(&mut self.server.connection());
            count.ok().flatten().unwrap_or(0)
        }
    }

    #[test]
    fn worker_uses_a_connection_of_callers_while_it_can_have_none() {
        let stage = Stage::without_own();
        stage.count(Lane::Worker, Stage::deadline()).unwrap();
        stage.count(Lane::Callers, Stage::deadline()).unwrap();
        assert_eq!((stage.counted(), stage.proxy.accepted()), (2, 1));
        // Its own is made as soon as that is possible.
        stage.proxy.heal();
        while stage.proxy.connections() < 2 {
            stage.count(Lane::Worker, Stage::deadline()).unwrap();
        }
    }

    #[test]
    fn worker_that_comes_after_its_deadline_reports_no_outage() {
        let stage = Stage::without_own();
        let _lent = stage.transport.lane(Lane::Callers).get(Stage::deadline()).unwrap();
        let failure = stage.transport.lane(Lane::Worker).get(BootClock.now()).unwrap_err();
        assert!(failure.is_held_up(), "{failure:?}");
    }

    /// The wait for callers ends in time for an exchange, and with the reason why the worker has no
    /// connection of its own.
    #[test]
    fn worker_waits_for_a_busy_caller_only_for_a_part_of_its_time() {
        let stage = Stage::without_own();
        let lent = stage.transport.lane(Lane::Callers).get(Stage::deadline()).unwrap();
        let failure = loop {
            let deadline = BootClock.now().after(Duration::from_millis(200));
            let failure = stage.count(Lane::Worker, deadline).unwrap_err();
            // A machine that holds this thread up for so long is another reason.
            if !failure.is_held_up() {
                break failure;
            }
        };
        assert!(failure.in_connecting().is_some(), "{failure:?}");
        // One that comes back in time is used.
        let other = Arc::clone(&stage.transport);
        sync::spawn("worker", move || {
            let calls = [Call::plain(&[b"INCR", b"count"])];
            other.call_all(&calls, Lane::Worker, Stage::deadline());
        })
        .unwrap();
        drop(lent);
        leasehold_support::until("it is used", || stage.counted() > 0);
    }

    /// Callers that use their connections without a pause would otherwise be faster each time.
    #[test]
    fn connection_that_is_returned_is_left_to_the_worker() {
        let stage = Stage::without_own();
        let lent = stage.transport.lane(Lane::Callers).get(Stage::deadline()).unwrap();
        let other = Arc::clone(&stage.transport);
        sync::spawn("worker", move || {
            let calls = [Call::plain(&[b"INCR", b"count"])];
            other.call_all(&calls, Lane::Worker, Stage::deadline());
        })
        .unwrap();
        let callers = stage.transport.lane(Lane::Callers);
        let LaneConnections::Callers(pool) = callers else { unreachable!() };
        leasehold_support::until("callers know that the worker waits", || pool.is_left_to_worker());
        drop(lent);
        drop(callers.get(Stage::deadline()).unwrap());
        assert_eq!(stage.counted(), 1);
    }

    /// As a single request: it may have run.
    #[test]
    fn request_without_a_reply_is_not_sent_over_another_connection() {
        let stage = Stage::without_own();
        stage.proxy.heal();
        // Not any reply: the worker's own connection is being made meanwhile.
        let lost = stage.proxy.add(Fault::request("INCR", Action::LoseReply));
        let failure = stage.count(Lane::Worker, Stage::deadline()).unwrap_err();
        assert!(failure.is_unknown(), "{failure:?}");
        assert_eq!((lost.fired(), stage.counted()), (1, 1));
    }
}
