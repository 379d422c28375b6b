//! The lease of one owner's value: until when Redis lets it live, its renewals, and its end.
//!
//! It is a leaf. The holds of the value share it, renewals move it, and the worker has it without its slot: a renewal
//! locks no slot. A hold is valid while its lease is, so a renewal need not find the holds.
//!
//! | phase | meaning | goes to |
//! | --- | --- | --- |
//! | live | granted, and valid until a moment that renewals move; a thread holds it, or it lingers | silent, released, lost |
//! | silent | held, over, and not lost yet, as its tail is not over: only a reply that confirms the owner makes it live | live, released, lost |
//! | released | its last thread gave it back, or its linger is over: no reply changes it any more | |
//! | lost | it ended before that, for a cause: no reply changes it any more | |
//!
//! A thread that takes a lease over or lets it linger writes a few atomics, and takes no lock here. Replies, losses and
//! releases take the lock, so that a reply that comes late finds the end. `timer` lists why the worker comes to it.

mod change;
mod count;
mod grant;
mod inner_call;
mod inside;
mod news;
#[cfg(test)]
mod tests;
mod timer;
mod usage;

use std::time::Duration;

use crate::base::loss::LossCause;
use crate::base::option::LockOptions;
use crate::base::share::{Access, Share};
use crate::base::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering};
use crate::base::time::{AtomicMoment, Clock, Moment};
use crate::base::token::FencingToken;
use crate::engine::heartbeat::{DEAD_AFTER, HEARTBEAT};
use crate::engine::owner_value::OwnerValue;
use crate::protocol::reply::Ownership;
use crate::wire::failure::Failure;

pub(crate) use change::Change;
use change::Changes;
use count::ReentryCount;
use grant::margin;
pub(crate) use grant::{Grant, validity};
pub(crate) use inside::Asked;
use inside::Inside;
pub(crate) use news::Count;
use news::News;
use usage::{AtomicUsage, Usage};

/// A lease is renewed after its time to live divided by this.
const RENEWALS_PER_LEASE: u32 = 3;
/// The first renewal of a claim comes this long after its grant. A hold that is shorter pays nothing for it.
const CLAIM_RENEWED_AFTER: Duration = Duration::from_millis(200);
/// The due time is rounded down to a tick of that period divided by this.
const TICKS_PER_PERIOD: u32 = 16;

/// What Redis granted to one owner's value.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) value: Arc<OwnerValue>,
    clock: Arc<dyn Clock>,
    pub(crate) grant: Grant,
    guarded: Mutex<Guarded>,
    /// Until when a holder may rely on it; the past once it is released or lost. Written under `guarded`.
    valid_until: AtomicMoment,
    /// The same, kept when the lease is over.
    leased_until: AtomicMoment,
    /// The latest end that Redis may have for it, after a renewal or an extension that had no reply or a
    /// late one. Its holders must not rely on it. The past if there is none.
    perhaps_until: AtomicMoment,
    /// Redis keeps the lock until then, even if the holds end earlier. The past unless the user asked for it.
    kept_until: AtomicMoment,
    /// When the next renewal is due.
    renew_at: AtomicMoment,
    /// Whether threads hold it or it lingers.
    usage: AtomicUsage,
    /// Whether a waiter of another process was known when its last thread gave it back.
    was_wanted: AtomicBool,
    /// Whether a thread has taken it again since the worker last found it lingering.
    was_retaken: AtomicBool,
    /// When its slot is announced, if it is held then.
    announce_at: AtomicMoment,
    /// When the worker comes to it; [`Moment::FAR`] if it does not.
    due: AtomicMoment,
    /// Whether the first renewal is yet to make it a whole lease (rule 9).
    is_claim: AtomicBool,
    /// From when on its renewals yield to nobody; [`Moment::FAR`] while they do.
    insists_at: AtomicMoment,
    /// Whether the last renewal failed. A lease that runs out then is lost because Redis was unreachable.
    failing: AtomicBool,
    /// When the last request was sent whose reply confirmed the owner.
    confirmed_at: AtomicMoment,
    /// When a message last reported its eviction, the server's clock was found set, or the connections to the server ended;
    /// the past if nothing of that was, or if Redis has confirmed the owner since.
    doubted_at: AtomicMoment,
    /// How many commands of holders are under way or had no reply. With any, the lease must not go to another thread
    /// (rule 17).
    commands: AtomicU32,
    /// How many requests of the worker are under way. They concern the lease and no hold.
    renewals_under_way: AtomicU32,
    /// For how long it lingers after its first hold, whose options likely are those of the next.
    linger: Duration,
    /// How many renewals the present hold allows; `u32::MAX` if there is no limit.
    most_renewals: AtomicU32,
    /// What the calls inside its holds ask for. Written under `guarded`.
    inside: Inside,
    pub(crate) count: ReentryCount,
    /// How a read-write lock is held.
    changes: Changes,
    /// The token of an upgrade; 0 if there was none.
    upgraded: AtomicU64,
    /// The token of its last hold.
    last_token: AtomicU64,
    /// How many wait, by the last reply that its slot has not taken up.
    pub(crate) news: News,
}

