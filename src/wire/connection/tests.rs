use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use leasehold_support::{Action, Fault, Proxy, Server};

use super::*;
use crate::base::sync;
use crate::base::sync::{AtomicU64, Ordering};
use crate::base::testing::manual_clock::ManualClock;
use crate::base::time::BootClock;
use crate::wire::endpoint;
use crate::wire::epoch::Epochs;
use crate::wire::locator::FixedServer;
use crate::wire::manager::{Manager, Timeouts};
use crate::wire::script::{NO_KEYS, Script};

fn refused(line: &str) -> Result<Value, Failure> {
    match redis::parse_redis_value(line.as_bytes()) {
        Ok(Value::ServerError(error)) => Err(Failure::Refused(error.into())),
        Ok(value) => Ok(value),
        Err(error) => Err(Failure::Refused(error)),
    }
}

const SECOND: Duration = Duration::from_secs(1);
/// No machine pauses for so long.
const LONG: Duration = Duration::from_secs(600);

fn common(timeout: Duration) -> Arc<ConnectionHealth> {
    Arc::new(ConnectionHealth::new(timeout, "command_timeout"))
}

fn connection<C: Clock + 'static>(
    server: &Server,
    common: &Arc<ConnectionHealth>,
    clock: &Arc<C>,
) -> Connection {
    let endpoint = endpoint::parse(&server.unix_url()).unwrap();
    let inner = RawConnection::connect(&endpoint, LONG).unwrap();
    let clock: Arc<dyn Clock> = Arc::<C>::clone(clock);
    let epoch = Epochs::default().current();
    Connection::new(inner, clock, Arc::clone(common), "x".into(), epoch)
}

#[test]
fn connection_without_its_timeouts_is_poisoned() {
    let server = Server::start().unwrap();
    let clock = Arc::new(ManualClock::new(false));
    let mut connection = connection(&server, &common(SECOND), &clock);
    // No socket takes a time-out of zero.
    connection.common = common(Duration::ZERO);
    let failure = connection.call(&Call::plain(&[b"PING"]), clock.now().after(SECOND)).unwrap_err();
    assert!(matches!(failure, Failure::NotSent(NotSentReason::Closed(_))), "{failure}");
    assert!(connection.is_poisoned());
}

/// The first of these requests has a little less than the setting, as all have; the second has a deadline of its own.
#[test]
fn error_of_a_silent_server_names_the_setting_and_not_what_was_left() {
    let server = Server::start().unwrap();
    let limit = SECOND / 5;
    for (left, text) in [(limit - SLACK / 2, "command_timeout (200ms)"), (limit / 2, "100ms")] {
        let clock = Arc::new(ManualClock::new(false));
        let mut connection = connection(&server, &common(limit), &clock);
        let silent = Call::plain(&[b"BLPOP", b"nothing", b"0"]);
        let failure = connection.call(&silent, clock.now().after(left)).unwrap_err();
        assert!(failure.to_string().ends_with(text), "{failure}");
    }
}

/// An idle connection, and one whose thread is late: it sent these, and the deadline has passed since.
fn late(server: &Server, calls: &[Call]) -> (Connection, Connection, Vec<Result<Reply, Failure>>) {
    let (common, clock) = (common(LONG), Arc::new(ManualClock::new(false)));
    let connect = || connection(server, &common, &clock);
    let (idle, mut late, mut other) = (connect(), connect(), connect());
    let deadline = clock.now().after(SECOND / 4);
    clock.put_forward(clock.now().after(Duration::from_millis(1)));
    late.send_all(calls, deadline).unwrap();
    // Two later replies elsewhere: what the server has to say to these has arrived.
    for _ in 0..2 {
        other.call(&Call::plain(&[b"PING"]), Moment::FAR).unwrap();
    }
    clock.put_forward(deadline);
    let replies = late.receive_all(deadline);
    (idle, late, replies)
}

#[test]
fn replies_that_arrived_are_read_after_the_deadline() {
    let server = Server::start().unwrap();
    let pings = [b"PING", b"PING"].map(|ping| Call::plain(&[ping]));
    let (idle, late, replies) = late(&server, &pings);
    assert!(replies.iter().all(Result::is_ok), "{replies:?}");
    assert!(!late.is_poisoned() && !idle.is_outdated());
}

#[test]
fn missing_reply_after_the_deadline_is_silence() {
    let server = Server::start().unwrap();
    // Nobody pushes to that list.
    let (idle, late, replies) = late(&server, &[Call::plain(&[b"BLPOP", b"x", b"0"])]);
    assert!(matches!(replies[..], [Err(Failure::Unknown(_))]), "{replies:?}");
    assert!(late.is_poisoned() && idle.is_outdated());
}

/// A clock that goes on by so much whenever it is read.
#[derive(Debug, Default)]
struct Steps(AtomicU64);

const STEP: Duration = Duration::from_millis(250);

impl Clock for Steps {
    fn now(&self) -> Moment {
        let step = self.0.fetch_add(1, Ordering::SeqCst);
        Moment::PAST.after(STEP * u32::try_from(step).unwrap())
    }
}

