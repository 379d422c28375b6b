//! Every fault has its documented effect, and is visible in the counts.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold_support::fault::{Operation, digest, scripts};
use leasehold_support::{Action, Direction, Fault, Injection, Proxy, Server, Tally};
use redis::{Connection, RedisResult};

const SOON: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(2);

fn start() -> (Server, Proxy) {
    let server = Server::start().expect("a server");
    let proxy = Proxy::start(&server).expect("a proxy");
    (server, proxy)
}

fn connect(proxy: &Proxy) -> RedisResult<Connection> {
    connect_with(proxy, "")
}

fn connect_with(proxy: &Proxy, query: &str) -> RedisResult<Connection> {
    let client = redis::Client::open(format!("{}{query}", proxy.url()))?;
    let connection = client.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    Ok(connection)
}

fn set(connection: &mut Connection, key: &str) -> RedisResult<String> {
    redis::cmd("SET").arg(key).arg("value").query(connection)
}

/// Adds the fault and sends the SET that sets it off.
fn set_with(proxy: &Proxy, fault: Fault) -> (Injection, RedisResult<String>) {
    let injection = proxy.add(fault);
    let mut connection = connect(proxy).expect("a connection");
    let answer = set(&mut connection, "key");
    assert_eq!(injection.fired(), 1, "{injection:?}");
    (injection, answer)
}