#[derive(Debug, Default)]
struct Guarded {
    end: Option<LeaseEnd>,
    /// How many times it was renewed for the present hold.
    renewals: u32,
    /// Whether its silence was told, and for how long its last hold was not confirmed where that has ended and was not told
    /// yet: another thread may have the lease by then.
    is_silence_told: bool,
    returned_after: Option<(Duration, FencingToken)>,
    /// The renewals that have failed since the last that was confirmed. In a box, as most leases never have one, and an
    /// error takes a lot of room.
    failures: Option<Box<Failures>>,
    /// What each call inside its holds asks for.
    asked: Vec<Asked>,
}

/// Renewals that have failed, by what that says about the server.
#[derive(Debug, Default)]
struct Failures {
    all: u32,
    /// How many were refused, and the last refusal.
    refusals: u32,
    refusal: Option<Failure>,
    /// How many had no reply, and why the last of them had none.
    silences: u32,
    silence: Option<Failure>,
}

impl Failures {
    fn note(&mut self, failure: Failure) {
        self.all = self.all.saturating_add(1);
        if failure.is_refusal() {
            self.refusals = self.refusals.saturating_add(1);
            self.refusal = Some(failure);
        // One whose time was over before it was sent says nothing about the server: this process was held up.
        } else if !failure.is_held_up() {
            self.silences = self.silences.saturating_add(1);
            self.silence = Some(failure);
        }
    }

    /// The kind that most of them were of. Not that of the last: one delay does not make an outage of refusals.
    fn cause(&self) -> Option<(LossCause, &Failure)> {
        match self.refusals >= self.silences {
            true => self.refusal.as_ref().map(|it| (LossCause::Refused, it)),
            false => self.silence.as_ref().map(|it| (LossCause::Unreachable, it)),
        }
    }
}

impl Guarded {
    fn failures(&self) -> u32 {
        self.failures.as_ref().map_or(0, |failures| failures.all)
    }
}

#[derive(Debug)]
enum LeaseEnd {
    Released,
    Lost(LossCause),
}

