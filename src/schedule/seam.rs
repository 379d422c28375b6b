//! Faults before the server in memory.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::base::id::{Holder, Identity};
use crate::base::sync::{Arc, sleep};
use crate::base::time::Moment;
use crate::protocol::Protocol;
use crate::protocol::answer::{Acquired, Released, Told};
use crate::protocol::errand::{Errand, Task};
use crate::protocol::memory::client::Memory;
use crate::protocol::request::{Attempt, Mode, Return};
use crate::protocol::target::Target;
use crate::protocol::transaction::Applied;
use crate::protocol::wake::{GrantMessage, Listener};
use crate::schedule::world::EXCHANGE;
use crate::wire::Pipeline;
use crate::wire::failure::Failure;

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

/// Before the server of one process.
pub(super) struct Seam {
    memory: Memory,
    stalls: Count,
    late: Count,
    before_answer: Box<dyn Fn() + Send + Sync>,
    lost_answers: Count,
    deaf: Count,
    panics: Count,
    renewals: Count,
}

impl Seam {
    pub(super) fn before(memory: Memory) -> Seam {
        Seam {
            memory,
            stalls: Count::default(),
            late: Count::default(),
            before_answer: Box::new(|| {}),
            lost_answers: Count::default(),
            deaf: Count::default(),
            panics: Count::default(),
            renewals: Count::default(),
        }
    }

    /// So many requests for the lock are not sent before they are overdue.
    pub(super) fn stalls(self, times: usize) -> Seam {
        (0..times).for_each(|_| self.stalls.one_more());
        self
    }

    /// Does this between the server's answer to the first join and its receipt.
    pub(super) fn late_join(self, before_answer: impl Fn() + Send + Sync + 'static) -> Seam {
        self.late.one_more();
        Seam { before_answer: Box::new(before_answer), ..self }
    }

    /// The answers to so many requests of callers are lost.
    pub(super) fn lost_answers(self, times: usize) -> Seam {
        (0..times).for_each(|_| self.lost_answers.one_more());
        self
    }

    /// So many pipelines of the worker do not arrive.
    pub(super) fn deaf(self, times: usize) -> Seam {
        (0..times).for_each(|_| self.deaf.one_more());
        self
    }

    /// So many pipelines of the worker end in a panic.
    pub(super) fn panics(self, times: usize) -> Seam {
        (0..times).for_each(|_| self.panics.one_more());
        self
    }

    /// How many renewals were sent.
    pub(super) fn renewals(&self) -> Count {
        self.renewals.clone()
    }

    /// How many panics are still to come.
    pub(super) fn panics_left(&self) -> Count {
        self.panics.clone()
    }

    fn lose<T>(&self, outcome: Result<T, Failure>) -> Result<T, Failure> {
        if self.lost_answers.take() { Err(Failure::silent()) } else { outcome }
    }
}

impl std::fmt::Debug for Seam {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seam").finish_non_exhaustive()
    }
}

impl Protocol for Seam {
    fn identity(&self) -> &Identity {
        self.memory.identity()
    }

    fn acquire(&self, target: &Target, attempt: &Attempt<'_>, deadline: Moment) -> Acquired {
        if self.stalls.take() {
            sleep(EXCHANGE * 2);
        }
        let acquired = self.memory.acquire(target, attempt, deadline);
        if attempt.mode == Mode::Join && self.late.take() {
            (self.before_answer)();
        }
        Acquired { outcome: self.lose(acquired.outcome), ..acquired }
    }

    fn release(
        &self,
        target: &Target,
        returned: &Return<'_>,
        deadline: Moment,
    ) -> Result<Released, Failure> {
        self.lose(self.memory.release(target, returned, deadline))
    }

    fn extend(
        &self,
        target: &Target,
        owner: &[u8],
        ttl: Duration,
        count: u32,
        deadline: Moment,
    ) -> Result<Told, Failure> {
        self.lose(self.memory.extend(target, owner, ttl, count, deadline))
    }

    fn run(&self, errands: &[Errand<'_>], deadline: Moment) -> Vec<Result<Told, Failure>> {
        if self.panics.take() {
            // Without the hook, which would print the schedule.
            resume_unwind(Box::new("planted"));
        }
        let renewals = errands.iter().filter(|errand| matches!(errand.task, Task::Renew { .. }));
        renewals.for_each(|_| self.renewals.one_more());
        if self.deaf.take() {
            return errands.iter().map(|_| Err(Failure::silent())).collect();
        }
        self.memory.run(errands, deadline)
    }

    fn holder(&self, target: &Target, deadline: Moment) -> Result<Option<Holder>, Failure> {
        self.memory.holder(target, deadline)
    }

    fn force_release(
        &self,
        target: &Target,
        owner: &[u8],
        deadline: Moment,
    ) -> Result<bool, Failure> {
        self.memory.force_release(target, owner, deadline)
    }

    fn apply(
        &self,
        target: &Target,
        owner: &[u8],
        pipeline: &Pipeline,
        deadline: Moment,
    ) -> Result<Applied, Failure> {
        self.memory.apply(target, owner, pipeline, deadline)
    }

    fn request_release(&self, target: &Target, deadline: Moment) -> Result<bool, Failure> {
        self.memory.request_release(target, deadline)
    }

    fn listen(&self) -> Result<Box<dyn Listener>, Failure> {
        self.memory.listen()
    }

    fn listen_to(&self, channel: &[u8], deadline: Moment) -> Result<(), Failure> {
        self.memory.listen_to(channel, deadline)
    }

    fn granted_after(
        &self,
        grant: &GrantMessage,
        received: Moment,
        queued: Option<Moment>,
    ) -> Option<Moment> {
        self.memory.granted_after(grant, received, queued)
    }
}
