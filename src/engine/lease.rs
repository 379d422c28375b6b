//! The lease of one hold.
//!
//! | phase | meaning | goes to |
//! | --- | --- | --- |
//! | live | granted; valid until a moment, which renewals move | releasing, lost |
//! | releasing | being given back; no longer valid, no longer renewed | ended, lost |
//! | lost | ended before it was given back, for a cause | |
//! | ended | given back, or left to the worker to give back | |

use std::time::Duration;

use crate::base::loss::{Loss, LossCause};
use crate::base::option::LockOptions;
use crate::base::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering};
use crate::base::time::{Clock, Moment, drift_allowance};
use crate::base::token::FencingToken;
use crate::engine::callback::{Hooks, LossHook};
use crate::protocol::target::Target;

#[derive(Debug)]
enum Phase {
    Live,
    Releasing,
    Lost(Loss),
    Ended,
}

/// What Redis granted to one attempt of this process, held by one thread.
#[derive(Debug)]
pub(crate) struct LiveLease {
    terms: Terms,
    phase: Mutex<Phase>,
    /// In nanoseconds; changed only under `phase`, and the past unless live.
    valid_until: AtomicU64,
    /// The same without `max_hold`, and also when it is not live any longer.
    leased_until: AtomicU64,
    /// The latest end that Redis may have for it and that its holder must not rely on: a renewal or an
    /// extension was never answered, or was confirmed too late. The past if there is none.
    perhaps_until: AtomicU64,
    /// When it is to be renewed next, in nanoseconds.
    renew_at: AtomicU64,
    renewals: AtomicU32,
    /// Whether the last renewal failed, so that running out means that Redis was unreachable.
    failing: AtomicBool,
    /// When it was last said to be another's, in nanoseconds; 0 if never, or if Redis has denied it since.
    doubted_at: AtomicU64,
    /// Commands under way or never answered: with any, it must not become another thread's
    /// (rule 17).
    under_way: AtomicU32,
    count: AtomicU32,
    /// Whether the worker is to show the count.
    unshown: AtomicBool,
    /// The count that was shown last.
    shown: AtomicU32,
    /// What is called when it is lost; grows only under `phase`.
    hooks: Hooks,
}

/// What stays as it is for as long as a hold lasts.
#[derive(Clone, Debug)]
struct Terms {
    target: Arc<Target>,
    clock: Arc<dyn Clock>,
    owner: Arc<[u8]>,
    token: FencingToken,
    /// Whether the token is the one that Redis minted with the lease.
    minted: bool,
    /// The server's time in microseconds that was surely reached at a moment: tokens of holds that
    /// Redis does not hear of never run ahead of it (rule 19).
    server_time: (u64, Moment),
    options: LockOptions,
    /// How long it was granted for: a claim, until it is renewed.
    whole: Duration,
    /// When `max_hold` ends it.
    limit: Moment,
    /// A request for this attempt that brought no answer may still run until then.
    settled: Moment,
}

/// What an attempt was granted.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) owner: Arc<[u8]>,
    pub(crate) token: u64,
    pub(crate) ttl: Duration,
    /// From when `ttl` counts.
    pub(crate) sent: Moment,
    /// The server's time in microseconds that was surely reached at a moment.
    pub(crate) server_time: (u64, Moment),
    /// When the last request without an answer is surely dead.
    pub(crate) settled: Moment,
}

/// Until when a time to live may be relied on that was asked for at `sent`.
pub(crate) fn validity(sent: Moment, ttl: Duration) -> Moment {
    if mutated!("validity-without-end") {
        return Moment::FAR;
    }
    let drift = if mutated!("no-drift-allowance") { Duration::ZERO } else { drift_allowance(ttl) };
    sent.after(ttl).before(drift)
}

/// A lease is renewed after this share of its time to live…
const RENEWALS_PER_LEASE: u32 = 3;
/// …rounded down to a tick of this share of that period.
const TICKS_PER_PERIOD: u32 = 16;

/// A thread waits for the server's clock to come up to its token if no more than so many microseconds
/// are missing…
const MICROS_WORTH_WAITING: u64 = 4;
/// …and looks at its own clock no more often than this, which takes about as long as a request.
const LOOKS: u32 = 1_000;