impl Lease {
    /// The lease of an owner's value, whose first hold has these options.
    pub(crate) fn new(
        value: Arc<OwnerValue>,
        clock: Arc<dyn Clock>,
        grant: Grant,
        options: &LockOptions,
    ) -> Arc<Lease> {
        let until = validity(grant.sent, grant.ttl, &value.options);
        let most = options.max_renewals.unwrap_or(u32::MAX);
        let lease = Lease {
            guarded: Mutex::default(),
            valid_until: AtomicMoment::new(until),
            leased_until: AtomicMoment::new(until),
            perhaps_until: AtomicMoment::new(Moment::PAST),
            kept_until: AtomicMoment::new(Moment::PAST),
            renew_at: AtomicMoment::new(Moment::FAR),
            usage: AtomicUsage::new(),
            was_wanted: AtomicBool::new(false),
            was_retaken: AtomicBool::new(false),
            announce_at: AtomicMoment::new(Moment::FAR),
            due: AtomicMoment::new(Moment::FAR),
            is_claim: AtomicBool::new(grant.ttl < options.lease.ttl()),
            insists_at: AtomicMoment::new(Moment::FAR),
            failing: AtomicBool::new(false),
            confirmed_at: AtomicMoment::new(grant.sent),
            doubted_at: AtomicMoment::new(Moment::PAST),
            commands: AtomicU32::new(0),
            renewals_under_way: AtomicU32::new(0),
            most_renewals: AtomicU32::new(most),
            inside: Inside::new(),
            count: ReentryCount::new(),
            linger: options.linger,
            changes: Changes::new(options.share.access()),
            upgraded: AtomicU64::new(0),
            last_token: AtomicU64::new(grant.token),
            news: News::new(),
            value,
            clock,
            grant,
        };
        let renew_at = lease.renewal_after(lease.grant.sent, lease.whole(), 0);
        lease.renew_at.set(match lease.is_claim() && renew_at != Moment::FAR {
            // A claim is short, so that a dead owner keeps nobody waiting. A holder that lives need not bear that for long.
            true => renew_at.min(lease.now().after(CLAIM_RENEWED_AFTER)),
            false => renew_at,
        });
        Arc::new(lease)
    }

    /// The time to live for which it is requested and to which it is renewed.
    pub(crate) fn ttl(&self) -> Duration {
        let own = self.value.options.lease;
        match self.inside.ttl() {
            Some(inside) if own.is_renewed() => inside.max(own.ttl()),
            Some(inside) => inside,
            None => own.ttl(),
        }
    }

    /// Whether it is renewed: for its holds, or for a call inside one.
    pub(crate) fn is_renewed(&self) -> bool {
        self.value.options.lease.is_renewed() || self.inside.ttl().is_some()
    }

