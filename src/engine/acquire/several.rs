//! How one thread acquires several locks, in the order of their names.
//!
//! | step | the thread acquires | it has | it waits for |
//! | --- | --- | --- | --- |
//! | enter | the slots that it has entered so far | the locks of earlier calls | nothing: a slot in which it would have to wait ends the step |
//! | try | all that it has entered | the same | one exchange, which is a pipeline of tries |
//! | give back | the first that was refused | besides, what was granted | one exchange, which is a pipeline of releases |
//! | wait | that one | what comes before it | that lock, in its slot or in Redis |
//!
//! A call goes through these steps once. Its caller repeats it with the locks that are left.
//!
//! # Why no threads wait in a circle
//!
//! A thread waits for another one in the last step only. Then all that it has comes before what it waits for: locks,
//! slots in which it acquires, and places in queues. In a circle each thread would wait for what the next one has, so
//! the names would grow all the way round.
//!
//! The tries are no joins, because an attempt in a queue may be granted its lock at any time, also while its thread
//! waits for an earlier one. A lock that the thread had before the call may come later in the order than what it waits
//! for; the user has to know.

use crate::base::error::{Error, Result};
use crate::base::option::LockOptions;
use crate::base::sync::Arc;
use crate::engine::acquire::{
    AcquireLoop, NextAction, Sending, acquire_for, begin_wait, cancelled_error, into_holding,
    last_deadline, remember_blocker,
};
use crate::engine::blocker::Blocker;
use crate::engine::durability::confirm;
use crate::engine::hold::Hold;
use crate::engine::holding::Holding;
use crate::engine::long_wait::LongWait;
use crate::engine::release::{MOST_AT_ONCE, release_all};
use crate::engine::slot::{Admission, Attempt, Slot, WaitLimit};
use crate::protocol::reply::{AcquireOutcome, AcquireReply};
use crate::protocol::request::AcquireMode;

/// One of the locks that a thread acquires together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) slot: &'a Arc<Slot>,
    pub(crate) options: &'a LockOptions,
}

/// What a thread finds in a slot in which it does not wait.
pub(super) enum Entrance<'a> {
    Open(Entered<'a>),
    /// Somebody here has the lock.
    Busy,
    /// It would have to wait.
    Shut,
}

/// A slot that the thread has entered.
pub(super) enum Entered<'a> {
    Acquires(Box<Try<'a>>),
    Holds(Spare),
}

/// The first request of an acquirer.
pub(super) struct Try<'a> {
    acquirer: AcquireLoop<'a>,
    reply: Option<(AcquireOutcome, Sending)>,
}

/// A lock that the caller does not have yet. It is released when it is dropped.
pub(super) struct Spare(Option<Holding>);

impl Spare {
    fn new(slot: &Arc<Slot>, hold: Arc<Hold>) -> Spare {
        Spare(Some(Holding::new(slot, hold)))
    }

    pub(super) fn take(mut self) -> Option<Holding> {
        self.0.take()
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if let Some(holding) = self.0.take() {
            holding.release_in_background();
        }
    }
}