#[test]
fn proxy_carries_messages_and_counts_connections() {
    let (_server, proxy) = start();
    let mut one = connect(&proxy).expect("a connection");
    let two = connect(&proxy).expect("a connection");
    let big = "x".repeat(1 << 20);
    let mut pipe = redis::pipe();
    pipe.cmd("SET").arg("big").arg(&big).ignore().cmd("GET").arg("big");
    let (found,): (String,) = pipe.query(&mut one).expect("an answer");
    assert_eq!(found, big);
    assert_eq!((proxy.connections(), proxy.accepted()), (2, 2));
    drop((one, two));
    let end = Instant::now() + SOON;
    while proxy.connections() > 0 {
        assert!(Instant::now() < end, "connections stay open");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn proxy_carries_to_a_port() {
    let server = Server::builder().tcp().start().expect("a server");
    let proxy = Proxy::to_addr(server.addr()).expect("a proxy");
    let mut connection = connect(&proxy).expect("a connection");
    assert_eq!(set(&mut connection, "key").expect("OK"), "OK");
}

#[test]
fn proxy_refuses_and_heals() {
    let (_server, proxy) = start();
    let mut open = connect(&proxy).expect("a connection");
    proxy.refuse();
    let error = connect(&proxy).err().expect("refused");
    assert!(error.is_connection_refusal(), "{error}");
    assert!(set(&mut open, "key").is_ok());
    proxy.heal();
    assert!(connect(&proxy).is_ok());
}

#[test]
fn a_black_hole_accepts_and_says_nothing() {
    let (server, proxy) = start();
    let mut open = connect(&proxy).expect("a connection");
    proxy.black_hole();
    assert!(set(&mut open, "key").is_err_and(|error| error.is_timeout()));
    assert!(server.keys().is_empty());
    let accepted = proxy.accepted();
    assert!(connect(&proxy).and_then(|mut new| set(&mut new, "other")).is_err());
    assert_eq!(proxy.accepted(), accepted + 1);
    proxy.heal();
    assert!(connect(&proxy).and_then(|mut new| set(&mut new, "third")).is_ok());
}

#[test]
fn proxy_delays_both_directions() {
    let (_server, proxy) = start();
    let mut connection = connect(&proxy).expect("a connection");
    proxy.delay(Duration::from_millis(50));
    let begin = Instant::now();
    assert!(set(&mut connection, "key").is_ok());
    assert!(begin.elapsed() >= Duration::from_millis(100));
}

#[test]
fn proxy_cuts_all_connections() {
    let (_server, proxy) = start();
    let mut connection = connect(&proxy).expect("a connection");
    proxy.cut();
    assert!(set(&mut connection, "key").is_err_and(|error| error.is_connection_dropped()));
}

#[test]
fn a_request_is_cut_before_the_server() {
    let (server, proxy) = start();
    let (_, answer) = set_with(&proxy, Fault::request("SET\r\n", Action::Cut));
    let error = answer.expect_err("cut");
    assert!(error.to_string().contains("reset"), "{error}");
    assert!(server.keys().is_empty());
}

#[test]
fn half_a_request_is_not_executed() {
    let (server, proxy) = start();
    let (_, answer) = set_with(&proxy, Fault::request("key", Action::CutHalf));
    assert!(answer.is_err());
    assert!(server.keys().is_empty());
}

#[test]
fn a_lost_reply_leaves_the_key() {
    for fault in
        [Fault::request("key", Action::LoseReply), Fault::request("key", Action::HalfReply)]
    {
        let (server, proxy) = start();
        let (_, answer) = set_with(&proxy, fault);
        assert!(answer.is_err());
        assert_eq!(server.keys(), [b"key".to_vec()]);
    }
}

#[test]
fn a_reply_becomes_garbage() {
    let (server, proxy) = start();
    let garbage = Action::Garbage(b"?!\r\n".to_vec());
    let (_, answer) = set_with(&proxy, Fault::request("key", garbage));
    assert!(answer.is_err());
    assert_eq!(server.keys(), [b"key".to_vec()]);
}

#[test]
fn a_held_request_arrives_after_its_client_left() {
    let (server, proxy) = start();
    let (hold, answer) = set_with(&proxy, Fault::request("key", Action::Hold));
    assert!(answer.is_err_and(|error| error.is_timeout()));
    // The client's clean-up overtakes the request.
    let mut other = connect(&proxy).expect("a connection");
    let deleted: u64 = redis::cmd("DEL").arg("key").query(&mut other).expect("a number");
    assert_eq!(deleted, 0);
    hold.release();
    let end = Instant::now() + SOON;
    while server.keys().is_empty() {
        assert!(Instant::now() < end, "the held request was lost");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn only_the_nth_or_every_later_match_counts() {
    let (_server, proxy) = start();
    let once = proxy.add(Fault::request("once", Action::Drop).nth(2));
    let ever = proxy.add(Fault::request("ever", Action::Cut).nth(2).sticky());
    let answer = |key| set(&mut connect(&proxy).expect("a connection"), key).is_ok();
    assert_eq!([(); 3].map(|()| answer("once")), [true, false, true]);
    assert_eq!([(); 3].map(|()| answer("ever")), [true, false, false]);
    assert_eq!((once.fired(), ever.fired()), (1, 2));
    ever.remove();
    assert!(answer("ever"));
}

#[test]
fn published_messages_are_dropped_doubled_and_swapped() {
    for protocol in ["", "?protocol=resp3"] {
        let (server, proxy) = start();
        let mut connection = connect_with(&proxy, protocol).expect("a connection");
        let mut subscriber = connection.as_pubsub();
        subscriber.subscribe("news").expect("a subscription");
        let faults = [
            proxy.add(Fault::reply("one", Action::Drop)),
            proxy.add(Fault::reply("two", Action::Twice)),
            proxy.add(Fault::reply("three", Action::Swap)),
        ];
        let mut publisher = server.connection();
        for word in ["one", "two", "three", "four"] {
            let heard: u64 = redis::cmd("PUBLISH")
                .arg("news")
                .arg(word)
                .query(&mut publisher)
                .expect("a number");
            assert_eq!(heard, 1);
        }
        let heard = [(); 4].map(|()| {
            let message = subscriber.get_message().expect("a message");
            message.get_payload::<String>().expect("a text")
        });
        assert_eq!(heard, ["two", "two", "four", "three"]);
        assert!(faults.iter().all(|fault| fault.wait_fired(SOON)));
    }
}

#[test]
fn all_threads_end_with_the_proxy() {
    let (_server, proxy) = start();
    let _open = connect(&proxy).expect("a connection");
    set_with(&proxy, Fault::request("key", Action::Hold)).1.expect_err("held");
    proxy.black_hole();
    let _stuck = connect(&proxy);
    let begin = Instant::now();
    drop(proxy);
    assert!(begin.elapsed() < Duration::from_secs(2));
}

/// Runs the script of a renewal, which says that there is no such lock.
fn renew(connection: &mut Connection) -> RedisResult<i64> {
    let (_, text) = scripts().find(|(name, _)| *name == "RENEW").expect("one of the library's");
    let mut eval = redis::cmd("EVAL");
    eval.arg(text).arg(2).arg(&["a", "b"]).arg(&["me", "1000", "0", "1000"]);
    let reply: Vec<i64> = eval.query(connection)?;
    Ok(reply[0])
}

/// Otherwise it would pass by the faults of its operation, and their tests would go on without them.
#[test]
fn unknown_script_fails_the_test() {
    let (_server, proxy) = start();
    let mut connection = connect(&proxy).expect("a connection");
    let unknown = digest("return 8");
    let answer = redis::cmd("EVALSHA").arg(&unknown).arg(0).query::<i64>(&mut connection);
    assert!(answer.is_err(), "{answer:?}");
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || drop(proxy)));
    let panic = dropped.expect_err("a panic");
    let text = panic.downcast_ref::<String>().expect("a text");
    assert!(text.contains(&unknown), "{text}");
}

#[test]
fn the_journal_agrees_with_what_was_done_to_an_operation() {
    let (_server, proxy) = start();
    let at = |direction| proxy.tally(direction, Operation::Renew);
    let mut connection = connect(&proxy).expect("a connection");
    assert_eq!(renew(&mut connection), Ok(0));
    let fault = Fault::request("", Action::LoseReply).at(Operation::Renew);
    let lost = proxy.add(fault);
    assert!(set(&mut connection, "key").is_ok(), "another operation");
    assert!(renew(&mut connection).is_err());
    assert_eq!(lost.fired(), 1);
    let mut connection = connect(&proxy).expect("a connection");
    let late = Action::Delay(Duration::from_millis(50));
    let late = proxy.add(Fault::reply("", late).at(Operation::Renew));
    assert_eq!(renew(&mut connection), Ok(0));
    assert_eq!(late.fired(), 1);
    // A message is noted once it was written, which the client may notice before.
    let begin = Instant::now();
    while at(Direction::Reply).seen < 3 && begin.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(1));
    }
    let requests = at(Direction::Request);
    assert_eq!((requests.seen, requests.altered, requests.lost), (3, 0, 0));
    let replies = Tally { late: 0, passed: 0, ..at(Direction::Reply) };
    assert_eq!(replies, Tally { seen: 3, lost: 1, ..Tally::default() });
    // On a busy machine the first may be late too.
    assert!(at(Direction::Reply).late >= 1);
    let all = proxy.tally_all(Direction::Request);
    assert!(all.seen >= 4 && all.harmed() < all.seen, "{all:?}");
}

