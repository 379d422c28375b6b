//! Why the worker comes to a lease, and when.
//!
//! A lease has one timer with the worker, for the first of these moments:
//!
//! | purpose | due | while it lingers |
//! | --- | --- | --- |
//! | `EndValidity` | at the end of the lease, or of its tail | at the end of the lease |
//! | `NoteSilence` | at the end of a lease that has a tail | never |
//! | `EndUsage` | when `max_hold` ends the first of its holds | when the linger is over; up to a quarter of it later, if a thread has taken it again since the last look |
//! | `Renew` | after a third of the lease, of a claim after 200 ms | two thirds of a heartbeat after it was last confirmed, if a thread has taken it again since the last look; then also after a third of the lease |
//! | `Ask` | at once, if the last change of a read-write lock had no reply, or the lease is doubted; the worker asks about so many doubted ones at a time | never |
//! | `Announce` | when it was held for a second, and every twenty | never |
//!
//! A count of reentries that Redis does not show is shown soon: the thread that changes it asks the worker to come.
//!
//! A slot in which threads only wait has a timer for its announcement. The removals in the background have timers of their
//! own, and so have notifications.
//!
//! The worker and the threads of a slot agree without a lock. A thread changes the lease, and then looks when the worker
//! comes: if that is early enough, it is done. The worker notes that it has come, and then looks at the lease. All of
//! these accesses are sequentially consistent, so that one of the two sees what the other wrote.

use std::time::Duration;

use crate::base::sync::Ordering;
use crate::base::time::Moment;
use crate::engine::heartbeat::HEARTBEAT;
use crate::engine::lease::usage::Usage;
use crate::engine::lease::{Lease, LeaseEnd};

/// Within this time Redis shows a new count of reentries.
const SHOW_AFTER: Duration = Duration::from_millis(20);

/// A lease that threads take over and over is renewed this long after it was last confirmed.
const REFRESHED_AFTER: Duration = Duration::from_nanos(HEARTBEAT.as_nanos() as u64 * 2 / 3);

/// Leases that linger for as long, and are taken over and over, have so many turns of the worker in common in that time.
const TURNS_PER_LINGER: u32 = 4;
/// The longest time between two such turns. A longer one could be most of the time after which they are renewed.
const LONGEST_TICK: Duration = Duration::from_nanos(HEARTBEAT.as_nanos() as u64 / 10);

/// Why the worker comes to a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    EndValidity,
    NoteSilence,
    EndUsage,
    Renew,
    Ask,
    Announce,
}

impl Lease {
    /// When the next renewal is due; [`Moment::FAR`] if there is none.
    pub(crate) fn renew_at(&self) -> Moment {
        self.renew_at.get()
    }

    /// When the worker comes to it, as far as its task queue has noted.
    pub(crate) fn due(&self) -> Moment {
        self.due.get()
    }

    /// The task queue of the worker has a timer for it at that moment; [`Moment::FAR`] if it has none.
    pub(crate) fn note_due(&self, moment: Moment) {
        self.due.set(moment);
    }

    /// The first moment at which the worker should come to it, for a thread that has just changed it.
    pub(crate) fn next_due(&self, now: Moment) -> Moment {
        let next = self.next_after(Moment::PAST);
        if next == Moment::FAR {
            return next;
        }
        let shown_at = match self.is_held() && self.count.is_unshown() {
            true => now.after(SHOW_AFTER),
            false => Moment::FAR,
        };
        next.min(shown_at).min(self.next_refresh(now))
    }

    /// The worker comes to it, in a turn that began at `now`. Returns when it comes again, and whether a thread has taken
    /// the lease again since the last time.
    pub(crate) fn begin_look(&self, now: Moment) -> (Moment, bool) {
        // First, so that a thread that changes the lease from now on asks for an earlier moment.
        self.due.set(Moment::FAR);
        let was_retaken = self.was_retaken.swap(false, Ordering::SeqCst);
        let mut next = self.next_after(now);
        if was_retaken && next != Moment::FAR {
            // A linger that begins after this ends no earlier. Without a look by then each thread that takes the lease over
            // and over would ask for one, and all such threads would wait for the lock of the task queue.
            let soon = now.after(self.linger);
            next = match self.is_held() {
                true => self.shared_turn(next.min(soon).min(self.refresh_after(now)), now),
                // A thread will likely have taken it once more. If none has, it lingers a little longer.
                false => next
                    .rounded_up(self.tick())
                    .min(soon.rounded_down(self.tick()))
                    .min(self.lost_at()),
            };
        }
        if next != Moment::FAR {
            next = next.min(self.next_refresh(now));
        }
        self.due.set(next);
        (next, was_retaken)
    }

