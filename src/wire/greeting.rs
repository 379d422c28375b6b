//! What a connection says first: who it is, and which database it is about.
//!
//! redis-rs would say it too. But of what a server answers to `AUTH` it keeps nothing, and of what it
//! answers to `SELECT` not the code: a server that is full, or busy, would be told as one that denies
//! the user.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

use redis::{Cmd, ConnectionAddr, ErrorKind, RedisConnectionInfo, RedisError};

use crate::base::time::Clock;
use crate::wire::endpoint::Endpoint;
use crate::wire::failure::is_max_clients;
use crate::wire::fault::{io_kind, silence};
use crate::wire::line::Line;

/// Makes a connection that is known to its server. The host's addresses are tried in turn, and each of them has
/// this time for all that is to be done; the look-up of a name takes as long as it takes. No time-outs are set
/// on the connection.
///
/// redis-rs would look the name up too, and try its addresses. But it gives them one time for all, so that
/// nothing is left for the others where the first is dead.
pub(crate) fn connect(
    to: &Endpoint,
    clock: &dyn Clock,
    most: Duration,
) -> Result<Line, RedisError> {
    match to.addr() {
        ConnectionAddr::Tcp(host, port) => {
            connect_to_any((host.as_str(), *port).to_socket_addrs()?, to, clock, most)
        }
        _ => greet(to, None, clock, most),
    }
}

/// Connects to the first of these addresses that can be connected to.
fn connect_to_any(
    addresses: impl IntoIterator<Item = SocketAddr>,
    to: &Endpoint,
    clock: &dyn Clock,
    most: Duration,
) -> Result<Line, RedisError> {
    let none = || io::Error::new(io::ErrorKind::AddrNotAvailable, "the host has no address");
    let mut last = None;
    for address in addresses {
        match greet(to, Some(address), clock, most) {
            Err(error) if is_of_the_way(&error) => last = Some(error),
            outcome => return outcome,
        }
    }
    Err(last.unwrap_or_else(|| none().into()))
}

/// Whether an address could not be connected to. A server that was there has the last word, even if it hung up
/// or said nothing: the other addresses are likely its own.
fn is_of_the_way(error: &RedisError) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, InvalidData, UnexpectedEof, WouldBlock,
    };
    let of_server =
        [BrokenPipe, ConnectionAborted, ConnectionReset, InvalidData, UnexpectedEof, WouldBlock];
    io_kind(error).is_some_and(|kind| !of_server.contains(&kind))
}

/// Connects to one address, and says what there is to say.
fn greet(
    to: &Endpoint,
    at: Option<SocketAddr>,
    clock: &dyn Clock,
    most: Duration,
) -> Result<Line, RedisError> {
    let deadline = clock.now().after(most);
    let asked = to.redis_settings();
    let settings = RedisConnectionInfo::default().set_skip_set_lib_name();
    let mut settings = settings.set_protocol(asked.protocol());
    // HELLO says who it is as well, and what is answered to it is kept.
    let greets = asked.protocol().supports_resp3();
    if greets {
        if let Some(user) = asked.username() {
            settings = settings.set_username(user);
        }
        if let Some(password) = asked.password() {
            settings = settings.set_password(password);
        }
    }
    let connected = Line::open(to, at, &settings, most);
    let secret = asked.password().is_some();
    let mut connection = connected.map_err(|e| if secret { without_text(e) } else { e })?;
    let mut say = |command: &Cmd| {
        let left = deadline.since(clock.now());
        if left.is_zero() {
            return Err(silence());
        }
        connection.set_read_timeout(Some(left))?;
        connection.set_write_timeout(Some(left))?;
        command.exec(&mut connection)
    };
    if !greets && let Some(password) = asked.password() {
        let mut auth = redis::cmd("AUTH");
        if let Some(user) = asked.username() {
            auth.arg(user);
        }
        say(auth.arg(password)).map_err(without_text)?;
    }
    if asked.db() != 0 {
        say(redis::cmd("SELECT").arg(asked.db()))?;
    }
    connection.set_read_timeout(None)?;
    connection.set_write_timeout(None)?;
    Ok(connection)
}

/// A server that does not know `AUTH` or `HELLO` repeats what was said to it, the password too. A code
/// tells enough; without one it is a refusal of the user all the same.
fn without_text(error: RedisError) -> RedisError {
    if error.code() == Some("ERR") && !is_max_clients(&error) {
        RedisError::from((ErrorKind::AuthenticationFailed, "AUTH or HELLO was refused"))
    } else {
        error
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use leasehold_support::Server;

    use super::*;
    use crate::base::time::BootClock;
    use crate::wire::endpoint;

    const TIME: Duration = Duration::from_millis(200);

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

    fn through(addresses: [SocketAddr; 2], url: &str) -> Result<Line, RedisError> {
        let endpoint = endpoint::parse(url).unwrap();
        // Time enough for the greeting on a machine that is busy.
        connect_to_any(addresses, &endpoint, &BootClock, TIME * 10)
    }

    #[test]
    fn host_whose_first_address_is_dead_is_connected_to() {
        let server = Server::builder().tcp().start().unwrap();
        let (dead, _full) = dead();
        for tail in ["/1", "/1?protocol=resp3"] {
            let url = format!("redis://host:1{tail}");
            let mut line = through([dead, server.addr()], &url).unwrap();
            redis::cmd("PING").exec(&mut line).unwrap();
        }
    }

    #[test]
    fn server_that_refuses_has_the_last_word() {
        let server = Server::builder().tcp().start().unwrap();
        let refusing = through([server.addr(), dead().0], "redis://host:1/1000");
        let error = refusing.err().unwrap();
        assert!(error.to_string().contains("out of range"), "{error}");
        // Nobody listens at the second.
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = through([gone, gone], "redis://host:1").err().unwrap();
        assert!(error.is_connection_refusal(), "{error}");
    }
}
