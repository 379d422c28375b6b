//! A TCP proxy with scripted faults.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::fault::{Direction, Fault, Injection, Operation, UnknownScript, names};
use crate::journal::{Journal, LATE, Tally, Trace};
use crate::link::{Link, Target};
use crate::server::Server;

/// The longest time until a new child has closed the descriptors of its parent.
const LONGEST_START: Duration = Duration::from_secs(60);

/// A message that passes through a [`Proxy`], or is lost there.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// Which way it goes.
    pub direction: Direction,
    /// Its operation.
    pub operation: Operation,
    /// Its bytes.
    pub message: &'a [u8],
    /// Whether a fault swallows it.
    pub is_lost: bool,
}

type Watch = dyn Fn(Seen<'_>) + Send + Sync;

/// The callback for the messages, once there is one.
#[derive(Default)]
struct Watcher(OnceLock<Box<Watch>>);

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watcher").field(&self.0.get().is_some()).finish()
    }
}

/// A TCP proxy in this process, between a client and a server, with faults on demand.
///
/// It knows where the messages of the Redis protocol begin and end, and which reply answers which
/// request. Dropping it closes all connections and ends all its threads, and panics if a request ran a
/// script that is none of the library's: then a fault of its operation could not happen.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    gate: Arc<Gate>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
    /// Reserves the port while no socket listens on it.
    _reservation: Socket,
}

impl Proxy {
    /// Starts a proxy in front of the server, on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// If no port can be opened.
    pub fn start(server: &Server) -> io::Result<Self> {
        Self::to_socket(server.socket())
    }

    /// Starts a proxy in front of a Unix socket.
    ///
    /// # Errors
    ///
    /// If no port can be opened.
    pub fn to_socket(path: &Path) -> io::Result<Self> {
        Self::to(Target::Unix(path.to_owned()))
    }

    /// Starts a proxy in front of a TCP address.
    ///
    /// # Errors
    ///
    /// If no port can be opened.
    pub fn to_addr(address: SocketAddr) -> io::Result<Self> {
        Self::to(Target::Tcp(address))
    }

