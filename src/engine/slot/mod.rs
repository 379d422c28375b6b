//! One name in one process: whose turn it is among its threads.
//!
//! | state | meaning | goes to |
//! | --- | --- | --- |
//! | free | nobody here has it or wants it | trying |
//! | trying | one thread, the delegate, asks Redis or waits to be told | held, free |
//! | held | a thread has the lease | held (passed on), lingering, releasing, free (lost) |
//! | lingering | no thread has the lease, and the process keeps it for a while | held, releasing, trying (for other options) |
//! | releasing | it is given back | free |
//!
//! Where others wait, *free* is left at once: the first of them becomes the delegate. They wait in
//! the order in which they came. A thread that wants only one attempt waits for no holder, but it
//! waits for the delegate's answer, a fresh one, or for a release under way: before those it could
//! not tell "somebody has it" from "Redis is down".
//!
//! A delegate that gives up while others wait leaves its place in the queue to the next (rule 5).
//!
//! Where turns are short, a thread is woken one turn ahead of its own and looks out for it, so that
//! nobody waits for a thread to wake.

mod bid;
mod courtesy;
mod give_back;
mod hand_off;
mod hear;
mod patience;
mod pause;
#[cfg(test)]
mod tests;
mod waiter;
mod watch;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::base::option::LockOptions;
use crate::base::sync::{Arc, AtomicBool, Condvar, Mutex, MutexGuard, Ordering, Weak};
use crate::base::time::Moment;
use crate::engine::context::Context;
use crate::engine::heartbeat::HEARTBEAT;
use crate::engine::lease::LiveLease;
use crate::engine::table::Table;
use crate::protocol::target::Target;
use crate::protocol::wake::GrantMessage;

pub(crate) use bid::Bid;
use courtesy::Courtesy;
pub(crate) use hand_off::PassedOn;
pub(crate) use patience::Patience;
pub(crate) use pause::Paused;
pub(crate) use waiter::Turn;
use waiter::{Waiter, refuse_the_hasty};

/// An answer that takes no longer than this is not missed yet.
pub(crate) const USUAL_ANSWER: Duration = Duration::from_millis(200);
/// Word of a holder that is older than this is no answer to a new question.
const FRESH: Duration = Duration::from_millis(50);

/// A grant that was heard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    pub(crate) grant: GrantMessage,
    pub(crate) received: Moment,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Free,
    Trying {
        told_busy: bool,
    },
    Held(Weak<LiveLease>),
    /// The slot is kept too, until the worker or another has ended that.
    Lingering(Arc<LiveLease>, Arc<Slot>),
    Releasing,
}