    /// A moment that leases which are taken over and over have in common, a little before this one. They share turns of the
    /// worker then: beside hundreds of them it would wake for each alone, and have no processor left for its renewals.
    fn shared_turn(&self, moment: Moment, now: Moment) -> Moment {
        Some(moment.rounded_down(self.tick())).filter(|&at| at > now).unwrap_or(moment)
    }

    /// The time between two shared turns.
    fn tick(&self) -> Duration {
        (self.linger / TURNS_PER_LINGER).min(LONGEST_TICK)
    }

    /// The first of its moments that is later than `now`, without the count; [`Moment::FAR`] if it is over.
    pub(crate) fn next_after(&self, now: Moment) -> Moment {
        if self.is_over() {
            // The thread that ended it does what is left to do.
            return Moment::FAR;
        }
        let moments = self.timers().map(|(_, moment)| moment);
        moments.into_iter().filter(|&moment| moment > now).min().unwrap_or(Moment::FAR)
    }

    /// When the worker has to come for each purpose; [`Moment::FAR`] if it need not.
    fn timers(&self) -> [(Purpose, Moment); 6] {
        let usage = self.usage.get();
        // A lease that lingers is only ended.
        let held = |moment| if matches!(usage, Usage::Held { .. }) { moment } else { Moment::FAR };
        // These are due at once, and so are past.
        let asks = self.open_change().is_some() || self.is_doubted();
        let ask_at = if asks { Moment::from_nanos(1) } else { Moment::FAR };
        let has_tail = !self.value.options.lease.tail().is_zero();
        [
            (Purpose::EndValidity, self.lost_at()),
            (Purpose::NoteSilence, if has_tail { self.valid_until() } else { Moment::FAR }),
            (Purpose::EndUsage, usage.until()),
            (Purpose::Renew, held(self.renew_at())),
            (Purpose::Ask, held(ask_at)),
            (Purpose::Announce, held(self.announce_at())),
        ]
    }

    /// Whether a thread holds it, so that it does not linger.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.usage.get(), Usage::Held { .. })
    }

    /// Whether something of it is over, for which its slot has something to end: the lease, a hold, or its linger.
    pub(crate) fn has_ended_by(&self, now: Moment) -> bool {
        if self.is_over() {
            return matches!(self.guarded.lock().end, Some(LeaseEnd::Lost(_)));
        }
        let ends = |purpose| matches!(purpose, Purpose::EndValidity | Purpose::EndUsage);
        self.timers().into_iter().any(|(purpose, moment)| ends(purpose) && moment <= now)
    }

    /// Whether the worker is to renew it now. A lease that lingers is not renewed, unless it `was_retaken`: threads that take
    /// it over and over must find it renewed, whenever the worker comes.
    pub(crate) fn needs_renewal(&self, now: Moment, was_retaken: bool) -> bool {
        let is_due = self.renew_at() <= now && (self.is_held() || was_retaken);
        is_due || was_retaken && self.refresh_at() <= now
    }

    /// When a lease that threads take over and over is renewed, so that they find it fresh.
    fn refresh_at(&self) -> Moment {
        // A renewal counts against `max_renewals`. Without it such a lease is asked for anew.
        match self.counts_renewals() {
            true => Moment::FAR,
            // In a shared turn, too.
            false => self.confirmed_at.get().after(REFRESHED_AFTER).rounded_down(self.tick()),
        }
    }

    /// When it is to be renewed for the next thread that takes it, if that is ahead. One that is due already is sent when the
    /// worker finds that a thread has taken it.
    fn refresh_after(&self, now: Moment) -> Moment {
        Some(self.refresh_at()).filter(|&at| at > now).unwrap_or(Moment::FAR)
    }

    /// The same of a lease that lingers, or that a thread has taken again since the last look: by then the worker comes, and
    /// sees whether threads take it.
    fn next_refresh(&self, now: Moment) -> Moment {
        match self.is_held() && !self.was_retaken.load(Ordering::SeqCst) {
            true => Moment::FAR,
            false => self.refresh_after(now),
        }
    }

    /// When its slot is to be announced; [`Moment::FAR`] if it is not.
    pub(crate) fn announce_at(&self) -> Moment {
        self.announce_at.get()
    }

    /// Notes when its slot is to be announced.
    pub(crate) fn announce_by(&self, moment: Moment) {
        self.announce_at.set(moment);
    }
}