    /// How long it was granted for: after a hand-over a claim, which is shorter than the lease until it is renewed (rule
    /// 9).
    fn whole(&self) -> Duration {
        self.grant.ttl.min(self.ttl())
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    // Its holds.

    /// Whether a hold with these options may follow: Redis was asked for the same, the lease is renewed, no command is
    /// under way (rule 17), and it may be shared.
    pub(crate) fn may_go_to(&self, options: &LockOptions, now: Moment) -> bool {
        // Without renewals the next hold would only have what is left of the lease (rule 9).
        self.value.options.requests_same_as(options) && options.is_renewed() && self.may_last(now)
    }

    /// Whether it may be passed on or linger.
    pub(crate) fn may_last(&self, now: Moment) -> bool {
        // A command of this hold that runs later would run for the next holder: its transaction would
        // apply, with another thread's lease to guard it. A renewal serves any holder of the lease.
        let is_free = self.commands.load(Ordering::SeqCst) == 0;
        is_free && self.may_be_shared(now)
    }

    /// Whether another hold may be beside those that it has, or follow: it is renewed, its weight was not changed, nothing is
    /// unsettled, no eviction was reported, Redis is not to keep the lock from everybody, and the end is not near. What is
    /// under way for one reader may run beside another.
    pub(crate) fn may_be_shared(&self, now: Moment) -> bool {
        self.value.options.lease.is_renewed()
            // The next hold would have the access with which this one began.
            && self.changes.last().number == 0
            && !self.failing.load(Ordering::SeqCst)
            && !self.is_doubted()
            && !self.is_kept(now)
            // Until then a request of this attempt may run, and acquire the lock again after a loss. The
            // next hold has the same owner's value, and would take that key for its own.
            && self.value.settled() <= now
            // A renewal is due when two thirds are left. With less than a quarter left the renewals do
            // not get through, and the next hold would begin just before its loss.
            && self.valid_until().since(now) > self.whole() / (RENEWALS_PER_LEASE + 1)
    }

    /// A thread holds it from now on, alone, with these options and until this limit at most.
    pub(crate) fn begin_hold(&self, options: &LockOptions, limit: Moment, now: Moment) {
        // A guard may outlive its hold, as that was released by key.
        self.forget_asked();
        let most = options.max_renewals.unwrap_or(u32::MAX);
        if most != u32::MAX || self.most_renewals.load(Ordering::SeqCst) != u32::MAX {
            // Each hold counts its renewals for itself.
            let mut guarded = self.guarded.lock();
            guarded.renewals = 0;
            self.most_renewals.store(most, Ordering::SeqCst);
            if self.renew_at() == Moment::FAR {
                // The hold before had used them up. This one has its own, the first of them after a third of what is
                // left.
                self.renew_at.set(now.after(self.leased_until().since(now) / RENEWALS_PER_LEASE));
            }
        }
        self.count.begin();
        let lingered = !self.is_held();
        self.usage.set(Usage::Held { until: limit });
        if lingered {
            self.was_retaken.store(true, Ordering::SeqCst);
        }
    }

    /// Another thread holds it too, until this limit at most.
    pub(crate) fn join(&self, limit: Moment) {
        self.usage.join(limit);
    }

    /// One of its holds is gone. `max_hold` ends the first of the others at `limit`.
    pub(crate) fn leave(&self, limit: Moment) {
        self.usage.set(Usage::Held { until: limit });
    }

    /// No thread holds it any more, and it lingers.
    pub(crate) fn linger(&self, until: Moment) {
        self.usage.set(Usage::Lingering { until });
    }

    /// Whether its linger is over.
    pub(crate) fn has_lingered(&self, now: Moment) -> bool {
        matches!(self.usage.get(), Usage::Lingering { until } if until <= now)
    }

    /// Waits for the token of the next hold if the server's clock is about to reach it. No lock may be held.
    pub(crate) fn wait_for_next_token(&self) {
        self.grant.wait_for_token_after(self.last_token.load(Ordering::SeqCst), &*self.clock);
    }

    /// The token of the next hold; `None` if the server's clock has not surely reached it (rule 19).
    pub(crate) fn next_token(&self) -> Option<FencingToken> {
        let last = self.last_token.load(Ordering::SeqCst);
        let next = self.grant.token_after(last, self.now())?;
        self.last_token.store(next, Ordering::SeqCst);
        Some(FencingToken::new(next))
    }

    /// The token of its last hold.
    pub(crate) fn token(&self) -> FencingToken {
        FencingToken::new(self.last_token.load(Ordering::SeqCst))
    }

    /// The last token used, if that is not the one that Redis minted.
    pub(crate) fn unstored_token(&self) -> Option<u64> {
        let last = self.last_token.load(Ordering::SeqCst);
        // Redis has stored what it minted. Sent along, it would cost every release the longer way of the
        // script.
        (last != self.grant.token).then_some(last)
    }

    // How a read-write lock is held.

    /// The access with which a read-write lock is held; `None` for other kinds.
    pub(crate) fn access(&self) -> Option<Access> {
        self.value.options.share.access()?;
        Some(self.changes.last().access)
    }

    /// How much of the lock it is.
    pub(crate) fn share(&self) -> Share {
        self.access().map_or(self.value.options.share, Share::Access)
    }

    /// Begins a change by which it is held with this access, from now on. Returns its number (rules 35, 36).
    pub(crate) fn begin_change(&self, access: Access) -> u64 {
        self.changes.begin(access)
    }

    /// The change of this number had no reply: the worker sends it until it has one.
    pub(crate) fn leave_change(&self, number: u64) {
        self.changes.update(number, self.changes.last().access, true);
    }

    /// The change that the worker is to send, if there is one.
    pub(crate) fn open_change(&self) -> Option<Change> {
        Some(self.changes.last()).filter(|change| change.is_open)
    }

    /// Redis has replied to a change.
    pub(crate) fn change_settled(&self, change: Change) {
        self.changes.update(change.number, change.access, false);
    }

    /// The change of this number has made its holder the writer, with this token.
    pub(crate) fn upgraded(&self, number: u64, token: u64) {
        // The token is written first, so that a thread that finds the writer finds its token too.
        self.upgraded.store(token, Ordering::SeqCst);
        self.changes.update(number, Access::Write, false);
    }

    /// The token of an upgrade, which replaces that of the hold by a greater one (rule 32).
    pub(crate) fn upgraded_token(&self) -> Option<FencingToken> {
        let token = self.upgraded.load(Ordering::SeqCst);
        (token != 0).then(|| FencingToken::new(token))
    }

    // Its times.

    /// The end of what Redis granted, whatever happened since.
    pub(crate) fn leased_until(&self) -> Moment {
        self.leased_until.get()
    }

    /// Until when its holders may rely on it; the past once it is released or lost.
    pub(crate) fn valid_until(&self) -> Moment {
        self.valid_until.get()
    }

    /// When it is lost if no reply confirms it: at the end of its validity, or of its tail (rule 50). The past once it is
    /// over.
    pub(crate) fn lost_at(&self) -> Moment {
        self.lost_after(self.valid_until())
    }

    /// The same for this end of its validity.
    fn lost_after(&self, until: Moment) -> Moment {
        let options = &self.value.options;
        let tail = options.lease.tail();
        if tail.is_zero() || until == Moment::PAST || !self.may_come_back(until) {
            return until;
        }
        until.after(margin(options.lease.ttl(), options) + tail)
    }

    /// Whether a reply may make it valid once more after this end of its validity.
    fn may_come_back(&self, valid_until: Moment) -> bool {
        // A request of the attempt that runs later could make it the owner again, after another's hold (rule 30). One that
        // lingers ends (rule 51), and one without a renewal left as well.
        self.value.settled() <= valid_until && self.is_held() && self.renew_at() != Moment::FAR
    }

    /// Whether its validity is over, and a reply may make it valid once more.
    pub(crate) fn is_silent(&self, now: Moment) -> bool {
        self.valid_until() <= now && now < self.lost_at()
    }

    /// Whether it has become silent or has come back, once for each time, and the token of the hold that it was about.
    pub(crate) fn next_silence(&self, now: Moment) -> Option<(Silence, FencingToken)> {
        if self.value.options.lease.tail().is_zero() {
            return None;
        }
        let mut guarded = self.guarded.lock();
        if let Some((after, token)) = guarded.returned_after.take() {
            return Some((Silence::Over(after), token));
        }
        if guarded.is_silence_told || !self.is_silent(now) {
            return None;
        }
        guarded.is_silence_told = true;
        Some((Silence::Begun(self.unheard(now)), self.token()))
    }

    /// Whether it was released or lost.
    pub(crate) fn is_over(&self) -> bool {
        self.valid_until() == Moment::PAST
    }

    /// The latest end that Redis may have for it, on which its holders must not rely; the past if there is none.
    pub(crate) fn perhaps_until(&self) -> Moment {
        self.perhaps_until.get()
    }

    /// Notes that Redis may keep it until that moment, on which its holders must not rely.
    pub(crate) fn may_last_until(&self, moment: Moment) {
        self.perhaps_until.raise(moment);
    }

    /// Notes that Redis must keep the lock until this moment.
    pub(crate) fn keep_until(&self, moment: Moment) {
        self.kept_until.raise(moment);
    }

    /// Until when Redis keeps the lock even if the holds end earlier; the past if the user did not ask for it.
    pub(crate) fn kept_until(&self) -> Moment {
        self.kept_until.get()
    }

    /// Whether the lock must not be released yet.
    pub(crate) fn is_kept(&self, now: Moment) -> bool {
        now < self.kept_until()
    }

    /// Whether the first renewal is yet to make it a whole lease.
    pub(crate) fn is_claim(&self) -> bool {
        self.is_claim.load(Ordering::SeqCst)
    }

    // Its renewals.

    /// Counts a command of a holder that is under way, until the returned guard is dropped.
    pub(crate) fn command(self: &Arc<Lease>) -> CommandGuard {
        self.commands.fetch_add(1, Ordering::SeqCst);
        CommandGuard(Arc::clone(self))
    }

    /// The same for a request of the worker.
    pub(crate) fn renewal(self: &Arc<Lease>) -> RenewalGuard {
        self.renewals_under_way.fetch_add(1, Ordering::SeqCst);
        RenewalGuard(Arc::clone(self))
    }

    /// Whether a command or a renewal is under way, or a command had no reply.
    pub(crate) fn is_under_way(&self) -> bool {
        self.commands.load(Ordering::SeqCst) != 0
            || self.renewals_under_way.load(Ordering::SeqCst) != 0
    }

    /// When a lease that was last requested at `sent` for `ttl` is due for a renewal, after this many renewals.
    fn renewal_after(&self, sent: Moment, ttl: Duration, renewals: u32) -> Moment {
        if !self.is_renewed() || self.are_used_up(renewals) {
            return Moment::FAR;
        }
        let period = ttl / RENEWALS_PER_LEASE;
        // Rounded so that leases that were acquired about the same time are renewed in one pipeline;
        // down, so that the renewal never comes later than it should.
        sent.after(period).rounded_down(period / TICKS_PER_PERIOD)
    }

    /// Whether its holds count their renewals.
    pub(crate) fn counts_renewals(&self) -> bool {
        let own = self.most_renewals.load(Ordering::SeqCst);
        own.min(self.inside.most_renewals()) != u32::MAX
    }

    /// Whether `max_renewals` allows no further renewal.
    fn are_used_up(&self, renewals: u32) -> bool {
        let most = self.most_renewals.load(Ordering::SeqCst).min(self.inside.most_renewals());
        self.is_renewed() && most != u32::MAX && renewals >= most
    }

    /// Notes that it lasts in Redis for `ttl` from `sent` on. Never shortens it (rule 14), and changes
    /// nothing if it is over (rule 30).
    pub(crate) fn lengthen(&self, sent: Moment, ttl: Duration) {
        self.lengthen_inner(&mut self.guarded.lock(), sent, ttl);
    }

    /// Notes a renewal to this time to live that was sent at `sent` and confirmed. Returns how many had failed before.
    pub(crate) fn renewed(&self, sent: Moment, ttl: Duration) -> u32 {
        let mut guarded = self.guarded.lock();
        let failures = guarded.failures();
        // Not to the time to live of now: a call inside may have asked for a longer one since the sending.
        if !self.lengthen_inner(&mut guarded, sent, ttl) {
            return 0;
        }
        guarded.renewals = guarded.renewals.saturating_add(1);
        self.renew_at.set(self.renewal_after(sent, ttl.min(self.ttl()), guarded.renewals));
        failures
    }

    /// Notes how many wait, if the reply to a request that was sent at `sent` says.
    pub(crate) fn counted(&self, sent: Moment, waiters: Option<u32>) {
        // Only the door of readers needs to know that nobody waits.
        let is_shared = self.access() == Some(Access::Read);
        if let Some(waiters) = waiters.filter(|&waiters| is_shared || waiters > 0) {
            self.news.post(Count { sent, received: self.now(), waiters });
        }
    }

    /// Lengthens it if it is not over. Returns whether it did.
    fn lengthen_inner(&self, guarded: &mut Guarded, sent: Moment, ttl: Duration) -> bool {
        let now = self.clock.now();
        if guarded.end.is_some() || self.lost_at() <= now {
            // The reply is right, and comes too late. Between the end of the validity and now another may
            // have had the lock, and a late request of this attempt may have acquired it again: to go on
            // would be to hold it twice (rule 30). Redis counts from a moment before now, so it keeps the
            // lease until then at most.
            self.may_last_until(now.after(self.value.options.lease.key_ttl(ttl)));
            return false;
        }
        // One that was silent comes back: a reply that finds it the owner shows that nobody else was since, because no
        // request of its attempt is left that could have taken the lock again (rule 50).
        //
        // Replies may be noted out of order, and an extension may be longer than a renewal that is sent
        // after it.
        let leased = validity(sent, ttl, &self.value.options).max(self.leased_until());
        self.leased_until.set(leased);
        self.valid_until.set(leased);
        if guarded.is_silence_told && now < leased {
            guarded.is_silence_told = false;
            guarded.returned_after = Some((self.unheard(now), self.token()));
        }
        self.insists_at.set(Moment::FAR);
        self.confirmed_at.raise(sent);
        self.failing.store(false, Ordering::SeqCst);
        guarded.failures = None;
        if ttl >= self.ttl() {
            self.is_claim.store(false, Ordering::SeqCst);
        }
        true
    }

    /// The tail in which its next renewal yields to those who wait for the lock; zero if it does not yield.
    pub(crate) fn yields_for(&self) -> Duration {
        match self.now() < self.insists_at.get() {
            true => self.value.options.lease.tail(),
            false => Duration::ZERO,
        }
    }

    /// A renewal has left it to those who wait, which is no failure. They have had the time to ask when they would count as
    /// dead: then it insists, because nobody else may be left (rule 50).
    pub(crate) fn yielded(&self, now: Moment) {
        // It may be over there before it is here, as after a step of the server's clock. No other thread may get it then.
        self.failing.store(true, Ordering::SeqCst);
        if self.insists_at.get() == Moment::FAR {
            self.insists_at.set(now.after(DEAD_AFTER));
        }
    }

    /// Notes that a renewal failed. Returns how many have since the last that was confirmed.
    pub(crate) fn renewal_failed(&self, failure: Failure) -> u32 {
        let mut guarded = self.guarded.lock();
        // It was renewed for a call inside alone, which is over.
        if !self.is_renewed() {
            return 0;
        }
        self.failing.store(true, Ordering::SeqCst);
        let failures = guarded.failures.get_or_insert_default();
        failures.note(failure);
        failures.all
    }

    /// How many renewals have failed since the last that was confirmed.
    pub(crate) fn failures(&self) -> u32 {
        self.guarded.lock().failures()
    }

    /// The failure that shows why it was not renewed.
    pub(crate) fn failure(&self) -> Option<Failure> {
        let guarded = self.guarded.lock();
        guarded.failures.as_ref()?.cause().map(|(_, failure)| failure.clone())
    }

    /// Notes that a message reported its eviction, or that the server's clock was set. Redis must be asked.
    pub(crate) fn doubt(&self, now: Moment) {
        self.doubted_at.raise(now);
    }

    /// The same if Redis has not confirmed the owner in reply to a request that was sent since this moment. Returns whether
    /// it has not.
    pub(crate) fn doubt_unless_confirmed(&self, since: Moment) -> bool {
        let is_unconfirmed = self.confirmed_at.get() < since;
        if is_unconfirmed {
            self.doubt(since);
        }
        is_unconfirmed
    }

    /// Whether Redis must be asked who has the lock.
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted_at.get() != Moment::PAST
    }

