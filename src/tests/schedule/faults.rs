//! Faults before the server in memory.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::base::glob::Glob;
use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::sync::{Arc, sleep};
use crate::base::time::Moment;
use crate::kind::mutex::MutexKind;
use crate::protocol::backend::{Backend, LockServer, RoundTrips, Sending};
use crate::protocol::index::ScanPosition;
use crate::protocol::target::Target;
use crate::protocol::wake_message::{GrantMessage, Publishers};
use crate::topology::memory::backend::MemoryBackend;
use crate::wire::Value;
use crate::wire::connection::{Reply, Session};
use crate::wire::failure::Failure;
use crate::wire::script::Call;
use crate::wire::server_clock::ServerClock;

/// How long an exchange may take.
pub(super) const EXCHANGE: Duration = Duration::from_secs(1);

/// How often something is still to happen, or has happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// One less, if it is not zero yet.
    fn take(&self) -> bool {
        let left = self.get();
        self.0.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }
}

/// What leads from one process to the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Link(Arc<AtomicBool>);

impl Link {
    /// No request arrives from now on.
    pub(super) fn cut(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn restore(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    fn check(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Relaxed) { Err(Failure::silent()) } else { Ok(()) }
    }
}

/// Before the server of one process.
pub(super) struct FaultyBackend {
    memory: MemoryBackend,
    link: Link,
    stalls: Count,
    late: Count,
    before_answer: Box<dyn Fn() + Send + Sync>,
    lost_answers: Count,
    lost_pipelines: Count,
    deaf: Count,
    panics: Count,
    renewals: Count,
}

impl FaultyBackend {
    pub(super) fn before(memory: MemoryBackend) -> FaultyBackend {
        FaultyBackend {
            memory,
            link: Link::default(),
            stalls: Count::default(),
            late: Count::default(),
            before_answer: Box::new(|| {}),
            lost_answers: Count::default(),
            lost_pipelines: Count::default(),
            deaf: Count::default(),
            panics: Count::default(),
            renewals: Count::default(),
        }
    }

    /// So many requests for the lock are not sent before they are overdue.
    pub(super) fn stalls(self, times: usize) -> FaultyBackend {
        (0..times).for_each(|_| self.stalls.one_more());
        self
    }

    /// Does this between the server's answer to the first join and its receipt.
    pub(super) fn late_join(
        self,
        before_answer: impl Fn() + Send + Sync + 'static,
    ) -> FaultyBackend {
        self.late.one_more();
        FaultyBackend { before_answer: Box::new(before_answer), ..self }
    }

    /// The answers to so many requests of callers are lost.
    pub(super) fn lost_answers(self, times: usize) -> FaultyBackend {
        (0..times).for_each(|_| self.lost_answers.one_more());
        self
    }

    /// The answers to so many pipelines of callers are lost.
    pub(super) fn lost_pipelines(self, times: usize) -> FaultyBackend {
        (0..times).for_each(|_| self.lost_pipelines.one_more());
        self
    }

    /// So many pipelines of the worker do not arrive.
    pub(super) fn deaf(self, times: usize) -> FaultyBackend {
        (0..times).for_each(|_| self.deaf.one_more());
        self
    }

    /// So many pipelines end in a panic.
    pub(super) fn panics(self, times: usize) -> FaultyBackend {
        (0..times).for_each(|_| self.panics.one_more());
        self
    }

    /// What leads to the server.
    pub(super) fn link(&self) -> Link {
        self.link.clone()
    }

    /// How many renewals were sent.
    pub(super) fn renewals(&self) -> Count {
        self.renewals.clone()
    }

    /// How many panics are still to come.
    pub(super) fn panics_left(&self) -> Count {
        self.panics.clone()
    }
}

impl std::fmt::Debug for FaultyBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seam").finish_non_exhaustive()
    }
}

/// Whether a word of a call is this one.
fn has(call: &Call, word: &[u8]) -> bool {
    call.words().iter().any(|other| other == word)
}

/// Whether a call renews a lock.
fn renews(call: &Call) -> bool {
    let target = Target::new(&MutexKind, Name::new(b"", b"x").unwrap());
    let renewal = target.renew(b"", Duration::ZERO, 0);
    // The script comes second.
    renewal.words().get(1) == call.words().get(1)
}

impl Backend for FaultyBackend {
    type Server<'a> = FaultyBackend;

    fn identity(&self) -> &Identity {
        self.memory.identity()
    }

    fn with_server<T>(
        &self,
        _target: &Target,
        _trips: RoundTrips,
        _deadline: Moment,
        mut operation: impl FnMut(&FaultyBackend) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        operation(self)
    }

    fn call_many(
        &self,
        keys: &[&[u8]],
        calls: &[Call],
        sending: Sending,
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        if self.panics.take() {
            // Without the hook, which would print the schedule.
            resume_unwind(Box::new("planted"));
        }
        let renewals = calls.iter().filter(|call| renews(call));
        renewals.for_each(|_| self.renewals.one_more());
        if self.link.check().is_err() || self.deaf.take() {
            return calls.iter().map(|_| Err(Failure::silent())).collect();
        }
        let outcomes = self.memory.call_many(keys, calls, sending, deadline);
        if sending == Sending::Once && self.lost_pipelines.take() {
            return calls.iter().map(|_| Err(Failure::silent())).collect();
        }
        outcomes
    }

    fn scan(
        &self,
        position: &mut ScanPosition,
        pattern: &Glob,
        deadline: Moment,
    ) -> Result<Option<Value>, Failure> {
        self.memory.scan(position, pattern, deadline)
    }

    fn discard_connections(&self, key: &[u8]) -> String {
        Backend::discard_connections(&self.memory, key)
    }

    fn unbroken_since(&self, target: &Target) -> Moment {
        self.memory.unbroken_since(target)
    }

    fn publishers(&self) -> Arc<dyn Publishers> {
        self.memory.publishers()
    }

    fn listen_to(&self, channel: &[u8], deadline: Moment) -> Result<(), Failure> {
        self.memory.listen_to(channel, deadline)
    }

    fn granted_after(
        &self,
        target: &Target,
        grant: &GrantMessage,
        received: Moment,
        queued: Option<Moment>,
    ) -> Option<Moment> {
        self.memory.granted_after(target, grant, received, queued)
    }
}

impl LockServer for FaultyBackend {
    fn call(&self, call: &Call, deadline: Moment) -> Result<Reply, Failure> {
        let asks = [&b"try"[..], b"join", b"beat"].iter().any(|mode| has(call, mode));
        if asks && self.stalls.take() {
            sleep(EXCHANGE * 2);
        }
        self.link.check()?;
        let outcome = self.memory.call(call, deadline);
        if has(call, b"join") && self.late.take() {
            (self.before_answer)();
        }
        if self.lost_answers.take() { Err(Failure::silent()) } else { outcome }
    }

    fn call_with(
        &self,
        request: impl FnOnce() -> Call,
        deadline: Moment,
    ) -> Result<Reply, Failure> {
        self.call(&request(), deadline)
    }

    fn session<T>(
        &self,
        deadline: Moment,
        operation: impl FnMut(&mut dyn Session) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.link.check()?;
        self.memory.session(deadline, operation)
    }

    fn connect(&self, deadline: Moment) -> Result<(), Failure> {
        self.memory.connect(deadline)
    }

    fn clock(&self) -> &Arc<ServerClock> {
        self.memory.clock()
    }

    fn reply_by(&self, deadline: Moment) -> Moment {
        self.memory.reply_by(deadline)
    }

    fn discard_connections(&self) -> String {
        LockServer::discard_connections(&self.memory)
    }
}