/// Acquires the first of these locks, and those behind it as far as all are free; waits for one lock at most. `held`
/// gets each lock, in their order, also before an error. Returns false if somebody else has one for longer than the
/// caller waits.
///
/// The caller tells of the waits of those that it has then, and not earlier: while this thread acquires one of the
/// locks, an observer that asks for that lock would wait for this thread.
pub(crate) fn acquire_first(
    wanted: &[Wanted<'_>],
    waits: &mut [LongWait],
    wait_limit: WaitLimit,
    held: &mut dyn FnMut(Holding),
) -> Result<bool> {
    let outcome = acquire_inner(wanted, wait_limit, waits, held);
    if !matches!(outcome, Ok(true)) {
        for (wanted, long_wait) in wanted.iter().zip(waits) {
            remember_blocker(wanted.slot, long_wait);
        }
    }
    outcome
}

/// Begins to wait for all of these locks.
pub(crate) fn begin_waits(wanted: &[Wanted<'_>]) -> Vec<LongWait> {
    wanted.iter().map(|wanted| begin_wait(wanted.slot, wanted.options)).collect()
}

fn acquire_inner(
    wanted: &[Wanted<'_>],
    wait_limit: WaitLimit,
    waits: &mut [LongWait],
    held: &mut dyn FnMut(Holding),
) -> Result<bool> {
    let Some(mut entered) = enter(wanted, wait_limit, waits)? else { return Ok(false) };
    // One alone joins the queue at once: no later lock can be granted meanwhile.
    if entered.len() > 1 {
        ask(&mut entered);
    }

    let (mut before, mut after, mut error) = (Vec::new(), Vec::new(), None);
    let mut refused: Option<Box<Try<'_>>> = None;
    for entered in entered {
        // A lock behind one that was refused is given back: `held` takes them in their order.
        let is_late = refused.is_some() || error.is_some();
        let granted = if is_late { &mut after } else { &mut before };
        match entered {
            Entered::Holds(spare) => granted.push(spare),
            Entered::Acquires(mut tried) => {
                if refused.is_some() {
                    error = error.or(tried.cancelled());
                }
                match tried.lease() {
                    Some(Ok(lease)) => granted.push(Spare::new(tried.acquirer.slot, lease)),
                    Some(Err(why)) => error = error.or(Some(why)),
                    None if refused.is_some() => error = error.or(tried.error()),
                    None => refused = Some(tried),
                }
            }
        }
    }
    // Before this thread waits for anything: nobody may have to wait meanwhile for what comes later.
    give_back(after);
    let any = !before.is_empty();
    for holding in before.into_iter().filter_map(Spare::take) {
        held(confirm(holding)?);
    }
    if let Some(error) = error {
        return Err(error);
    }

    let waited = refused.map(|tried| {
        let slot = tried.acquirer.slot;
        into_holding(slot, tried.go_on())
    });
    let last = match (waited, wanted.first(), waits.first_mut()) {
        (Some(last), ..) => last?,
        // It would have waited in the slot of the first one, with nothing in its hands.
        (None, Some(first), Some(wait)) if !any => {
            acquire_for(first.slot, first.options, wait_limit, wait)?
        }
        (None, ..) => return Ok(true),
    };
    Ok(last.map(held).is_some())
}

/// Enters the slots in which it need not wait, up to the first in which it would have to. Returns nothing if
/// somebody here has one of the locks, and the thread does not wait.
fn enter<'a>(
    wanted: &[Wanted<'a>],
    wait_limit: WaitLimit,
    waits: &'a mut [LongWait],
) -> Result<Option<Vec<Entered<'a>>>> {
    let mut entered = Vec::with_capacity(wanted.len());
    for (&wanted, long_wait) in wanted.iter().zip(waits) {
        match enter_one(wanted, wait_limit, long_wait)? {
            Entrance::Open(open) => entered.push(open),
            Entrance::Busy => return Ok(None),
            Entrance::Shut => break,
        }
    }
    Ok(Some(entered))
}

/// Enters a slot, unless the thread would have to wait there.
pub(super) fn enter_one<'a>(
    Wanted { slot, options }: Wanted<'a>,
    wait_limit: WaitLimit,
    long_wait: &'a mut LongWait,
) -> Result<Entrance<'a>> {
    let times = (wait_limit, last_deadline(slot.context(), wait_limit));
    Ok(match slot.try_enter(options, wait_limit) {
        Some(Admission::Acquire { number, .. }) => {
            let attempt = Attempt::new(slot, options, number);
            let acquirer = AcquireLoop::new(slot, options, times, long_wait, attempt);
            Entrance::Open(Entered::Acquires(Box::new(Try { acquirer, reply: None })))
        }
        Some(Admission::Held(hold)) => {
            long_wait.got_lease(&hold);
            Entrance::Open(Entered::Holds(Spare::new(slot, hold)))
        }
        Some(Admission::Busy(blocker)) => {
            long_wait.blocker = blocker;
            Entrance::Busy
        }
        Some(Admission::Cancelled) => {
            return Err(cancelled_error(slot.context()).of(slot.target().name()));
        }
        // The other admissions are for threads that have waited, or may have to.
        None
        | Some(
            Admission::TakeOver(..)
            | Admission::Granted(_)
            | Admission::Crowded(_)
            | Admission::NoReply(_)
            | Admission::NoTurn
            | Admission::Ask(..),
        ) => Entrance::Shut,
    })
}

/// Tries all of them, as many at a time as get their replies well within a time-out. Ends with the first that is
/// refused: what comes behind it would be given back.
fn ask(entered: &mut [Entered<'_>]) {
    for chunk in entered.chunks_mut(MOST_AT_ONCE) {
        ask_chunk(chunk);
        let is_open = |entered: &Entered<'_>| match entered {
            Entered::Acquires(tried) => !tried.is_granted(),
            Entered::Holds(_) => false,
        };
        if chunk.iter().any(is_open) {
            return;
        }
    }
}