/// When a lease that was last asked for at `sent` is to be renewed.
fn renewal_after(sent: Moment, ttl: Duration, options: &LockOptions, renewals: u32) -> Moment {
    let renewed = options.lease_option().is_renewed();
    if !renewed || options.max_renewals_option().is_some_and(|most| renewals >= most) {
        return Moment::FAR;
    }
    let period = ttl / RENEWALS_PER_LEASE;
    sent.after(period).rounded_down(period / TICKS_PER_PERIOD)
}

impl LiveLease {
    pub(crate) fn new(
        target: Arc<Target>,
        clock: Arc<dyn Clock>,
        grant: Grant,
        options: LockOptions,
    ) -> Arc<LiveLease> {
        let most = options.max_hold_option().filter(|_| !mutated!("max-hold-ignored"));
        let limit = most.map_or(Moment::FAR, |span| grant.sent.after(span));
        let leased_until = validity(grant.sent, grant.ttl);
        // A claim is shorter than the lease, and the first renewal makes it whole (rule 9).
        let ttl = grant.ttl.min(options.lease_option().ttl());
        let renew_at = renewal_after(grant.sent, ttl, &options, 0);
        let terms = Terms {
            target,
            clock,
            owner: grant.owner,
            token: FencingToken::new(grant.token),
            minted: true,
            server_time: grant.server_time,
            options,
            whole: ttl,
            limit,
            settled: grant.settled,
        };
        LiveLease::begin(terms, leased_until, renew_at, 1)
    }

    /// The next hold of the same lease, by a thread with these options; `None` if it cannot be
    /// passed on.
    pub(crate) fn successor(&self, options: &LockOptions, now: Moment) -> Option<Arc<LiveLease>> {
        // What is left would be all that a hold without renewals ever has (rule 9).
        let whole = options.is_renewed() || mutated!("cut-lease-never-renewed");
        if !self.terms.options.asks_as(options) || !whole || !self.may_last(now) {
            return None;
        }
        let token = FencingToken::new(self.next_token()?);
        let limit = options.max_hold_option().map_or(Moment::FAR, |span| now.after(span));
        let leased_until = self.leased_until();
        let renew_at = match self.renew_at() {
            // The renewals of the hold before were used up, and this one has its own.
            Moment::FAR => now.after(leased_until.since(now) / RENEWALS_PER_LEASE),
            renew_at => renew_at,
        };
        let terms = Terms { token, minted: false, options: *options, limit, ..self.terms.clone() };
        // The count of the hold before, which nobody shows any more.
        let shown = self.shown.load(Ordering::SeqCst);
        let next = LiveLease::begin(terms, leased_until, renew_at, shown);
        next.may_last_until(self.perhaps_until());
        Some(next)
    }

    /// A hold that begins now, while this count is shown.
    fn begin(terms: Terms, leased_until: Moment, renew_at: Moment, shown: u32) -> Arc<LiveLease> {
        Arc::new(LiveLease {
            phase: Mutex::new(Phase::Live),
            valid_until: AtomicU64::new(leased_until.min(terms.limit).as_nanos()),
            leased_until: AtomicU64::new(leased_until.as_nanos()),
            perhaps_until: AtomicU64::new(Moment::PAST.as_nanos()),
            renew_at: AtomicU64::new(renew_at.as_nanos()),
            renewals: AtomicU32::new(0),
            failing: AtomicBool::new(false),
            doubted_at: AtomicU64::new(0),
            under_way: AtomicU32::new(0),
            count: AtomicU32::new(1),
            unshown: AtomicBool::new(shown != 1),
            shown: AtomicU32::new(shown),
            hooks: Hooks::default(),
            terms,
        })
    }

    /// Whether it is good enough for another hold: renewed, nothing under way or unsettled
    /// (rule 17), not said to be another's, and not near its end.
    pub(crate) fn may_last(&self, now: Moment) -> bool {
        self.terms.options.lease_option().is_renewed()
            && (!self.is_under_way() || mutated!("passed-on-unanswered"))
            && !self.failing.load(Ordering::Relaxed)
            && !self.is_doubted()
            && (self.terms.settled <= now || mutated!("passed-on-unsettled"))
            && self.leased_until().since(now) > self.terms.whole / (RENEWALS_PER_LEASE + 1)
    }