    fn to(target: Target) -> io::Result<Self> {
        // Made now: the first message would wait for it.
        names();
        let reservation = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), false)?;
        let address =
            reservation.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let listener = listen(address)?;
        let proxy = Self {
            address,
            gate: Arc::new(Gate::new(target)),
            acceptor: Mutex::new(None),
            _reservation: reservation,
        };
        *proxy.acceptor() = Some(accept(Arc::clone(&proxy.gate), listener));
        Ok(proxy)
    }

    /// Returns `redis://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Returns the address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns how many connections are open through it.
    pub fn connections(&self) -> usize {
        let state = self.gate.state();
        state.links.iter().filter(|link| link.strong_count() > 0).count()
    }

    /// Returns how many connections it has accepted in all.
    pub fn accepted(&self) -> u64 {
        self.gate.accepted.load(Ordering::SeqCst)
    }

    /// Leads new connections to another server, as an address does that moves; open ones stay.
    pub fn lead_to(&self, server: &Server) {
        *self.gate.target() = Target::Unix(server.socket().to_owned());
    }

    /// Adds a fault; where several are due for one message, the first added happens.
    pub fn add(&self, fault: Fault) -> Injection {
        let injection = Injection::new(fault);
        let mut state = self.gate.state();
        state.injections.retain(|injection| !injection.is_removed());
        state.injections.push(injection.clone());
        injection
    }

    /// Calls `watcher` with each message from now on, just before it is passed on.
    ///
    /// # Panics
    ///
    /// If there is a watcher already.
    pub fn watch(&self, watcher: impl Fn(Seen<'_>) + Send + Sync + 'static) {
        let is_first = self.gate.watcher.0.set(Box::new(watcher)).is_ok();
        assert!(is_first, "the proxy has a watcher");
    }

    /// Returns the fates of the messages of an operation since the start.
    pub fn tally(&self, direction: Direction, operation: Operation) -> Tally {
        self.gate.journal.tally(direction, operation)
    }

    /// Returns the fates of all messages of a direction since the start.
    pub fn tally_all(&self, direction: Direction) -> Tally {
        self.gate.journal.sum(direction)
    }

    /// Returns how many messages a black hole or a delay of the whole proxy made late or kept for
    /// good.
    pub fn held_up(&self) -> u64 {
        self.gate.held_up.load(Ordering::SeqCst)
    }

    /// Refuses new connections until [`Proxy::heal`]; open ones stay.
    pub fn refuse(&self) {
        if let Some(acceptor) = self.acceptor().take() {
            self.gate.closed.store(true, Ordering::SeqCst);
            // Wakes the thread out of `accept`.
            let _ = TcpStream::connect(self.address);
            let _ = acceptor.join();
            // A child that another thread starts has the listener too, until it becomes its own
            // program.
            let end = Instant::now() + LONGEST_START;
            while TcpStream::connect(self.address).is_ok() && Instant::now() < end {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Accepts connections but passes nothing on, either way, until [`Proxy::heal`].
    ///
    /// Bytes sent meanwhile are not lost: they pass then.
    pub fn black_hole(&self) {
        self.gate.state().black_hole = true;
    }

    /// Delays all messages, each way, by this time, until [`Proxy::heal`].
    pub fn delay(&self, time: Duration) {
        self.gate.state().delay = time;
    }

    /// Resets all open connections, and returns once the resets have gone out.
    pub fn cut(&self) {
        let cut = |link: Arc<Link>| {
            link.cut();
            Arc::downgrade(&link)
        };
        let links: Vec<_> = self.gate.links().into_iter().map(cut).collect();
        // The reset of a link goes out when its threads end.
        let end = Instant::now() + LONGEST_START;
        while links.iter().any(|link| link.strong_count() > 0) && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Forgets all open connections, as a NAT does with idle ones: no byte passes on them any more,
    /// and neither side is notified. New connections work.
    pub fn forget(&self) {
        self.gate.links().iter().for_each(|link| link.forget());
    }

    /// Accepts and passes on again at full speed; faults that were added stay.
    ///
    /// # Panics
    ///
    /// If the system provides no port.
    pub fn heal(&self) {
        let mut state = self.gate.state();
        (state.black_hole, state.delay) = (false, Duration::ZERO);
        drop(state);
        self.gate.changed.notify_all();
        let mut acceptor = self.acceptor();
        if acceptor.is_none() {
            let listener =
                listen(self.address).unwrap_or_else(|error| panic!("cannot listen again: {error}"));
            self.gate.closed.store(false, Ordering::SeqCst);
            *acceptor = Some(accept(Arc::clone(&self.gate), listener));
        }
    }

    fn acceptor(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.acceptor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.refuse();
        self.gate.stopped.store(true, Ordering::SeqCst);
        self.gate.links().iter().for_each(|link| link.end());
        self.gate.changed.notify_all();
        let threads = std::mem::take(&mut self.gate.state().threads);
        for thread in threads {
            let _ = thread.join();
        }
        if let Some(unknown) = self.gate.state().unknown.take()
            && !thread::panicking()
        {
            panic!("{unknown}");
        }
    }
}

/// The state that all connections of a proxy share.
#[derive(Debug)]
pub(crate) struct Gate {
    target: Mutex<Target>,
    state: Mutex<State>,
    changed: Condvar,
    accepted: AtomicU64,
    closed: AtomicBool,
    stopped: AtomicBool,
    pub(crate) journal: Journal,
    watcher: Watcher,
    held_up: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    black_hole: bool,
    delay: Duration,
    injections: Vec<Injection>,
    links: Vec<Weak<Link>>,
    threads: Vec<JoinHandle<()>>,
    /// A script that is none of the library's.
    unknown: Option<UnknownScript>,
}

impl Gate {
    fn new(target: Target) -> Self {
        Self {
            target: Mutex::new(target),
            state: Mutex::default(),
            changed: Condvar::new(),
            accepted: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            journal: Journal::default(),
            watcher: Watcher::default(),
            held_up: AtomicU64::new(0),
        }
    }

    /// Notes that a request runs a script that is none of the library's.
    pub(crate) fn meets(&self, unknown: UnknownScript) {
        self.state().unknown.get_or_insert(unknown);
    }

    /// Shows a message to the watcher.
    pub(crate) fn show(&self, trace: &Trace, message: &[u8], is_lost: bool) {
        if let Some(watcher) = self.watcher.0.get() {
            let Trace { direction, operation, .. } = *trace;
            watcher(Seen { direction, operation, message, is_lost });
        }
    }

    /// Delays a message for as long as [`Gate::pass`] returns.
    pub(crate) fn pass_message(&self, arrived: Instant, goes_on: impl Fn() -> bool) {
        let state = self.state();
        let waits = state.black_hole || !state.delay.is_zero();
        drop(state);
        self.pass(arrived, &goes_on);
        if waits && (arrived.elapsed() >= LATE || !goes_on()) {
            self.held_up.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Waits while the gate is closed, and then for the rest of the delay.
    fn pass(&self, arrived: Instant, goes_on: impl Fn() -> bool) {
        let mut state = self.state();
        while state.black_hole && self.goes_on(&goes_on) {
            state = self.wait(state, Duration::from_millis(20));
        }
        let delay = state.delay;
        drop(state);
        if !delay.is_zero() {
            self.rest(arrived + delay, goes_on);
        }
    }

    /// Sleeps until then.
    pub(crate) fn rest(&self, until: Instant, goes_on: impl Fn() -> bool) {
        let mut state = self.state();
        while self.goes_on(&goes_on) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.wait(state, left.min(Duration::from_millis(20)));
        }
    }

    /// Returns the fault that this message sets off.
    pub(crate) fn due(
        &self,
        direction: Direction,
        operation: Operation,
        message: &[u8],
    ) -> Option<Injection> {
        let state = self.state();
        let mut due = None;
        // All of them count the message, one of them happens.
        for injection in &state.injections {
            if injection.sees(direction, operation, message) && due.is_none() {
                injection.take();
                due = Some(injection.clone());
            }
        }
        due
    }

    fn links(&self) -> Vec<Arc<Link>> {
        self.state().links.iter().filter_map(Weak::upgrade).collect()
    }

    fn goes_on(&self, link: impl Fn() -> bool) -> bool {
        !self.stopped.load(Ordering::SeqCst) && link()
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        let result = self.changed.wait_timeout(state, time);
        result.unwrap_or_else(PoisonError::into_inner).0
    }

    fn target(&self) -> MutexGuard<'_, Target> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a port, which only another socket of this kind may share; `again`, although connections of
/// its last listener are not forgotten yet.
fn bind(address: SocketAddr, again: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(again)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = bind(address, true)?;
    socket.listen(128)?;
    Ok(socket.into())
}

fn accept(gate: Arc<Gate>, listener: TcpListener) -> JoinHandle<()> {
    thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            if gate.closed.load(Ordering::SeqCst) {
                return;
            }
            gate.accepted.fetch_add(1, Ordering::SeqCst);
            let shared = Arc::clone(&gate);
            let mut state = gate.state();
            state.threads.retain(|thread| !thread.is_finished());
            state.threads.push(thread::spawn(move || serve(&shared, client)));
        }
    })
}

fn serve(gate: &Arc<Gate>, client: TcpStream) {
    let arrived = Instant::now();
    gate.pass_message(arrived, || true);
    let mut trace = Trace::new(Direction::Request, Operation::Connect, arrived, &[]);
    trace.writes(true, 0);
    gate.journal.note(&trace);
    let target = gate.target().clone();
    let Ok(link) = Link::open(Arc::clone(gate), client, &target) else {
        return;
    };
    let link = Arc::new(link);
    let mut state = gate.state();
    if gate.stopped.load(Ordering::SeqCst) {
        return;
    }
    state.links.retain(|link| link.strong_count() > 0);
    state.links.push(Arc::downgrade(&link));
    drop(state);
    link.run();
}
