//! A socket to a server, over TCP or on this machine.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use redis::io::tcp::socket2::{self, SockAddr, TcpKeepalive};

use crate::base::time::{BootClock, Clock as _, Moment};

/// How long a connection is idle before the system asks the other end whether it is there. What is on the way,
/// such as a NAT or a balancer, may drop a connection that is idle for some minutes and tell nobody.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// How soon the system asks again when nothing came back.
const KEEPALIVE_AGAIN: Duration = Duration::from_secs(15);

/// A connected socket of either kind: reads, writes and time-outs are the same for both.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) inner: TcpStream,
    /// Until when all reads and writes together may take. Without one, each takes as long as the socket lets it.
    pub(super) deadline: Option<Moment>,
    /// No read begins after this but the first, which finds what is there already. A server that trickles would
    /// keep its reader for as long as it likes, since the socket's time-out is for each read.
    latest: Moment,
    has_read: bool,
}

impl Socket {
    /// Connects until `deadline`, which then holds for the reads and writes too.
    pub(super) fn connect(to: &SockAddr, deadline: Moment) -> io::Result<Socket> {
        let left = left(deadline)?;
        let socket = socket2::Socket::new(to.domain(), socket2::Type::STREAM, None)?;
        if to.is_unix() {
            // A listener that takes no more connections keeps this waiting like a full socket.
            socket.set_write_timeout(Some(left))?;
            socket.connect(to)?;
        } else {
            socket.connect_timeout(to, left)?;
            socket.set_tcp_nodelay(true)?;
            socket.set_tcp_keepalive(&keepalive())?;
        }
        Ok(Socket {
            inner: socket.into(),
            deadline: Some(deadline),
            latest: Moment::FAR,
            has_read: false,
        })
    }

    /// A reply is read from now on, which may take so long.
    pub(super) fn begin_reply(&mut self, within: Duration) {
        (self.latest, self.has_read) = (BootClock.now().after(within), false);
    }

    fn by_deadline(&mut self) -> io::Result<&mut TcpStream> {
        if let Some(deadline) = self.deadline {
            let left = left(deadline)?;
            self.inner.set_read_timeout(Some(left))?;
            self.inner.set_write_timeout(Some(left))?;
        }
        Ok(&mut self.inner)
    }
}

fn left(deadline: Moment) -> io::Result<Duration> {
    let left = deadline.since(BootClock.now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn keepalive() -> TcpKeepalive {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
    #[cfg(any(
        target_os = "android",
        target_os = "freebsd",
        target_os = "ios",
        target_os = "linux",
        target_os = "macos",
        target_os = "netbsd",
        windows
    ))]
    let keepalive = keepalive.with_interval(KEEPALIVE_AGAIN);
    keepalive
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if std::mem::replace(&mut self.has_read, true) && self.latest <= BootClock.now() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match self.by_deadline()?.read(into) {
                // A signal, or a process that was stopped.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.by_deadline()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
