//! One connection through a proxy: a client's socket, a server's, and a thread for each way.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::fault::{Action, Direction, Injection, Operation};
use crate::frame;
use crate::journal::Trace;
use crate::proxy::Gate;

/// The target of a proxy.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

#[derive(Debug)]
enum Upstream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Upstream {
    fn open(target: &Target) -> io::Result<Self> {
        match target {
            Target::Unix(path) => UnixStream::connect(path).map(Self::Unix),
            Target::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, Duration::from_secs(5))?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
        }
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&*stream).read(buffer),
            Self::Unix(stream) => (&*stream).read(buffer),
        }
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => (&*stream).write_all(bytes),
            Self::Unix(stream) => (&*stream).write_all(bytes),
        }
    }

    fn shutdown(&self, how: Shutdown) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        };
    }
}

/// The planned action on a message, and its fault.
type Planned = (Action, Option<Injection>);

/// The replies that have not come yet.
#[derive(Debug, Default)]
struct Plan {
    sent: u64,
    answered: u64,
    /// The planned actions, by number.
    actions: BTreeMap<u64, Planned>,
    /// The requests without a reply, in order.
    operations: VecDeque<Operation>,
}

#[derive(Debug)]
pub(crate) struct Link {
    gate: Arc<Gate>,
    client: TcpStream,
    server: Upstream,
    dead: AtomicBool,
    forgotten: AtomicBool,
    plan: Mutex<Plan>,
}

impl Link {
    pub(crate) fn open(gate: Arc<Gate>, client: TcpStream, target: &Target) -> io::Result<Self> {
        client.set_nodelay(true)?;
        let server = Upstream::open(target);
        if server.is_err() {
            reset_on_close(&client);
        }
        Ok(Self {
            gate,
            client,
            server: server?,
            dead: AtomicBool::new(false),
            forgotten: AtomicBool::new(false),
            plan: Mutex::default(),
        })
    }

    /// Carries messages both ways until the connection ends.
    pub(crate) fn run(self: Arc<Self>) {
        let replies = Arc::clone(&self);
        let down = thread::spawn(move || {
            replies.pump(Direction::Reply);
            // A server that hung up ends the client's side too; an earlier reset stays one.
            if !replies.is_dead() {
                replies.end();
            }
        });
        self.pump(Direction::Request);
        // The client's end goes on to the server, after what it sent before.
        self.server.shutdown(Shutdown::Write);
        let _ = down.join();
    }

    /// Resets the client's side and closes the server's.
    pub(crate) fn cut(&self) {
        self.dead.store(true, Ordering::SeqCst);
        reset_on_close(&self.client);
        // Wakes the other thread and sends nothing: the reset goes out with the last reference.
        let _ = self.client.shutdown(Shutdown::Read);
        self.server.shutdown(Shutdown::Both);
    }

    /// Swallows whatever comes from now on, either way.
    pub(crate) fn forget(&self) {
        self.forgotten.store(true, Ordering::SeqCst);
    }

    /// Ends both sides in order.
    pub(crate) fn end(&self) {
        self.dead.store(true, Ordering::SeqCst);
        let _ = self.client.shutdown(Shutdown::Both);
        self.server.shutdown(Shutdown::Both);
    }