/// Tries all of these in one pipeline.
pub(super) fn ask_chunk(entered: &mut [Entered<'_>]) {
    // Twice, for those whose connection had died.
    for _ in 0..2 {
        let mut tries: Vec<_> = entered.iter_mut().filter_map(Entered::open).collect();
        let sendings: Vec<_> = tries.iter_mut().map(|tried| tried.prepare()).collect();
        let Some(first) = sendings.first() else { return };
        let requests = tries.iter().zip(&sendings).map(|(tried, sending)| {
            (&**tried.acquirer.slot.target(), tried.acquirer.request(sending))
        });
        let requests: Vec<_> = requests.collect();
        let context = tries[0].acquirer.context;
        let replies = context.exchange(|it| it.acquire_all(&requests, first.deadline));
        for ((tried, sending), reply) in tries.into_iter().zip(sendings).zip(replies) {
            tried.note(reply, sending);
        }
    }
}

/// Releases locks that were granted behind the first that was refused.
fn give_back(spares: Vec<Spare>) {
    release_unused(spares, "an earlier lock is not free");
}

/// Releases locks under which nothing was done, all at once.
pub(super) fn release_unused(spares: Vec<Spare>, why: &str) {
    let holdings: Vec<_> = spares.into_iter().filter_map(Spare::take).collect();
    // Nothing was done under them, so their callers need not be told.
    for error in release_all(&holdings).into_iter().filter_map(Result::err) {
        log!(warn, "{error}; it was given back because {why}");
    }
}

impl<'a> Entered<'a> {
    /// The outcome of a thread that does not wait: its lock, nothing if somebody else has it, or an error.
    pub(super) fn outcome(self) -> Result<Option<Spare>> {
        let tried = match self {
            Entered::Holds(spare) => return Ok(Some(spare)),
            Entered::Acquires(tried) => tried,
        };
        let slot = tried.acquirer.slot;
        let hold = tried.go_on().map_err(|error| error.of(slot.target().name()))?;
        Ok(hold.map(|hold| Spare::new(slot, hold)))
    }

    /// The request that is to be sent.
    fn open(&mut self) -> Option<&mut Try<'a>> {
        match self {
            Entered::Acquires(tried) if tried.reply.is_none() => Some(tried),
            _ => None,
        }
    }
}

impl Try<'_> {
    /// Begins its request.
    fn prepare(&mut self) -> Sending {
        let it = &mut self.acquirer;
        // Each pipeline has a whole time-out, whatever those before it took.
        it.last_deadline = it.last_deadline.max(last_deadline(it.context, it.wait_limit));
        it.prepare(AcquireMode::Try)
    }

    fn is_granted(&self) -> bool {
        self.reply.as_ref().is_some_and(|(reply, _)| reply.is_granted())
    }

    /// Notes the reply. It stays open if the connection had died and it is to be sent again.
    fn note(&mut self, acquired: AcquireOutcome, sending: Sending) {
        let it = &mut self.acquirer;
        match acquired.outcome {
            // A lone request is repeated too: the one connection of all tries may have died in a restart long ago.
            // The owner's values stay, or the locks might seem to be held, by these tries themselves.
            Err(failure) if it.may_repeat(&failure) => {
                it.recover(failure, sending.deadline, sending.time());
            }
            _ => self.reply = Some((acquired, sending)),
        }
    }

    /// Takes the lease, if it was granted.
    fn lease(&mut self) -> Option<Result<Arc<Hold>>> {
        let (acquired, sending) = self.reply.take_if(|(reply, _)| reply.is_granted())?;
        let next = self.acquirer.judge(acquired, &sending);
        let outcome = self.acquirer.follow(next)?;
        let name = self.acquirer.slot.target().name();
        Some(outcome.map_err(|error| error.of(name))).and_then(Result::transpose)
    }

    /// Notes a refusal after which this thread does not go on. Returns an error if no further request could help.
    fn error(mut self) -> Option<Error> {
        let it = &mut self.acquirer;
        let (acquired, sending) = self.reply.take()?;
        let next = match acquired.outcome {
            Ok(AcquireReply::Busy(busy)) => {
                let blocker = Blocker::remote(busy.holder, it.context.now());
                drop(it.note_held_elsewhere(Some(blocker), None));
                None
            }
            Ok(AcquireReply::Refused { declared, limit }) => Some(it.refuse(declared, limit)),
            Ok(_) => None,
            Err(failure) => Some(it.recover(failure, sending.deadline, sending.time())),
        };
        match next {
            Some(NextAction::Fail(error)) => Some(error.of(it.slot.target().name())),
            _ => None,
        }
    }

    /// The error of a wait that was cancelled. `cancel_waits` has counted this thread, so it must not ask again for
    /// what it gives up now.
    fn cancelled(&self) -> Option<Error> {
        let AcquireLoop { slot, context, .. } = &self.acquirer;
        slot.is_cancelled().then(|| cancelled_error(context).of(slot.target().name()))
    }

    /// Waits for the lock.
    fn go_on(mut self) -> Result<Option<Arc<Hold>>> {
        match self.reply.take() {
            None => self.acquirer.run(true),
            Some((acquired, sending)) => {
                let next = self.acquirer.judge(acquired, &sending);
                let outcome = self.acquirer.follow(next);
                outcome.unwrap_or_else(|| self.acquirer.run(false))
            }
        }
    }
}