    /// For how long that has been so.
    pub(crate) fn doubted_for(&self, now: Moment) -> Duration {
        now.since(self.doubted_at.get())
    }

    /// Whether Redis has confirmed the owner lately, so that a thread may take the lease again without asking.
    pub(crate) fn is_fresh(&self, now: Moment) -> bool {
        now.since(self.confirmed_at.get()) < HEARTBEAT
    }

    /// Notes that Redis confirmed the owner in reply to a request that was sent at `sent`.
    pub(crate) fn confirmed(&self, sent: Moment) {
        self.confirmed_at.raise(sent);
        // A reply to a request that was sent before the message came says nothing about what the message
        // reports.
        let doubted_at = self.doubted_at.get();
        if doubted_at <= sent {
            // A message that comes between the two lines is a new doubt, and stays.
            self.doubted_at.replace(doubted_at, Moment::PAST);
        }
    }

    // Its end.

    /// Ends it as lost if its time is over. Returns the cause if it is lost.
    pub(crate) fn expire(&self, now: Moment) -> Option<LossCause> {
        let mut guarded = self.guarded.lock();
        if guarded.end.is_none() && self.lost_at() <= now {
            let cause = self.natural_cause(&guarded);
            self.end(&mut guarded, LeaseEnd::Lost(cause));
        }
        match guarded.end {
            Some(LeaseEnd::Lost(cause)) => Some(cause),
            _ => None,
        }
    }

