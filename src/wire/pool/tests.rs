use std::thread;

use leasehold_support::{Action, Fault, Injection, Proxy, Server};

use super::*;
use crate::base::error::Error;
use crate::base::testing::manual_clock::ManualClock;
use crate::base::testing::ticking_clock::TickingClock;
use crate::base::thread::Threads;
use crate::base::time::Clock;
use crate::wire::endpoint;
use crate::wire::locator::FixedServer;
use crate::wire::manager::Timeouts;
use crate::wire::script::Call;
use crate::wire::transport::{Lane, Transport};

const HOUR: Duration = Duration::from_secs(3_600);
/// A thread sleeps for no longer than this at a time, so no reading of a clock comes late that goes by a part of this.
const NAP: Duration = Duration::from_millis(20);

/// A server, and a client that it does not let connect: it does not reply to the command that each connection begins
/// with, and says nothing else.
struct Stage {
    _server: Server,
    proxy: Proxy,
    held: Injection,
    clock: Arc<dyn Clock>,
    transport: Arc<Transport>,
}

impl Stage {
    fn new(clock: Arc<dyn Clock>, connections: u64) -> Stage {
        let server = Server::start().unwrap();
        let proxy = Proxy::start(&server).unwrap();
        let source = Arc::new(FixedServer::new(endpoint::parse(&proxy.url()).unwrap()));
        let (settings, timeouts) = (PoolSettings::default().of_one(), Timeouts::both(HOUR));
        let connector = connector(Threads::of_a_new_client()).unwrap();
        let transport = Transport::new(source, Arc::clone(&clock), &settings, timeouts, connector);
        let transport = Arc::new(transport);
        for _ in 0..connections {
            transport.connect(Moment::FAR).unwrap();
        }
        let held = proxy.add(Fault::request("TIME", Action::Hold));
        Stage { _server: server, proxy, held, clock, transport }
    }

    fn ticking(step: Duration, connections: u64) -> Stage {
        Stage::new(Arc::new(TickingClock::new(step)), connections)
    }

    /// A request in each way, with this time.
    fn ask(&self, way: usize, span: Duration) -> Failure {
        let (call, deadline) = (Call::plain(&[b"PING"]), self.clock.now().after(span));
        let outcome = match way {
            0 => self.transport.connect(deadline),
            1 => self.transport.call(&call, deadline).map(drop),
            2 => self.transport.with_connection(deadline, |_| Ok(())),
            _ => {
                let lane = if way == 3 { Lane::Worker } else { Lane::Callers };
                self.transport.call_all(&[call], lane, deadline).swap_remove(0).map(drop)
            }
        };
        outcome.unwrap_err()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.proxy.cut();
    }
}

#[test]
fn call_without_time_to_connect_says_so() {
    for way in 0..5 {
        // The worker sleeps for a millisecond at a time, and has half of its time.
        let (step, span) = if way == 3 { (NAP / 100, NAP * 4) } else { (NAP / 4, NAP * 8) };
        let failure = Stage::ticking(step, 0).ask(way, span);
        assert!(failure.is_own_time() && !failure.is_held_up(), "{way}: {failure}");
        assert!(failure.is_transient() && failure.is_out_of_time());
        let error = Error::from(failure);
        assert!(error.is_timeout() && !error.is_unreachable(), "{way}: {error:?}");
        let text = error.to_string();
        assert!(text.contains("took longer than the ") && text.ends_with("more time"), "{text}");
    }
}

/// With this much time the silence of the server is what is known.
#[test]
fn server_that_lets_nobody_connect_for_long_is_blamed() {
    let failure = Stage::ticking(NAP / 4, 0).ask(0, NAP * 20);
    let error = Error::from(failure);
    assert!(error.is_unreachable() && error.to_string().contains("gave up connecting"), "{error}");
}

#[test]
fn call_without_time_for_a_used_connection_says_so() {
    for (span, is_short) in [(NAP * 8, true), (NAP * 20, false)] {
        let stage = Stage::ticking(NAP / 4, 1);
        let other = Arc::clone(&stage.transport);
        let borrowed = other.lane(Lane::Callers).ready_or_request().unwrap();
        let failure = stage.ask(0, span);
        assert_eq!(failure.is_own_time(), is_short, "{failure}");
        let error = Error::from(failure);
        assert_eq!((error.is_timeout(), error.is_unreachable()), (is_short, !is_short), "{error}");
        let text = if is_short { "was free in the" } else { "look whether Redis hangs" };
        assert!(error.to_string().contains(text), "{error}");
        drop(borrowed);
    }
}

/// It asked to be woken soon, and is woken an hour later.
#[test]
fn thread_that_woke_late_was_held_up() {
    for way in 0..5 {
        let clock = Arc::new(ManualClock::new(false));
        let stage = Stage::new(Arc::<ManualClock>::clone(&clock), 0);
        let failure = thread::scope(|scope| {
            let asks = scope.spawn(|| stage.ask(way, NAP * 8));
            assert!(stage.held.wait_fired(HOUR));
            clock.put_forward(clock.now().after(HOUR / 2));
            asks.join().unwrap()
        });
        assert!(failure.is_held_up(), "{way}: {failure}");
    }
}