#[test]
fn excused_silence_outdates_nothing() {
    let server = Server::start().unwrap();
    let (common, clock) = (common(STEP), Arc::new(Steps::default()));
    let connect = || connection(&server, &common, &clock);
    let (idle, mut slow, mut silent) = (connect(), connect(), connect());
    slow.call(&Call::plain(&[b"SET", b"x", b"1"]), Moment::FAR).unwrap();
    let wait = Call::plain(&[b"WAIT", b"1", b"0"]);
    let failure = slow.call_slow(&wait, SECOND * 60, Moment::FAR).unwrap_err();
    assert!(matches!(failure, Failure::Unknown(_)), "{failure}");
    assert!(slow.is_poisoned() && !idle.is_outdated());
    // No reply is noted that did not come.
    assert!(!common.silence(clock.now()).is_zero());
    // Without leave it is what it is.
    silent.call(&Call::plain(&[b"BLPOP", b"y", b"0"]), Moment::FAR).unwrap_err();
    assert!(idle.is_outdated());
}

/// As a balancer does that is full: it takes the connection, and hangs up at the first command.
#[test]
fn failed_opening_outdates_no_other_connection() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(&server).unwrap();
    let endpoint = endpoint::parse(&proxy.url()).unwrap();
    let timeouts = Timeouts { connect: LONG, command: LONG, settings: ["command_timeout"; 2] };
    let source = Arc::new(FixedServer::new(endpoint));
    let manager = Manager::new(source, Arc::new(BootClock), timeouts);
    let mut healthy = manager.open().unwrap();
    let cut = proxy.add(Fault::request("TIME", Action::Cut));
    manager.open().unwrap_err();
    assert_eq!(cut.fired(), 1);
    assert!(healthy.is_usable());
    // One that served is another matter.
    proxy.cut();
    healthy.call(&Call::plain(&[b"PING"]), Moment::FAR).unwrap_err();
    assert!(healthy.is_outdated());
}

/// What two calls get from a server that lacks the script of the first command, keeps its reply to the second for later,
/// and sends that when it hears more. The connection does not outlive that.
fn replies_with_a_late_one() -> Vec<Result<Reply, Failure>> {
    static SCRIPT: Script = Script::new("return 1");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let serve = move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = [0; 4096];
        let _ = stream.read(&mut heard);
        let _ = stream.write_all(b"-NOSCRIPT No matching script\r\n");
        let _ = stream.read(&mut heard);
        let _ = stream.write_all(b":2\r\n");
    };
    sync::spawn("server", serve).unwrap();
    let line = RawConnection::connect(&endpoint::parse(&url).unwrap(), LONG).unwrap();
    let clock = Arc::new(BootClock);
    let epoch = Epochs::default().current();
    let mut connection = Connection::new(line, clock, common(SECOND / 4), "x".into(), epoch);
    let calls = [SCRIPT.call(NO_KEYS, []), Call::plain(&[b"GET", b"x"])];
    let replies = connection.call_all(&calls, BootClock.now().after(LONG));
    assert!(connection.is_poisoned());
    assert!(matches!(&replies[1], Err(Failure::Unknown(_))), "{replies:?}");
    replies
}

#[test]
fn late_reply_is_not_taken_for_a_repeated_scripts() {
    let replies = loop {
        let replies = replies_with_a_late_one();
        // The first reply was late, too, on a machine that pauses for longer than the time-out.
        if !matches!(&replies[0], Err(Failure::Unknown(_))) {
            break replies;
        }
    };
    assert!(matches!(&replies[0], Err(Failure::NotSent(NotSentReason::Closed(_)))), "{replies:?}");
}

#[test]
fn every_kind_of_replica_refusal_is_recognised() {
    let write = "READONLY You can't write against a read only replica.";
    for line in [
        format!("-{write}\r\n"),
        format!("-{write} script: 5a9e, on @user_script:1.\r\n"),
        format!("-ERR Error running script (call to f_5a9e): @user_script:1: -{write}\r\n"),
        format!("-EXECABORT Transaction discarded because of: {write}\r\n"),
        format!("*2\r\n+OK\r\n-{write}\r\n"),
        format!("*2\r\n+OK\r\n*1\r\n-{write}\r\n"),
        "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is 'no'.\r\n".into(),
        "-UNBLOCKED force unblock from blocking operation, instance state changed \
         (master -> replica?)\r\n"
            .into(),
    ] {
        assert!(is_of_a_replica(&refused(&line)), "{line}");
    }
    for line in [
        "-ERR unknown command\r\n",
        "-NOPERM User x has no permissions to run the 'get' command\r\n",
        "-EXECABORT Transaction discarded because of previous errors.\r\n",
        "-NOREPLICAS Not enough good replicas to write.\r\n",
        "*2\r\n+READONLY\r\n:1\r\n",
        "+OK\r\n",
    ] {
        assert!(!is_of_a_replica(&refused(line)), "{line}");
    }
}