    /// Ends it as lost, unless it is over. Returns whether that ended it: then the caller ends its holds.
    pub(crate) fn lose(&self, cause: LossCause, now: Moment) -> bool {
        let mut guarded = self.guarded.lock();
        if guarded.end.is_some() {
            return false;
        }
        let cause = self.cause_by(cause, now, &guarded);
        self.end(&mut guarded, LeaseEnd::Lost(cause));
        true
    }

    /// The cause of a loss that a reply has shown to a request about it, where it may have run out before.
    pub(crate) fn cause_of(&self, cause: LossCause, now: Moment) -> LossCause {
        let guarded = self.guarded.lock();
        match guarded.end {
            // The worker has had the same reply before.
            Some(LeaseEnd::Lost(cause)) => cause,
            _ => self.cause_by(cause, now, &guarded),
        }
    }

    fn cause_by(&self, cause: LossCause, now: Moment, guarded: &Guarded) -> LossCause {
        // Its own end: a release ends the validity before it is sent.
        let until = self.leased_until();
        let lost_at = self.lost_after(until);
        // A lease that ran out is gone or taken in Redis too, as a consequence. The user needs the cause. But where it could
        // have come back, that another took it is the cause (rule 51).
        match cause {
            _ if now < until => cause,
            LossCause::Taken if until < lost_at => cause,
            // Its key outlives it by its tail.
            LossCause::Deleted if now < lost_at => cause,
            _ => self.natural_cause(guarded),
        }
    }

