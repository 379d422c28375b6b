//! Connecting to one address of several.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};

use leasehold_support::Server;

use super::*;
use crate::base::sync;
use crate::wire::endpoint;

const TIME: Duration = Duration::from_millis(200);
/// Longer than any test takes, and no machine pauses for so long.
const LONG: Duration = Duration::from_secs(600);

/// An address that no connection is made to, as behind a firewall that drops packets, and what keeps it so:
/// as many connections as the system takes for a listener that accepts none.
fn dead() -> (SocketAddr, (TcpListener, Vec<TcpStream>)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut taken = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, TIME) {
        taken.push(stream);
    }
    (address, (listener, taken))
}

fn through(addresses: [SocketAddr; 2], url: &str) -> Result<RawConnection, RedisError> {
    let endpoint = endpoint::parse(url).unwrap();
    // Time enough for the greeting on a machine that is busy.
    RawConnection::connect_to_any(&addresses, &endpoint, LONG, &mut Vec::new())
}

#[test]
fn host_whose_first_address_is_dead_is_connected_to() {
    let server = Server::builder().tcp().start().unwrap();
    let (dead, _full) = dead();
    for tail in ["/1", "/1?protocol=resp3"] {
        let url = format!("redis://host:1{tail}");
        // It does not wait for the first one's time to be over.
        let mut line = through([dead, server.addr()], &url).unwrap();
        line.query::<Value>(&redis::cmd("PING")).unwrap();
    }
}

#[test]
fn refusing_servers_error_is_the_one_reported() {
    let server = Server::builder().tcp().start().unwrap();
    let refusing = through([server.addr(), dead().0], "redis://host:1/1000");
    let error = refusing.err().unwrap();
    assert!(error.to_string().contains("out of range"), "{error}");
    // Nobody listens at the second.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = through([gone, gone], "redis://host:1").err().unwrap();
    assert!(error.is_connection_refusal(), "{error}");
}

#[test]
fn addresses_that_are_all_dead_are_named() {
    let (dead, _full) = dead();
    let to = endpoint::parse("redis://host:1").unwrap();
    let mut tried = Vec::new();
    let error = RawConnection::connect_to_any(&[dead, dead], &to, TIME, &mut tried).err().unwrap();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(shown(&to, &tried), "host:1 (127.0.0.1, 127.0.0.1)");
    // One address says no more than the name does.
    let error = RawConnection::connect_to_any(&[dead], &to, TIME, &mut tried).err().unwrap();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(shown(&to, &tried[..1]), "host:1");
}

/// It sends a byte now and then, always sooner than a socket's time-out, until its client hangs up.
#[test]
fn trickling_reply_ends_at_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let trickle = move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(b"$1000000\r\n");
        while stream.write_all(b"x").is_ok() {
            sync::sleep(TIME / 20);
        }
    };
    sync::spawn("trickle", trickle).unwrap();
    let mut line = through([address, address], "redis://host:1").unwrap();
    line.set_read_timeout(Some(TIME)).unwrap();
    assert!(line.recv_reply(TIME * 2).unwrap_err().is_timeout());
}