/// A process that takes any free port while a proxy refuses must not get that proxy's port.
#[test]
fn a_port_is_kept_while_it_refuses() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(&server).unwrap();
    proxy.refuse();
    assert!(std::net::TcpStream::connect(proxy.addr()).is_err());
    let taken = std::net::TcpListener::bind(proxy.addr());
    assert_eq!(taken.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    proxy.heal();
    assert!(std::net::TcpStream::connect(proxy.addr()).is_ok());
}

#[test]
fn watcher_sees_passed_and_lost_messages() {
    let (_server, proxy) = start();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    proxy.watch(move |message| {
        if message.message.windows(5).any(|part| part == b"value") {
            noted.lock().expect("nobody panics").push((message.direction, message.is_lost));
        }
    });
    set_with(&proxy, Fault::request("key", Action::Drop)).1.expect_err("no reply");
    let mut connection = connect(&proxy).expect("a connection");
    set(&mut connection, "key").expect("OK");
    let found: String = redis::cmd("GET").arg("key").query(&mut connection).expect("a value");
    assert_eq!(found, "value");
    let seen = seen.lock().expect("nobody panics");
    let (request, reply) = (Direction::Request, Direction::Reply);
    assert_eq!(*seen, [(request, true), (request, false), (reply, false)]);
}
