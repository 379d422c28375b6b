//! A socket to a server, over TCP or on this machine.

use std::io::{self, Read, Write};
#[cfg(unix)]
use std::net::SocketAddr;
use std::net::TcpStream;
use std::time::Duration;

use redis::io::tcp::socket2::{self, SockAddr, TcpKeepalive};
#[cfg(unix)]
use rustix::{
    event::{self, PollFd, PollFlags, Timespec},
    io::Errno,
};

use crate::base::time::{BootClock, Clock as _, Moment};

/// How long a connection is idle before the system probes the other end. A NAT or a balancer on the
/// way may silently drop a connection that is idle for some minutes.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// How soon the system repeats a probe without a reply.
const KEEPALIVE_AGAIN: Duration = Duration::from_secs(15);

/// A connected socket of either kind: reads, writes and time-outs are the same for both.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) inner: TcpStream,
    /// The end of all reads and writes together. Without one, the socket's time-outs bound each of
    /// them.
    pub(super) deadline: Option<Moment>,
    /// No read but the first of a reply begins after this.
    latest: Moment,
    has_read: bool,
}

impl Socket {
    /// Connects until `deadline`, which then holds for the reads and writes too.
    pub(super) fn connect(to: &SockAddr, deadline: Moment) -> io::Result<Socket> {
        let left = left(deadline)?;
        let socket = socket2::Socket::new(to.domain(), socket2::Type::STREAM, None)?;
        if to.is_unix() {
            // A `connect` to a Unix socket has no time-out of its own. If the listener's queue is
            // full, it blocks like a write to a full socket does, and obeys the time-out for
            // writes.
            socket.set_write_timeout(Some(left))?;
            socket.connect(to)?;
        } else {
            socket.connect_timeout(to, left)?;
            tune(&socket)?;
        }
        Ok(Socket::connected(socket, deadline))
    }

    fn connected(socket: socket2::Socket, deadline: Moment) -> Socket {
        Socket {
            inner: socket.into(),
            deadline: Some(deadline),
            latest: Moment::FAR,
            has_read: false,
        }
    }

    /// Begins to read a reply, which may take this long.
    pub(super) fn begin_reply(&mut self, within: Duration) {
        // By the real clock and not by the client's, which tests may stop: the system's time-outs
        // run on.
        (self.latest, self.has_read) = (BootClock.now().after(within), false);
    }

    /// Whether a read would not wait: bytes have arrived, or the peer has closed the connection. Waits
    /// for that for no longer than `within`, which may be zero.
    pub(super) fn is_readable(&self, within: Duration) -> bool {
        // Not by the socket's time-out. The system counts that in its ticks, so that a millisecond may
        // become eight.
        #[cfg(unix)]
        {
            use rustix::event::{PollFd, PollFlags, Timespec, poll};
            let mut polled = [PollFd::new(&self.inner, PollFlags::IN)];
            let Ok(within) = Timespec::try_from(within) else { return false };
            // After an error, such as a signal, nothing is known, and nothing was seen.
            poll(&mut polled, Some(&within)).is_ok_and(|ready| ready > 0)
        }
        #[cfg(not(unix))]
        {
            let peek = || {
                self.inner.set_nonblocking(true)?;
                let seen = self.inner.peek(&mut [0]);
                self.inner.set_nonblocking(false)?;
                seen
            };
            let is_quiet = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
            let is_readable = || !peek().as_ref().is_err_and(is_quiet);
            is_readable()
                || !within.is_zero() && {
                    crate::base::sync::sleep(within);
                    is_readable()
                }
        }
    }

    fn by_deadline(&mut self) -> io::Result<&mut TcpStream> {
        // Before each call, because a socket's time-out is for one system call. With 1 s for each,
        // a handshake whose bytes come one by one would never time out.
        if let Some(deadline) = self.deadline {
            // As the system reports a read that times out. `TimedOut` would say that nothing is at
            // this address, and lead to the next one with the same password.
            let left = left(deadline).map_err(|_| io::Error::from(io::ErrorKind::WouldBlock))?;
            self.inner.set_read_timeout(Some(left))?;
            self.inner.set_write_timeout(Some(left))?;
        }
        Ok(&mut self.inner)
    }
}

/// Sets the options of a TCP connection.
fn tune(socket: &socket2::Socket) -> io::Result<()> {
    // Each command is small and waits for its reply, so Nagle's algorithm would only add the server's
    // delayed acknowledgement, some 40 ms.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&keepalive())
}

/// A TCP connection that is being opened at the same time as others.
#[cfg(unix)]
pub(super) struct Attempt(socket2::Socket);

#[cfg(unix)]
impl Attempt {
    pub(super) fn begin(to: SocketAddr) -> io::Result<Attempt> {
        let to = SockAddr::from(to);
        let socket = socket2::Socket::new(to.domain(), socket2::Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&to) {
            Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => {
                Err(error)
            }
            _ => Ok(Attempt(socket)),
        }
    }

    /// Waits until an attempt has ended, for at most this long. Returns the numbers of the attempts that have
    /// ended, in ascending order.
    pub(super) fn wait(attempts: &[&Attempt], most: Duration) -> io::Result<Vec<usize>> {
        let mut all: Vec<PollFd<'_>> =
            attempts.iter().map(|attempt| PollFd::new(&attempt.0, PollFlags::OUT)).collect();
        // A time that is too long for the system is cut: the caller waits again.
        let most =
            Timespec::try_from(most.min(LONGEST_WAIT)).map_err(|_| io::ErrorKind::InvalidInput)?;
        match event::poll(&mut all, Some(&most)) {
            // A signal interrupted the wait.
            Err(Errno::INTR) => return Ok(Vec::new()),
            outcome => outcome?,
        };
        let has_ended =
            |(number, it): (usize, &PollFd<'_>)| (!it.revents().is_empty()).then_some(number);
        Ok(all.iter().enumerate().filter_map(has_ended).collect())
    }

    /// The connection, if it was made. Its reads and writes end at `deadline`.
    pub(super) fn finish(self, deadline: Moment) -> io::Result<Socket> {
        if let Some(error) = self.0.take_error()? {
            return Err(error);
        }
        self.0.set_nonblocking(false)?;
        tune(&self.0)?;
        Ok(Socket::connected(self.0, deadline))
    }
}

/// The longest wait for an attempt.
#[cfg(unix)]
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

fn left(deadline: Moment) -> io::Result<Duration> {
    let left = deadline.since(BootClock.now());
    // Not passed on as it is: `set_read_timeout` rejects zero, which means "no time-out" to the
    // system.
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
            // A server that trickles would keep its reader for good, since each byte ends one wait
            // of the socket. The first read is exempt: a thread that was held up past its deadline
            // must still find a reply that arrived in time.
            if std::mem::replace(&mut self.has_read, true) && self.latest <= BootClock.now() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match self.by_deadline()?.read(into) {
                // A signal handler ran, or the process was stopped and continued. Nothing was read,
                // and the time that is left is computed anew.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Unlike `read` this leaves `Interrupted` to its callers: `write_all` and `tls::send` try
        // again, and the parser, which calls `read`, does not.
        self.by_deadline()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn read_past_the_deadline_fails_as_a_silent_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().into();
        let mut socket = Socket::connect(&address, Moment::FAR).unwrap();
        socket.deadline = Some(Moment::PAST);
        let error = socket.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