impl State {
    /// Whether nobody here has it. A lease that nobody has any longer can not be given back either: a
    /// guard was left to its thread, which was past that.
    fn is_free(&self) -> bool {
        match self {
            State::Free => true,
            State::Held(lease) => lease.strong_count() == 0,
            _ => false,
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    state: State,
    queue: VecDeque<Arc<Waiter>>,
    /// Grows with every cancellation, so that a delegate sees one that came during its pause.
    cancellations: u64,
    /// Whether the delegate wants more than one attempt.
    waits: bool,
    /// When somebody was last known to have the lock: the delegate was told so, or it was a thread
    /// here.
    told_at: Moment,
    /// Since when Redis has been asked and has not answered, by the delegate or a release.
    asked_at: Option<Moment>,
    /// The attempt that tries, holds or lingers.
    number: Option<u64>,
    /// A grant for it that its delegate has not yet seen.
    grant: Option<Heard>,
    /// Whether the delegate should ask again at once.
    nudged: bool,
    /// How many wait in other processes, as far as is known, and whether any was heard of since
    /// the attempt began (rule 18).
    remote: u32,
    wanted: bool,
    /// Whether the attempt was said to be evicted before its delegate knew of the grant.
    evicted: bool,
    /// How often the lease was passed on since it was granted, and when that was.
    passed: u32,
    granted_at: Moment,
    passed_at: Moment,
    linger_until: Moment,
    courtesy: Courtesy,
    /// By when the worker looks at the slot; [`Moment::FAR`] while nobody wants it to.
    look_at: Moment,
}

/// One name, one kind, one client.
pub(crate) struct Slot {
    context: Arc<Context>,
    /// From which it takes itself out.
    table: Arc<Table<Slot>>,
    target: Arc<Target>,
    inner: Mutex<Inner>,
    /// Where the delegate pauses.
    pause: Condvar,
}

impl Slot {
    pub(super) fn new(context: Arc<Context>, table: Arc<Table<Slot>>, target: Arc<Target>) -> Slot {
        let inner = Inner { look_at: Moment::FAR, ..Inner::default() };
        Slot { context, table, target, inner: Mutex::new(inner), pause: Condvar::new() }
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Waits for this thread's turn.
    pub(crate) fn enter(self: &Arc<Slot>, options: &LockOptions, patience: Patience) -> Turn {
        let mut inner = self.inner.lock();
        if self.context.is_shut_down() {
            return Turn::Cancelled;
        }
        if inner.state.is_free() {
            self.unwatch(&mut inner);
            inner.state = State::Trying { told_busy: false };
            inner.waits = patience != Patience::Once;
            return Turn::Delegate(None, inner.cancellations);
        }
        match &inner.state {
            State::Held(_) if patience == Patience::Once => return Turn::Busy,
            State::Trying { told_busy: true } if patience == Patience::Once => {
                if self.context.now().since(inner.told_at) <= FRESH {
                    return Turn::Busy;
                }
                // What was true then is no answer now: the delegate asks for both.
                inner.nudged = true;
                self.pause.notify_one();
            }
            State::Lingering(..) => {
                inner.waits = patience != Patience::Once;
                return self.end_linger_for(inner, options, patience);
            }
            _ => {}
        }
        let waiter = Arc::new(Waiter {
            patience,
            options: *options,
            cancellations: inner.cancellations,
            woken: Condvar::new(),
            turn: Mutex::new(None),
            told: AtomicBool::new(false),
            soon: AtomicBool::new(false),
        });
        inner.queue.push_back(Arc::clone(&waiter));
        if inner.courtesy.is_left_at(self.context.now()) {
            // The delegate may have to end its pause.
            self.pause.notify_one();
        }
        let deadline = patience.end().unwrap_or_else(|| self.context.exchange_deadline());
        self.wait(inner, &waiter, deadline)
    }

    fn wait<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        waiter: &Arc<Waiter>,
        deadline: Moment,
    ) -> Turn {
        let since = self.context.now();
        loop {
            if let Some(turn) = waiter.turn.lock().take() {
                return turn;
            }
            if waiter.soon.swap(false, Ordering::Relaxed) {
                drop(inner);
                waiter.look_out();
                inner = self.inner.lock();
                continue;
            }
            if deadline == Moment::FAR {
                waiter.woken.wait(&mut inner);
                continue;
            }
            if deadline <= self.context.now() {
                inner.queue.retain(|other| !Arc::ptr_eq(other, waiter));
                return self.silence(&inner, since).map_or(Turn::Busy, Turn::Unanswered);
            }
            self.context.doze(deadline, &mut |left| {
                waiter.woken.wait_for(&mut inner, left);
            });
        }
    }

    /// For how long Redis has not answered who waits since then, if that is longer than usual: one
    /// delegate, or several that failed in turn.
    fn silence(&self, inner: &Inner, since: Moment) -> Option<Duration> {
        let now = self.context.now();
        let lately = since.max(now.before(HEARTBEAT * 2));
        let is_told = !matches!(inner.state, State::Trying { told_busy: false })
            || inner.told_at >= lately
            || mutated!("failing-delegates-as-a-holder");
        let from = if is_told { inner.asked_at? } else { since };
        let silence = now.since(from);
        (silence > USUAL_ANSWER).then_some(silence)
    }

    /// The outage has lasted for longer than anybody waits for its end.
    pub(crate) fn give_up(&self, silence: Duration) {
        for waiter in self.inner.lock().queue.drain(..) {
            waiter.tell(Turn::Unanswered(silence));
        }
    }

    /// The delegate begins an attempt: what was heard of an earlier one no longer counts.
    pub(crate) fn begin(&self, number: u64) {
        let mut inner = self.inner.lock();
        inner.number = Some(number);
        inner.grant = None;
        inner.remote = 0;
        inner.wanted = false;
        inner.evicted = false;
    }

    /// The delegate was told that another process has the lock: who wants one attempt only has
    /// had it.
    pub(crate) fn told_busy(&self) {
        let mut inner = self.inner.lock();
        inner.state = State::Trying { told_busy: true };
        let now = self.context.now();
        inner.told_at = now;
        inner.asked_at = None;
        inner.courtesy.end(true, now);
        refuse_the_hasty(&mut inner.queue);
    }

    /// The grant that was heard for the delegate's attempt; if there is none, it asks Redis.
    pub(crate) fn take_grant(&self) -> Option<Heard> {
        let mut inner = self.inner.lock();
        let grant = inner.grant.take();
        if grant.is_none() && inner.asked_at.is_none() {
            inner.asked_at = Some(self.context.now());
        }
        grant
    }

    /// The grant that was heard for the delegate's attempt, where it asks no more.
    pub(crate) fn heard_grant(&self) -> Option<Heard> {
        self.inner.lock().grant.take()
    }

    /// The delegate has the lease now, and the worker renews it.
    pub(crate) fn granted(self: &Arc<Slot>, lease: &Arc<LiveLease>, waiters: u32, now: Moment) {
        let mut inner = self.inner.lock();
        inner.state = State::Held(Arc::downgrade(lease));
        inner.asked_at = None;
        inner.grant = None;
        inner.passed = 0;
        inner.granted_at = now;
        inner.courtesy.end(false, now);
        inner.remote = inner.remote.max(waiters);
        inner.wanted |= waiters > 0;
        refuse_the_hasty(&mut inner.queue);
        let wake = if std::mem::take(&mut inner.evicted) {
            lease.doubt(now);
            self.look_by(&mut inner, now)
        } else {
            self.watch(&mut inner, lease)
        };
        drop(inner);
        self.context.worker.wake_if(wake);
    }

    /// The delegate goes without the lease, or the lease has ended: the next thread has its turn,
    /// with the place in the queue if it can use it. Answers the bid if nobody can.
    pub(crate) fn vacate(&self, bid: Option<Bid>) -> Option<Bid> {
        let mut inner = self.inner.lock();
        self.unwatch(&mut inner);
        inner.asked_at = None;
        inner.courtesy.forget_pause();
        if !matches!(inner.state, State::Trying { .. }) {
            inner.told_at = self.context.now();
        }
        let Some(next) = inner.queue.pop_front() else {
            inner.state = State::Free;
            inner.number = None;
            inner.grant = None;
            return bid;
        };
        inner.state = State::Trying { told_busy: false };
        inner.waits = next.patience != Patience::Once;
        match bid {
            Some(bid) if bid.queued && bid.suits(&next.options, next.patience) => {
                next.tell(Turn::Delegate(Some(bid), next.cancellations));
                None
            }
            bid => {
                next.tell(Turn::Delegate(None, next.cancellations));
                bid
            }
        }
    }

    /// Whether a thread here takes the lock or gives it back at the moment. Once all that is held was
    /// taken away, what still looks held is about to be given back.
    pub(crate) fn is_talking(&self) -> bool {
        let inner = self.inner.lock();
        let talks = matches!(inner.state, State::Trying { .. } | State::Releasing);
        talks || (self.context.is_shut_down() && !inner.state.is_free())
    }

    /// The lease that a thread here has.
    pub(crate) fn lease(&self) -> Option<Arc<LiveLease>> {
        match &self.inner.lock().state {
            State::Held(lease) => lease.upgrade(),
            _ => None,
        }
    }

    /// How many are known to wait, here and in other processes.
    pub(crate) fn waiters(&self) -> usize {
        let inner = self.inner.lock();
        inner.queue.len() + inner.remote as usize
    }

    /// Calls off all waits of this process for this name. Answers how many there were.
    pub(crate) fn cancel(&self) -> usize {
        let mut inner = self.inner.lock();
        let waiting = inner.queue.drain(..).map(|waiter| waiter.tell(Turn::Cancelled)).count();
        inner.cancellations += 1;
        self.pause.notify_all();
        let delegate = matches!(inner.state, State::Trying { .. }) && inner.waits;
        waiting + usize::from(delegate)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({:?})", self.target)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.unwatch(&mut self.inner.lock());
        self.table.forget(self.target.name());
    }
}