    /// The token after this one, if the server's clock has surely come so far, or is about to: a
    /// microsecond is worth the wait, as a request takes many.
    fn next_token(&self) -> Option<u64> {
        let next = self.terms.token.get().checked_add(1)?;
        if mutated!("tokens-ahead-of-the-clock") {
            return Some(next);
        }
        let looks = if mutated!("tokens-never-waited-for") { 1 } else { LOOKS };
        // Bounded by looks too, for a clock that stands still.
        for _ in 0..looks {
            let sure = self.least_server_time(self.terms.clock.now());
            if next <= sure {
                return Some(next);
            }
            if next - sure > MICROS_WORTH_WAITING {
                return None;
            }
            std::hint::spin_loop();
        }
        None
    }

    /// What the server's clock surely shows by now, in microseconds (rule 10).
    fn least_server_time(&self, now: Moment) -> u64 {
        let (micros, at) = self.terms.server_time;
        let passed = now.since(at);
        let sure = u64::try_from((passed - passed / 100).as_micros()).unwrap_or(0);
        micros.saturating_add(sure)
    }

    /// The last token used, where that is not the one that Redis minted.
    pub(crate) fn last_token(&self) -> Option<u64> {
        (!self.terms.minted && !mutated!("token-not-written-back"))
            .then_some(self.terms.token.get())
    }

    /// The end of what Redis granted, whatever became of the hold.
    pub(crate) fn leased_until(&self) -> Moment {
        Moment::from_nanos(self.leased_until.load(Ordering::Acquire))
    }

    /// The end that Redis may have for it and that its holder must not rely on; the past if there is none.
    pub(crate) fn perhaps_until(&self) -> Moment {
        Moment::from_nanos(self.perhaps_until.load(Ordering::Acquire))
    }

    /// Notes that Redis may keep it until then, and that its holder must not rely on that.
    pub(crate) fn may_last_until(&self, moment: Moment) {
        self.perhaps_until.fetch_max(moment.as_nanos(), Ordering::AcqRel);
    }

    /// Counts a command about it that is under way, until the answer is dropped.
    pub(crate) fn command(self: &Arc<LiveLease>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        UnderWay(Arc::clone(self))
    }

