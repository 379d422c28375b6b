//! Connects to a host with several addresses, some of which may be dead (RFC 8305).
//!
//! The next address is tried as soon as the one before it has failed, or has been silent for [`DELAY`]; the
//! earlier ones go on. The first connection wins. The addresses of the two families alternate, because one
//! whole family may be unreachable.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::base::time::{BootClock, Clock as _, Moment};
use crate::wire::socket::Socket;

/// How long an address is tried before the next one is tried as well.
const DELAY: Duration = Duration::from_millis(250);

/// Connects to the first of these addresses that accepts. Each may take `most`, with the reads and writes of
/// the log-in.
pub(super) fn connect(addresses: &[SocketAddr], most: Duration) -> io::Result<Socket> {
    let addresses = in_turns(addresses);
    match addresses[..] {
        [] => Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "the host has no address")),
        [only] => Socket::connect(&only.into(), BootClock.now().after(most)),
        // A short time is divided among the addresses, so that the last one gets a part of it.
        _ => race(&addresses, most, DELAY.min(most / u32::try_from(addresses.len()).unwrap_or(1))),
    }
}

/// The addresses of the first one's family and those of the other one, one after the other.
fn in_turns(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let Some(first) = addresses.first() else { return Vec::new() };
    let is_like_first = |address: &&SocketAddr| address.is_ipv6() == first.is_ipv6();
    let (own, other): (Vec<_>, Vec<_>) = addresses.iter().partition(is_like_first);
    let pairs = (0..addresses.len()).flat_map(|number| [own.get(number), other.get(number)]);
    pairs.flatten().map(|&&address| address).collect()
}

#[cfg(unix)]
fn race(addresses: &[SocketAddr], most: Duration, delay: Duration) -> io::Result<Socket> {
    use crate::wire::socket::Attempt;

    let mut others = addresses.iter();
    let mut open: Vec<(Attempt, Moment)> = Vec::new();
    let mut last = io::Error::from(io::ErrorKind::TimedOut);
    // When the next address is tried.
    let mut due = Moment::PAST;
    loop {
        let now = BootClock.now();
        if due <= now
            && let Some(&address) = others.next()
        {
            match Attempt::begin(address) {
                Ok(attempt) => {
                    open.push((attempt, now.after(most)));
                    due = now.after(delay);
                }
                Err(error) => last = error,
            }
            continue;
        }
        let before = open.len();
        open.retain(|(_, deadline)| *deadline > now);
        if open.len() < before {
            last = io::ErrorKind::TimedOut.into();
        }
        let has_others = others.len() > 0;
        let Some(mut until) = open.iter().map(|(_, deadline)| *deadline).min() else {
            if !has_others {
                return Err(last);
            }
            due = now;
            continue;
        };
        if has_others {
            until = until.min(due);
        }
        let attempts: Vec<&Attempt> = open.iter().map(|(attempt, _)| attempt).collect();
        let ended = Attempt::wait(&attempts, until.since(now))?;
        // From the last: the numbers of those before it stay.
        for number in ended.into_iter().rev() {
            let (attempt, deadline) = open.remove(number);
            match attempt.finish(deadline) {
                Ok(socket) => return Ok(socket),
                Err(error) => (last, due) = (error, now),
            }
        }
    }
}

/// Where the system cannot wait for several sockets: one address after the other.
#[cfg(not(unix))]
fn race(addresses: &[SocketAddr], most: Duration, _delay: Duration) -> io::Result<Socket> {
    let mut last = io::Error::from(io::ErrorKind::TimedOut);
    for &address in addresses {
        match Socket::connect(&address.into(), BootClock.now().after(most)) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns_and_the_first_one_begins() {
        let all = ["[::1]:1", "[::1]:2", "[::1]:3", "1.0.0.0:1", "1.0.0.0:2"];
        let all = all.map(|address| address.parse::<SocketAddr>().unwrap());
        let [a, b, c, x, y] = all;
        assert_eq!(in_turns(&all), [a, x, b, y, c]);
        assert_eq!(in_turns(&[x, a, b, y]), [x, a, y, b]);
        assert_eq!(in_turns(&[]), []);
    }
}
