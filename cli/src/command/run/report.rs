//! What the wrapper and the guardian tell each other: messages of a fixed size on a socket.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use super::clock::Moment;
use super::deadline::Reason;
use crate::kind::Kind;

const FRAME: usize = 17;

type Frame = [u8; FRAME];

/// From the wrapper to the guardian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The lock is held with this token: start the job.
    Start { valid_until: Moment, token: u64 },
    /// The lease is valid until then.
    Valid(Moment),
    /// The lock is lost.
    Lost,
    /// Somebody sent the wrapper this signal, which is meant for the job.
    Signal(i32),
    /// The wrapper goes on after a stop.
    Awake,
    /// What the wrapper holds: a lock of this kind, and an owner's value of so many bytes, which follows in parts.
    Claim { kind: Kind, length: u64 },
    /// The next bytes of the owner's value, and zeros after its end.
    Owner([u8; 16]),
    /// The guardian is not needed any more. What is to become of the lock is the wrapper's affair.
    Over,
}

/// From the guardian to the wrapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Started,
    /// The system's error; none where there was too little left of the lease.
    NotStarted(Option<i32>),
    /// A signal stopped the main process.
    Stopped(i32),
    Continued,
    /// The job was told to end.
    Ending(Reason),
    /// The main process has ended.
    Ended(JobEnd),
    /// No process of the job is left.
    Clean,
    /// There are processes of the job that cannot be found, and the guardian has given up.
    Unseen,
    /// How long the killing may take, in nanoseconds, which depends on the number of processes.
    Margin(u64),
}

/// How the main process of a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobEnd {
    Exited(i32),
    Killed(i32),
}

pub(crate) trait Message: Sized {
    fn parts(self) -> (u8, u64, u64);
    fn from_parts(parts: (u8, u64, u64)) -> Option<Self>;
}

impl Message for News {
    fn parts(self) -> (u8, u64, u64) {
        match self {
            News::Start { valid_until, token } => (1, valid_until.as_nanos(), token),
            News::Valid(until) => (2, until.as_nanos(), 0),
            News::Lost => (3, 0, 0),
            News::Signal(number) => (4, unsigned(number), 0),
            News::Awake => (5, 0, 0),
            News::Claim { kind, length } => (6, number_of(kind), length),
            News::Owner(part) => {
                let part = u128::from_le_bytes(part);
                // The lower half, and the upper one.
                (7, part as u64, (part >> 64) as u64)
            }
            News::Over => (8, 0, 0),
        }
    }

    fn from_parts(parts: (u8, u64, u64)) -> Option<News> {
        Some(match parts {
            (1, until, token) => News::Start { valid_until: Moment::from_nanos(until), token },
            (2, until, _) => News::Valid(Moment::from_nanos(until)),
            (3, ..) => News::Lost,
            (4, number, _) => News::Signal(i32::try_from(number).ok()?),
            (5, ..) => News::Awake,
            (6, kind, length) => News::Claim { kind: kind_of(kind)?, length },
            (7, low, high) => News::Owner((u128::from(high) << 64 | u128::from(low)).to_le_bytes()),
            (8, ..) => News::Over,
            _ => return None,
        })
    }
}

impl Message for Report {
    fn parts(self) -> (u8, u64, u64) {
        match self {
            Report::Started => (1, 0, 0),
            Report::NotStarted(error) => (2, error.map_or(0, unsigned), 0),
            Report::Stopped(signal) => (3, unsigned(signal), 0),
            Report::Continued => (4, 0, 0),
            Report::Ending(Reason::Lost) => (5, 0, 0),
            Report::Ending(Reason::Silence) => (5, 1, 0),
            Report::Ending(Reason::Finished) => (5, 2, 0),
            Report::Ended(JobEnd::Exited(code)) => (6, 0, unsigned(code)),
            Report::Ended(JobEnd::Killed(signal)) => (6, 1, unsigned(signal)),
            Report::Clean => (7, 0, 0),
            Report::Unseen => (8, 0, 0),
            Report::Margin(nanos) => (9, nanos, 0),
        }
    }

    fn from_parts(parts: (u8, u64, u64)) -> Option<Report> {
        Some(match parts {
            (1, ..) => Report::Started,
            (2, 0, _) => Report::NotStarted(None),
            (2, error, _) => Report::NotStarted(Some(i32::try_from(error).ok()?)),
            (3, signal, _) => Report::Stopped(i32::try_from(signal).ok()?),
            (4, ..) => Report::Continued,
            (5, 0, _) => Report::Ending(Reason::Lost),
            (5, 1, _) => Report::Ending(Reason::Silence),
            (5, 2, _) => Report::Ending(Reason::Finished),
            (6, 0, code) => Report::Ended(JobEnd::Exited(i32::try_from(code).ok()?)),
            (6, 1, signal) => Report::Ended(JobEnd::Killed(i32::try_from(signal).ok()?)),
            (7, ..) => Report::Clean,
            (8, ..) => Report::Unseen,
            (9, nanos, _) => Report::Margin(nanos),
            _ => return None,
        })
    }
}

fn number_of(kind: Kind) -> u64 {
    match kind {
        Kind::Mutex => 0,
        Kind::Reentrant => 1,
        Kind::Semaphore => 2,
        Kind::ReadWrite => 3,
        Kind::Election => 4,
    }
}

