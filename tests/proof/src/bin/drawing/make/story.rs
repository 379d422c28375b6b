//! The stories that are drawn: each is played by real clients over a real server.

use std::time::Duration;

use leasehold::{Lease, LockOptions};
use leasehold_support::fault::Operation;
use leasehold_support::{Action, Fault};

use super::Result;
use super::sequence::Sequence;
use super::stage::{Lane, Stage};

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

const SECOND: Duration = Duration::from_secs(1);

/// A thread of a client of its own.
pub(crate) fn client(name: &'static str) -> Lane {
    Lane { name, letter: name, options: Some(LockOptions::new()) }
}

/// The same with a shorter lease, so that what outlives it is swept sooner.
fn brief(name: &'static str) -> Lane {
    let options = LockOptions::new().lease(Lease::renewed(SECOND * 6));
    Lane { options: Some(options), ..client(name) }
}

/// The thread of a client that renews and finishes.
fn worker(name: &'static str, letter: &'static str) -> Lane {
    Lane { name, letter, options: None }
}

/// Three clients, one after the other.
pub(crate) fn hand_over() -> Result<Sequence> {
    let mut stage = Stage::open(vec![client("A"), client("B"), client("C")])?;
    stage.step("Nobody has the lock: A takes it.")?;
    stage.lock(A)?;
    stage.step("B joins the queue, and A hears that somebody waits.")?;
    stage.join(B)?;
    stage.expect_message(A)?;
    stage.step("C stands behind B.")?;
    stage.join(C)?;
    stage.step("A releases. The script makes B the owner and tells B alone.")?;
    stage.release(A)?;
    stage.has(B)?;
    stage.step("B releases, and C is next.")?;
    stage.release(B)?;
    stage.has(C)?;
    stage.step("C releases. Nobody waits, so the lock is deleted.")?;
    stage.release(C)?;
    stage.finish(
        "A lock goes through the queue",
        "Client A takes the lock. B and C join the queue. Each release makes the first waiter the owner and \
         publishes a grant to it. The last release deletes the key.",
    )
}

/// A waiter that pauses is skipped, and has its place again.
pub(crate) fn paused() -> Result<Sequence> {
    let mut stage = Stage::open_within(vec![client("A"), client("B"), client("C")], SECOND * 10)?;
    stage.step("A has the lock, and B waits.")?;
    stage.lock(A)?;
    stage.join(B)?;
    stage.expect_message(A)?;
    stage.step("A second later, B shows that it lives.")?;
    stage.expect(B, Operation::Beat, SECOND)?;
    stage.expect_message(A)?;
    stage.step("B's network stops, and four seconds pass. Then C joins.")?;
    stage.proxy(B)?.black_hole();
    stage.set_clock_ahead(SECOND * 4, C)?;
    stage.join(C)?;
    stage
        .step("A releases. B counts as dead: C has the lock, and B keeps its place, below zero.")?;
    stage.release(A)?;
    stage.has(C)?;
    stage.step("B's network is back. B hears that it should ask, and has its place again.")?;
    stage.proxy(B)?.heal();
    stage.expect(B, Operation::Beat, Duration::ZERO)?;
    stage.expect_message(C)?;
    stage.step("C releases, and B is next.")?;
    stage.release(C)?;
    stage.has(B)?;
    stage.finish(
        "A waiter that pauses is skipped and keeps its place",
        "B waits and sends a heartbeat. Its network stops for four seconds, so the release of A skips it and \
         gives the lock to C. B keeps its place with the sign reversed, asks again when its network is back, \
         and has the lock after C.",
    )
}

/// A waiter that never comes back is taken out.
pub(crate) fn sweep() -> Result<Sequence> {
    let mut stage = Stage::open_within(vec![client("A"), brief("B"), brief("C")], SECOND * 10)?;
    stage.step("A has the lock, and B waits. Then B's network stops for good.")?;
    stage.lock(A)?;
    stage.join(B)?;
    stage.expect_message(A)?;
    stage.proxy(B)?.black_hole();
    stage.step("Four seconds later C stands behind B.")?;
    stage.set_clock_ahead(SECOND * 4, C)?;
    stage.join(C)?;
    stage.step("C's heartbeat tells A, as B does not, and leaves B alone: it may come back.")?;
    stage.expect(C, Operation::Beat, SECOND)?;
    stage.expect_message(A)?;
    stage.step("Six seconds after B began to count as dead, a heartbeat of C takes B out.")?;
    stage.set_clock_ahead(SECOND * 8, C)?;
    stage.expect(C, Operation::Beat, SECOND)?;
    stage.expect_message(A)?;
    stage.finish(
        "A waiter that does not come back is swept out of the queue",
        "B's network stops while it waits. C stands behind it. A heartbeat of C, six seconds after B counted as dead, \
         removes B from the queue and the beats.",
    )
}

/// A grant that is believed, and made whole.
pub(crate) fn grant() -> Result<Sequence> {
    let lanes = vec![client("A"), client("B"), worker("B's worker", "B")];
    let mut stage = Stage::open(lanes)?;
    stage.step("A has the lock.")?;
    stage.lock(A)?;
    stage.step("B joins the queue.")?;
    stage.join(B)?;
    stage.expect_message(A)?;
    stage.step("A releases. The grant says for how long B may believe it: the claim window.")?;
    stage.release(A)?;
    stage.has(B)?;
    stage.leave_to_worker(B);
    stage.step("After a third of the window, the first renewal makes it a whole lease.")?;
    stage.expect(C, Operation::Renew, SECOND)?;
    stage.finish(
        "A published grant is confirmed by the first renewal",
        "B waits in the queue. The release of A publishes a grant with a claim window of three seconds. \
         B's worker renews it a second later to the whole lease of thirty seconds.",
    )
}