    fn pump(&self, direction: Direction) {
        let (mut buffer, mut chunk) = (Vec::new(), vec![0; 16 * 1024]);
        let mut swapped = None;
        loop {
            let read = match direction {
                Direction::Request => (&self.client).read(&mut chunk),
                Direction::Reply => self.server.read(&mut chunk),
            };
            let arrived = Instant::now();
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) | Ok(0) => return,
                Ok(length) => buffer.extend_from_slice(&chunk[..length]),
            }
            while let Some(message) = frame::take(&mut buffer) {
                let (operation, planned) = self.expected(direction, &message);
                let mut trace = Trace::new(direction, operation, arrived, &message);
                self.gate.pass_message(arrived, || !self.is_dead());
                if self.is_dead() {
                    self.gate.journal.note(&trace);
                    return;
                }
                if self.forgotten.load(Ordering::SeqCst) {
                    self.gate.journal.note(&trace);
                    continue;
                }
                let late = swapped.take();
                let mut passed = self.handle(&mut trace, planned, message, &mut swapped);
                if swapped.is_none() {
                    self.gate.journal.note(&trace);
                }
                if let Some((message, mut trace)) = late {
                    trace.overtaken();
                    passed = passed.and_then(|()| self.forward(&mut trace, &message, None));
                    self.gate.journal.note(&trace);
                }
                if passed.is_err() {
                    // Writing fails when that side is gone, and then the other goes too.
                    if !self.is_dead() {
                        self.end();
                    }
                    return;
                }
            }
        }
    }

    /// Returns the operation of a message, and the planned action if it is a reply.
    fn expected(&self, direction: Direction, message: &[u8]) -> (Operation, Option<Planned>) {
        match direction {
            Direction::Request => {
                let operation = Operation::of(message).unwrap_or_else(|unknown| {
                    self.gate.meets(unknown);
                    Operation::Other
                });
                (operation, None)
            }
            Direction::Reply if frame::is_push(message) => (Operation::Message, None),
            Direction::Reply => {
                let mut plan = self.plan();
                plan.answered += 1;
                let number = plan.answered;
                let operation = plan.operations.pop_front().unwrap_or(Operation::Other);
                (operation, plan.actions.remove(&number))
            }
        }
    }

    /// Performs the planned action on a message. An error ends the connection.
    fn handle(
        &self,
        trace: &mut Trace,
        planned: Option<Planned>,
        message: Vec<u8>,
        swapped: &mut Option<(Vec<u8>, Trace)>,
    ) -> io::Result<()> {
        let due = planned.or_else(|| {
            let injection = self.gate.due(trace.direction, trace.operation, &message)?;
            Some((injection.action().clone(), Some(injection)))
        });
        let Some((action, injection)) = due else {
            return self.forward(trace, &message, None);
        };
        let request = trace.direction == Direction::Request;
        let later = match &action {
            Action::LoseReply if request => Some(Action::Cut),
            Action::HalfReply if request => Some(Action::CutHalf),
            Action::Garbage(_) if request => Some(action.clone()),
            _ => None,
        };
        if let Some(later) = later {
            return self.forward(trace, &message, Some((later, injection)));
        }
        let gone = || Err(io::ErrorKind::ConnectionReset.into());
        // Counted before the effect is visible: a test that sees the effect finds the count.
        injection.iter().for_each(Injection::fire);
        match action {
            Action::Cut | Action::LoseReply => {
                self.cut();
                gone()
            }
            Action::CutHalf | Action::HalfReply => {
                let half = &message[..message.len().div_ceil(2)];
                self.write(trace, half, false)?;
                if request {
                    self.cut()
                } else {
                    self.end()
                }
                gone()
            }
            Action::Garbage(bytes) => self.write(trace, &bytes, false),
            Action::Hold => {
                if let Some(injection) = &injection {
                    injection.hold(|| !self.is_dead());
                }
                self.forward(trace, &message, None)
            }
            Action::Delay(time) => {
                self.gate.rest(Instant::now() + time, || !self.is_dead());
                self.forward(trace, &message, None)
            }
            Action::Drop => {
                self.gate.show(trace, &message, true);
                Ok(())
            }
            Action::Twice => {
                self.forward(trace, &message, None)?;
                let swallow = request.then_some((Action::Drop, None));
                self.forward(trace, &message, swallow)?;
                Ok(())
            }
            Action::Swap => {
                let trace = Trace::new(trace.direction, trace.operation, Instant::now(), &message);
                *swapped = Some((message, trace));
                Ok(())
            }
        }
    }

    /// Passes a message on, and plans the action on its reply.
    fn forward(&self, trace: &mut Trace, message: &[u8], later: Option<Planned>) -> io::Result<()> {
        if trace.direction == Direction::Request && !frame::is_subscription(message) {
            let mut plan = self.plan();
            plan.sent += 1;
            let number = plan.sent;
            plan.operations.push_back(trace.operation);
            plan.actions.extend(later.map(|later| (number, later)));
        }
        self.gate.show(trace, message, false);
        self.write(trace, message, true)
    }

    fn write(&self, trace: &mut Trace, bytes: &[u8], whole: bool) -> io::Result<()> {
        trace.writes(whole, bytes.len());
        match trace.direction {
            Direction::Request => self.server.write_all(bytes),
            Direction::Reply => (&self.client).write_all(bytes),
        }
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }
}

fn reset_on_close(client: &TcpStream) {
    let _ = SockRef::from(client).set_linger(Some(Duration::ZERO));
}