fn kind_of(number: u64) -> Option<Kind> {
    const KINDS: [Kind; 5] =
        [Kind::Mutex, Kind::Reentrant, Kind::Semaphore, Kind::ReadWrite, Kind::Election];
    KINDS.into_iter().find(|kind| number_of(*kind) == number)
}

/// Error numbers, exit codes and signals are never negative.
fn unsigned(number: i32) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn encode(message: impl Message) -> Frame {
    let (kind, first, second) = message.parts();
    let mut frame = [kind; FRAME];
    frame[1..9].copy_from_slice(&first.to_le_bytes());
    frame[9..].copy_from_slice(&second.to_le_bytes());
    frame
}

fn decode<M: Message>(frame: &Frame) -> Option<M> {
    let [kind, numbers @ ..] = frame;
    let (first, second) = numbers.split_at(8);
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
    M::from_parts((*kind, number(first), number(second)))
}

/// One end of the socket. No call of it waits.
#[derive(Debug)]
pub(crate) struct Link {
    stream: UnixStream,
    received: Vec<u8>,
    is_closed: bool,
}

impl Link {
    pub(crate) fn pair() -> std::io::Result<(Link, Link)> {
        let (one, other) = UnixStream::pair()?;
        Ok((Link::new(one)?, Link::new(other)?))
    }

    fn new(stream: UnixStream) -> std::io::Result<Link> {
        stream.set_nonblocking(true)?;
        Ok(Link { stream, received: Vec::new(), is_closed: false })
    }

    /// Another sender on the same end.
    pub(crate) fn sender(&self) -> std::io::Result<Link> {
        Link::new(self.stream.try_clone()?)
    }

    /// Sends it, if there is room. A peer that reads nothing for so long is stopped, and what is then
    /// lost is news of renewals: without them the job ends earlier, never later.
    pub(crate) fn send(&self, message: impl Message) {
        // A frame is written whole or not at all, as it is shorter than the least room that counts as some.
        let _ = (&self.stream).write(&encode(message));
    }

    /// What has come since the last call. A message that cannot be read closes the link.
    pub(crate) fn receive<M: Message>(&mut self) -> Vec<M> {
        let mut bytes = [0; 32 * FRAME];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.is_closed = true,
                Ok(count) => {
                    self.received.extend_from_slice(&bytes[..count]);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.is_closed = true,
            }
            break;
        }
        let (frames, rest) = self.received.as_chunks::<FRAME>();
        let messages: Option<Vec<M>> = frames.iter().map(decode).collect();
        self.received = rest.to_vec();
        messages.unwrap_or_else(|| {
            self.is_closed = true;
            Vec::new()
        })
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Whether the peer is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let (mut guardian, mut wrapper) = Link::pair().expect("a pair of sockets");
        let moment = Moment::from_nanos(u64::MAX - 1);
        let news = [
            News::Start { valid_until: moment, token: u64::MAX },
            News::Valid(moment),
            News::Lost,
            News::Signal(15),
            News::Awake,
            News::Claim { kind: Kind::Mutex, length: 21 },
            News::Claim { kind: Kind::ReadWrite, length: 0 },
            News::Owner(*b"0123456789abcdef"),
            News::Over,
        ];
        news.iter().for_each(|news| wrapper.send(*news));
        assert_eq!(guardian.receive::<News>(), news);

        let reports = [
            Report::Started,
            Report::NotStarted(None),
            Report::NotStarted(Some(2)),
            Report::Stopped(20),
            Report::Continued,
            Report::Ending(Reason::Lost),
            Report::Ending(Reason::Silence),
            Report::Ending(Reason::Finished),
            Report::Ended(JobEnd::Exited(255)),
            Report::Ended(JobEnd::Killed(9)),
            Report::Clean,
            Report::Unseen,
            Report::Margin(7),
        ];
        reports.iter().for_each(|report| guardian.send(*report));
        assert_eq!(wrapper.receive::<Report>(), reports);
        assert!(!wrapper.is_closed());
    }

    #[test]
    fn parts_of_a_message_wait_for_the_rest() {
        let (mut guardian, wrapper) = Link::pair().expect("a pair of sockets");
        let frame = encode(News::Signal(2));
        for (byte, rest) in frame.iter().zip((0..FRAME).rev()) {
            (&wrapper.stream).write_all(&[*byte]).expect("room");
            let expected = if rest == 0 { vec![News::Signal(2)] } else { Vec::new() };
            assert_eq!(guardian.receive::<News>(), expected);
        }
    }

    #[test]
    fn what_a_dead_peer_sent_is_read_before_its_end() {
        let (mut guardian, wrapper) = Link::pair().expect("a pair of sockets");
        wrapper.send(News::Lost);
        drop(wrapper);
        assert_eq!(guardian.receive::<News>(), [News::Lost]);
        assert!(guardian.is_closed());
    }

    #[test]
    fn unreadable_message_closes_the_link() {
        let (mut guardian, wrapper) = Link::pair().expect("a pair of sockets");
        (&wrapper.stream).write_all(&[0xff; FRAME]).expect("room");
        assert_eq!(guardian.receive::<News>(), []);
        assert!(guardian.is_closed());
    }

    #[test]
    fn full_link_drops_messages_whole() {
        let (mut guardian, wrapper) = Link::pair().expect("a pair of sockets");
        for number in 0..100_000 {
            wrapper.send(News::Signal(number));
        }
        let news = guardian.receive::<News>();
        assert!(!guardian.is_closed() && !news.is_empty() && news.len() < 100_000);
        assert_eq!(news[1], News::Signal(1));
    }
}