/// A grant that is lost on its way.
pub(crate) fn grant_lost() -> Result<Sequence> {
    let mut stage = Stage::open(vec![client("A"), client("B")])?;
    stage.step("A has the lock, and B waits.")?;
    stage.lock(A)?;
    stage.join(B)?;
    stage.expect_message(A)?;
    stage.step("A releases, and the grant does not reach B.")?;
    stage.proxy(B)?.add(Fault::reply("g ", Action::Drop).at(Operation::Message));
    stage.release(A)?;
    stage.expect_message(B)?;
    stage.step(
        "B's next heartbeat has the grant as its reply: the same token, and a whole lease.",
    )?;
    stage.expect(B, Operation::Beat, SECOND)?;
    stage.has(B)?;
    stage.finish(
        "A lost grant is found by the next heartbeat",
        "The message with the grant does not reach B. Redis has B as the owner for the claim window. B's next \
         heartbeat returns the grant, with the same token and the whole lease.",
    )
}

/// A grant that comes before the reply to its join.
pub(crate) fn grant_early() -> Result<Sequence> {
    let mut stage = Stage::open(vec![client("A"), client("B")])?;
    stage.step("A has the lock. B joins, and the reply is held up on its way.")?;
    stage.lock(A)?;
    let held_up = stage.join_unheard(B)?;
    stage.expect_message(A)?;
    stage.step("A releases, and B hears of its grant. It keeps the message.")?;
    stage.release(A)?;
    stage.expect_message(B)?;
    stage
        .step("The reply to the join comes. It says the server's time, so B believes the grant.")?;
    stage.hear_join(B, &held_up)?;
    stage.has(B)?;
    stage.finish(
        "A grant that comes before the reply to its join is kept",
        "The reply to B's join is delayed. Meanwhile A releases and B hears of its grant. B believes the grant \
         once the reply has told it the server's time.",
    )
}

/// Where tokens come from.
pub(crate) fn token() -> Result<Sequence> {
    let mut stage = Stage::open(vec![client("A"), client("B")])?;
    stage.step("The first token is the server's time in microseconds.")?;
    stage.lock(A)?;
    stage.step("So is the next, because the clock has gone on.")?;
    stage.release(A)?;
    stage.lock(B)?;
    stage.step(
        "FLUSHALL loses the fence. The clock has gone on, so the token is greater all the same.",
    )?;
    stage.release(B)?;
    stage.command(&["FLUSHALL"])?;
    stage.lock(A)?;
    stage.step("The server's clock is set back by a minute. The token is the last one plus 1.")?;
    stage.release(A)?;
    stage.set_clock_back(SECOND * 60)?;
    stage.lock(B)?;
    stage.finish(
        "Each token is greater than all before it",
        "Tokens are the server's time. After FLUSHALL the time still makes the next token greater. When the \
         clock was set back, the next token is the last one plus one.",
    )
}

/// Three threads of one process.
pub(crate) fn hand_off() -> Result<Sequence> {
    let thread = |name| Lane { name, ..client("A") };
    let lanes = vec![thread("thread 1"), thread("thread 2"), thread("thread 3")];
    let mut stage = Stage::open(lanes)?;
    stage.step("Thread 1 is the acquirer. It alone asks Redis.")?;
    stage.lock(A)?;
    stage.step("Threads 2 and 3 wait at the slot. Redis does not hear of them.")?;
    stage.call_lock(B)?;
    stage.until_waiters(A, 1)?;
    stage.call_lock(C)?;
    stage.until_waiters(A, 2)?;
    stage
        .step("Thread 1 releases: thread 2 has the lease and the next token, without a command.")?;
    stage.release(A)?;
    stage.has(B)?;
    stage.step("Thread 2 releases, and thread 3 has it.")?;
    stage.release(B)?;
    stage.has(C)?;
    stage.step("Thread 3 releases. Nobody waits: Redis gets the lock back, and the last token.")?;
    stage.release(C)?;
    stage.finish(
        "A lease goes from thread to thread",
        "Three threads of one process. The first takes the lock with one command. Two releases pass the lease on \
         inside the process, each with the next token. The last release gives the lock back and writes the \
         last token.",
    )
}

/// A lease that stays in its process for a while.
pub(crate) fn linger() -> Result<Sequence> {
    let lingers = Lane { options: Some(LockOptions::new().linger(SECOND * 5)), ..client("A") };
    let lanes = vec![lingers, client("B"), worker("A's worker", "A")];
    let mut stage = Stage::open(lanes)?;
    stage.step("A has the lock. Its handle has a linger of five seconds.")?;
    stage.lock(A)?;
    stage.step("A releases. Nothing is sent, and Redis still has A1 as the owner.")?;
    stage.release(A)?;
    stage.step("A locks again: the same lease, the next token, and no command.")?;
    stage.lock(A)?;
    stage.step("A releases once more.")?;
    stage.release(A)?;
    stage.leave_to_worker(A);
    stage.step(
        "B joins. A hears that somebody waits, and its worker gives the lease back at once.",
    )?;
    stage.join(B)?;
    stage.expect_message(A)?;
    stage.has(B)?;
    stage.finish(
        "A lease lingers until another process waits",
        "A releases, and the lease stays in its process without a command. A locks again without a command. \
         When B joins the queue, A's worker releases the lease, and B has the lock.",
    )
}