    /// Whether a command about it is under way, or was never answered.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) != 0
    }

    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.terms.target
    }

    pub(crate) fn owner(&self) -> &Arc<[u8]> {
        &self.terms.owner
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.terms.token
    }

    pub(crate) fn options(&self) -> &LockOptions {
        &self.terms.options
    }

    /// The time to live that it was asked for with, and is renewed to.
    pub(crate) fn ttl(&self) -> Duration {
        self.terms.options.lease_option().ttl()
    }

    /// When it is to be renewed; [`Moment::FAR`] if never again.
    pub(crate) fn renew_at(&self) -> Moment {
        Moment::from_nanos(self.renew_at.load(Ordering::Relaxed))
    }

    /// When the worker should look at it again.
    pub(crate) fn next_look(&self) -> Moment {
        self.renew_at().min(self.valid_until())
    }

    pub(crate) fn settled(&self) -> Moment {
        self.terms.settled
    }

    /// The end of validity; the past once it is not live.
    pub(crate) fn valid_until(&self) -> Moment {
        Moment::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    pub(crate) fn is_valid_at(&self, now: Moment) -> bool {
        now < self.valid_until()
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(*self.phase.lock(), Phase::Live)
    }

    /// Notes how many times its thread holds it. Answers whether that is yet to be shown, and the
    /// worker does not know of it.
    pub(crate) fn set_hold_count(&self, count: u32) -> bool {
        self.count.store(count, Ordering::SeqCst);
        !self.unshown.load(Ordering::SeqCst) && !self.unshown.swap(true, Ordering::SeqCst)
    }

    /// The hold count that is shown now.
    pub(crate) fn show_hold_count(&self) -> u32 {
        self.unshown.store(false, Ordering::SeqCst);
        let count = self.count.load(Ordering::SeqCst);
        self.shown.store(count, Ordering::SeqCst);
        count
    }

    /// Whether its hold count is yet to be shown.
    pub(crate) fn is_unshown(&self) -> bool {
        self.unshown.load(Ordering::SeqCst)
    }

    /// Notes that Redis lets it live for `ttl` from `sent` on. Never shortens it (rule 14), and changes
    /// nothing where the hold is over (rule 30).
    pub(crate) fn lengthen(&self, sent: Moment, ttl: Duration) {
        self.lengthen_inner(&self.phase.lock(), sent, ttl);
    }

    /// Notes a renewal that was sent then and confirmed. It changes all of a lease or nothing: the next
    /// hold of the same lease takes over when it ends and when it is renewed, and the two must agree.
    pub(crate) fn renewed(&self, sent: Moment) {
        let phase = self.phase.lock();
        let counts = self.lengthen_inner(&phase, sent, self.ttl());
        if counts || mutated!("renewal-moved-for-a-hold-that-is-over") {
            let renewals = self.renewals.fetch_add(1, Ordering::Relaxed).saturating_add(1);
            let next = renewal_after(sent, self.ttl(), &self.terms.options, renewals);
            self.renew_at.store(next.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Lengthens it if the hold is not over. Returns whether it did.
    ///
    /// A hold whose validity is over is lost, also where nobody has noticed yet: another may have had the
    /// lock since, and a late request of this attempt may have got it back (rule 30).
    fn lengthen_inner(&self, phase: &Phase, sent: Moment, ttl: Duration) -> bool {
        let now = self.terms.clock.now();
        let lasts = self.is_valid_at(now) || mutated!("late-reply-revives-a-hold");
        if !matches!(phase, Phase::Live) || !lasts {
            // Redis keeps it for so long all the same.
            self.may_last_until(now.after(ttl));
            return false;
        }
        let least = self.leased_until();
        let least = if mutated!("extension-that-shortens") { Moment::PAST } else { least };
        let leased = validity(sent, ttl).max(least);
        self.leased_until.store(leased.as_nanos(), Ordering::Release);
        self.valid_until.store(leased.min(self.terms.limit).as_nanos(), Ordering::Release);
        self.failing.store(false, Ordering::Relaxed);
        true
    }

    /// Notes that it is said to be another's. Redis is to be asked.
    pub(crate) fn doubt(&self, now: Moment) {
        self.doubted_at.fetch_max(now.as_nanos().max(1), Ordering::SeqCst);
    }

    /// Whether Redis is to be asked whose it is.
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted_at.load(Ordering::SeqCst) != 0
    }

    /// Notes that Redis was asked then, and says that it is its owner's.
    pub(crate) fn confirmed(&self, sent: Moment) {
        let doubted_at = self.doubted_at.load(Ordering::SeqCst);
        if doubted_at != 0 && doubted_at <= sent.as_nanos() {
            // What is said meanwhile is to be asked about anew.
            let _ =
                self.doubted_at.compare_exchange(doubted_at, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Notes that a renewal failed.
    pub(crate) fn renewal_failed(&self) {
        self.failing.store(true, Ordering::Relaxed);
    }

    /// Ends it as lost if it is live and its validity is over. Returns the loss if this call found it; then
    /// the slot and the user are yet to be told.
    pub(crate) fn expire(&self, now: Moment) -> Option<Loss> {
        let mut phase = self.phase.lock();
        if !matches!(*phase, Phase::Live) || self.is_valid_at(now) {
            return None;
        }
        Some(self.lose_inner(&mut phase, self.natural_cause(now)))
    }

    /// Ends it as lost if it is live. Returns the loss if this call found it; then the slot and the user are
    /// yet to be told.
    pub(crate) fn lose(&self, cause: LossCause, now: Moment) -> Option<Loss> {
        let mut phase = self.phase.lock();
        if !matches!(*phase, Phase::Live) {
            return None;
        }
        // What Redis says about a lease that ran out is only the consequence.
        let cause = if self.is_valid_at(now) { cause } else { self.natural_cause(now) };
        Some(self.lose_inner(&mut phase, cause))
    }

    /// Ends its release as lost: Redis says that it was no longer its owner's.
    pub(crate) fn lose_in_release(&self, cause: LossCause) -> Loss {
        self.lose_inner(&mut self.phase.lock(), cause)
    }

    fn natural_cause(&self, now: Moment) -> LossCause {
        if now >= self.terms.limit {
            LossCause::MaxHold
        } else if self.failing.load(Ordering::Relaxed) {
            LossCause::Unreachable
        } else if self.renewals_used_up() {
            LossCause::RenewalsUsedUp
        } else {
            LossCause::Expired
        }
    }

    /// Whether it would have been renewed once more, had `max_renewals` allowed that.
    fn renewals_used_up(&self) -> bool {
        let options = &self.terms.options;
        let most = options.max_renewals_option().filter(|_| options.lease_option().is_renewed());
        most.is_some_and(|most| self.renewals.load(Ordering::Relaxed) >= most)
    }

    fn lose_inner(&self, phase: &mut Phase, cause: LossCause) -> Loss {
        let is_renewed = self.terms.options.lease_option().is_renewed();
        let name = self.terms.target.name();
        let loss = Loss::new(name, self.terms.token, cause, is_renewed);
        if !mutated!("valid-after-the-loss") {
            self.valid_until.store(Moment::PAST.as_nanos(), Ordering::Release);
        }
        *phase = Phase::Lost(loss.clone());
        loss
    }

    /// Why it was lost, if it was.
    pub(crate) fn loss(&self) -> Option<Loss> {
        match &*self.phase.lock() {
            Phase::Lost(loss) => Some(loss.clone()),
            _ => None,
        }
    }

    /// Begins its release: from now on it is not valid (rule 15). Answers until when it would have
    /// been, or nothing if it is not live.
    pub(crate) fn begin_release(&self) -> Option<Moment> {
        let mut phase = self.phase.lock();
        if !matches!(*phase, Phase::Live) {
            return None;
        }
        if !mutated!("renewed-after-release") {
            *phase = Phase::Releasing;
        }
        Some(Moment::from_nanos(self.valid_until.swap(Moment::PAST.as_nanos(), Ordering::AcqRel)))
    }

    /// Ends its release. [`forget_hooks`](Self::forget_hooks) is owed.
    pub(crate) fn end(&self) {
        let mut phase = self.phase.lock();
        if matches!(*phase, Phase::Releasing) {
            *phase = Phase::Ended;
        }
    }

    /// Drops what would have been called at a loss, once it is given back. What the user moved into it
    /// may panic when it is dropped, or want the lock.
    pub(crate) fn forget_hooks(&self) {
        if matches!(*self.phase.lock(), Phase::Ended) {
            drop(self.hooks.take());
        }
    }

    /// Keeps what is to be called when it is lost; that ends with the hold. Gives it back, with
    /// the loss, if it is lost already.
    pub(crate) fn on_loss(&self, hook: LossHook) -> Option<(Loss, LossHook)> {
        let phase = self.phase.lock();
        let loss = match &*phase {
            Phase::Live | Phase::Releasing => {
                self.hooks.add(hook);
                return None;
            }
            Phase::Lost(loss) => Some(loss.clone()),
            Phase::Ended => None,
        };
        drop(phase);
        loss.map(|loss| (loss, hook))
    }

    /// Takes out what is to be called now that it is lost.
    pub(crate) fn take_hooks(&self) -> Hooks {
        self.hooks.take()
    }
}

/// A command about a lease that is under way.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<LiveLease>);

impl UnderWay {
    /// Notes that it was never answered, and may be carried out at any time.
    pub(crate) fn remains(self) {
        self.0.under_way.fetch_add(1, Ordering::SeqCst);
    }
}

impl std::ops::Deref for UnderWay {
    type Target = Arc<LiveLease>;

    fn deref(&self) -> &Arc<LiveLease> {
        &self.0
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::driven::DrivenClock;
    use crate::base::id::Identity;
    use crate::base::name::Name;
    use crate::base::option::Lease;
    use crate::base::time::Clock;
    use crate::engine::holding::Holding;
    use crate::engine::slot::Slot;
    use crate::engine::{Bounds, Callbacks, Engine};
    use crate::kind::mutex::MutexKind;
    use crate::protocol::memory::client::Memory;
    use crate::protocol::memory::server::Server;

    const SECOND: Duration = Duration::from_secs(1);
    const LEASE: Duration = Duration::from_secs(30);
    /// The lease that a hand-over writes.
    const CLAIM: Duration = Duration::from_secs(3);

    /// A lease that nobody watches, and a clock that stands still.
    struct Bench {
        clock: Arc<DrivenClock>,
        begin: Moment,
        slot: Arc<Slot>,
        lease: Arc<LiveLease>,
    }

    impl Bench {
        fn new(options: LockOptions) -> Bench {
            let clock = Arc::new(DrivenClock::new(false));
            let server = Server::new(Arc::clone(&clock) as Arc<dyn Clock>);
            let engine = Engine::new(
                Arc::new(Memory::new(server, Arc::new(Identity::new("")))),
                Arc::clone(&clock) as Arc<dyn Clock>,
                Bounds { reply: SECOND, exchange: SECOND, give_up_after: SECOND },
                Callbacks::default(),
            );
            let begin = clock.now();
            let grant = Grant {
                owner: Arc::from(*b"owner"),
                token: 1,
                ttl: CLAIM,
                sent: begin,
                server_time: (1_000_000, begin),
                settled: Moment::PAST,
            };
            let slot = engine.slot(&MutexKind, Name::new(b"", b"x").unwrap());
            let (target, as_clock) = (Arc::clone(slot.target()), Arc::clone(&clock));
            let lease = LiveLease::new(target, as_clock, grant, options);
            Bench { clock, begin, slot, lease }
        }

        /// Puts the clock to so long after the beginning.
        fn at(&self, span: Duration) -> Moment {
            self.clock.put_forward(self.begin.after(span));
            self.clock.now()
        }
    }

    fn renewed() -> LockOptions {
        LockOptions::new().lease(Lease::renewed(LEASE))
    }

    /// The reply may come between the two, when the thread that releases it is kept from the processor.
    #[test]
    fn renewal_confirmed_during_a_release_changes_nothing() {
        let bench = Bench::new(renewed());
        let sent = bench.at(SECOND);
        let before = (bench.lease.leased_until(), bench.lease.renew_at());
        assert!(bench.lease.begin_release().is_some());
        bench.lease.renewed(sent);
        assert_eq!((bench.lease.leased_until(), bench.lease.renew_at()), before);
        let next =
            bench.lease.successor(&renewed(), bench.clock.now()).expect("it may be passed on");
        assert!(next.renew_at() < next.valid_until(), "lost before it is renewed: {next:?}");
        // What Redis has is known, should the next hold be lost.
        assert!(next.perhaps_until() >= sent.after(LEASE));
    }

    #[test]
    fn renewal_confirmed_in_time_changes_all_of_the_lease() {
        let bench = Bench::new(renewed());
        let sent = bench.at(SECOND);
        bench.lease.renewed(sent);
        assert_eq!(bench.lease.valid_until(), validity(sent, LEASE));
        assert!(bench.lease.renew_at() > sent.after(LEASE / 4));
        assert_eq!(bench.lease.perhaps_until(), Moment::PAST);
    }

    /// Another may have had the lock meanwhile, and nobody here has noticed yet that it is over.
    #[test]
    fn reply_that_comes_after_the_end_revives_no_hold() {
        for renewal in [true, false] {
            let bench = Bench::new(renewed());
            let sent = bench.at(SECOND);
            let now = bench.at(CLAIM);
            assert!(bench.lease.is_live() && !bench.lease.is_valid_at(now));
            if renewal {
                bench.lease.renewed(sent);
            } else {
                bench.lease.lengthen(sent, LEASE);
            }
            assert!(!bench.lease.is_valid_at(now), "renewal: {renewal}");
            let loss = bench.lease.expire(now).expect("it is found lost");
            assert_eq!(loss.cause(), LossCause::Expired);
            assert!(bench.lease.perhaps_until() >= sent.after(LEASE), "Redis keeps it");
        }
    }

    /// As where the process sleeps, and its thread is the first to wake.
    #[test]
    fn lost_hold_whose_renewal_is_under_way_is_given_back() {
        let bench = Bench::new(renewed());
        let sent = bench.at(SECOND);
        let renewal = bench.lease.command();
        bench.at(CLAIM);
        assert!(
            Holding::new(&bench.slot, Arc::clone(&bench.lease)).release().unwrap_err().is_lost()
        );
        bench.lease.renewed(sent);
        drop(renewal);
        let worker = &bench.slot.context().worker;
        assert_eq!(worker.wait_given_back(Moment::PAST).len(), 1, "nobody gives it back");
    }

    /// As an extension during a hold that `max_hold` has ended.
    #[test]
    fn extension_confirmed_after_max_hold_revives_no_hold() {
        let bench = Bench::new(renewed().max_hold(SECOND * 2));
        let now = bench.at(SECOND * 2);
        bench.lease.lengthen(now, LEASE);
        assert!(!bench.lease.is_valid_at(now));
        assert_eq!(bench.lease.expire(now).expect("lost").cause(), LossCause::MaxHold);
    }
}