    /// The ownership by a reply that may tell the last token of the lock. Where the key is gone, another has had it since
    /// if that token is none of this lease.
    pub(crate) fn ownership(&self, ownership: Ownership, fence: Option<u64>) -> Ownership {
        match ownership {
            Ownership::Gone if fence > Some(self.token().get()) => Ownership::Taken,
            ownership => ownership,
        }
    }

    /// For how long Redis has not confirmed its owner.
    pub(crate) fn unheard(&self, now: Moment) -> Duration {
        now.since(self.confirmed_at.get())
    }

    /// Ends it because nobody needs it any more, unless it is over. The caller removes it from Redis.
    pub(crate) fn release(&self) {
        let mut guarded = self.guarded.lock();
        if guarded.end.is_none() {
            self.end(&mut guarded, LeaseEnd::Released);
        }
    }

    /// Its last thread gives it back, and a waiter of another process is known: the release is likely to be a hand-over.
    pub(crate) fn note_wanted(&self) {
        self.was_wanted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn was_wanted(&self) -> bool {
        self.was_wanted.load(Ordering::Relaxed)
    }

    fn end(&self, guarded: &mut Guarded, end: LeaseEnd) {
        // The validity ends first: once anybody can learn of the end, no hold is valid.
        self.valid_until.set(Moment::PAST);
        guarded.end = Some(end);
    }

    /// The cause of a loss of a lease that ran out.
    fn natural_cause(&self, guarded: &Guarded) -> LossCause {
        if let Some((cause, _)) = guarded.failures.as_ref().and_then(|it| it.cause()) {
            cause
        } else if self.are_used_up(guarded.renewals) {
            LossCause::RenewalsUsedUp
        } else {
            LossCause::Expired
        }
    }
}

/// What has become of a lease that has a tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// It is over, and may come back. Redis has not confirmed its owner for so long.
    Begun(Duration),
    /// It has come back. Redis had not confirmed its owner for so long.
    Over(Duration),
}

/// A command of a holder, counted while it is under way.
#[derive(Debug)]
pub(crate) struct CommandGuard(Arc<Lease>);

impl CommandGuard {
    /// Keeps it counted for good: it had no reply, and may be carried out at any time.
    pub(crate) fn keep_pending(self) {
        // One more, because `drop` takes one away. The count never comes back to zero: the present holds are the
        // last of the lease in this process.
        self.0.commands.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for CommandGuard {
    fn drop(&mut self) {
        self.0.commands.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A request of the worker, counted while it is under way.
#[derive(Debug)]
pub(crate) struct RenewalGuard(Arc<Lease>);

impl std::ops::Deref for RenewalGuard {
    type Target = Arc<Lease>;

    fn deref(&self) -> &Arc<Lease> {
        &self.0
    }
}

impl Drop for RenewalGuard {
    fn drop(&mut self) {
        self.0.renewals_under_way.fetch_sub(1, Ordering::SeqCst);
    }
}
