//! The messages that a slot receives.

use crate::engine::lease::Count;
use crate::engine::slot::acquirer::ReceivedGrant;
use crate::engine::slot::entry::Entry;
use crate::engine::slot::state::SlotState;
use crate::engine::slot::step::Step;
use crate::protocol::wake_message::GrantMessage;

impl SlotState {
    /// A message reports a grant. It is kept for the acquirer, also before the reply to its request (rule
    /// 10).
    pub(in crate::engine::slot) fn on_grant(&mut self, grant: &GrantMessage, step: &mut Step) {
        let Some(acquirer) = &mut self.acquirer else { return };
        // A grant for an earlier attempt is ignored, and not lost: that attempt is being removed from
        // Redis, and its release hands the lock over. To take it would be to use an attempt after its end
        // (rule 5).
        if acquirer.heard.number == grant.number {
            acquirer.heard.grant = Some(ReceivedGrant { grant: grant.clone(), received: step.now });
            step.wakes_acquirer = true;
        }
    }

    /// `waiters` wait in other processes for the lock of this attempt, or more is held than the limit. Returns whether
    /// that concerns this slot.
    pub(in crate::engine::slot) fn on_wanted(
        &mut self,
        number: u64,
        waiters: u32,
        step: &Step,
    ) -> bool {
        // Where several hold at a time, they wait for what any of them gives back, and the message is for all that this
        // process holds: a process gets one, and the attempt that it names may have been given back since.
        let for_all = self.overlaps;
        let is_meant = |entry: &Entry| {
            (for_all || entry.number == number) && entry.releasing_since().is_none()
        };
        if self.entries.iter().any(is_meant) {
            // Also by a thread of this process: the lease lasts no longer for those that are in.
            self.door.shut();
        }
        let waiters = self.elsewhere(waiters, number);
        if for_all && waiters == 0 {
            return false;
        }
        // A message that counts none was sent by a waiter all the same.
        let waiters = waiters.max(1);
        // Also what is granted already, where the message comes before the reply. An attempt that only stands in the line
        // learns by its grant.
        let acquirer = self
            .acquirer
            .iter_mut()
            .filter(|it| it.heard.number == number || for_all && it.inherits().is_none());
        let companions = self.companions.iter_mut().map(|it| &mut it.heard);
        let companions = companions.filter(|heard| for_all || heard.number == number);
        let asked = acquirer.map(|it| &mut it.heard).chain(companions).map(|it| &mut it.demand);
        let held = self.entries.iter_mut().filter(|entry| is_meant(entry)).map(|it| &mut it.demand);
        asked.chain(held).map(|demand| demand.set(waiters, step.now)).count() > 0
    }

    /// The reply to a request about an entry counts those who wait.
    pub(super) fn on_counted(&mut self, index: usize, count: Count) {
        let number = self.entries[index].number;
        self.door.counted(number, count.sent, count.waiters);
        let waiters = self.elsewhere(count.waiters, number);
        if waiters > 0 {
            self.entries[index].demand.set(waiters, count.received);
        }
    }

    /// How many of those who wait in the queue of Redis are other processes, as counted for the attempt of this
    /// number.
    fn elsewhere(&self, waiters: u32, number: u64) -> u32 {
        // This process has one place for all its threads. The message that its own join caused may come before
        // the reply. Where it was not counted, one other is missed until that reply, which counts those before it.
        // What is counted for itself comes after its grant.
        let is_own = self.acquirer.as_ref().is_some_and(|acquirer| {
            let may_wait = acquirer.queued.is_some() || acquirer.asked_at().is_some();
            acquirer.waits && may_wait && acquirer.heard.number != number
        });
        // An upgrade of this process stands before everybody.
        let own = u32::from(is_own) + u32::from(self.upgrader.is_some());
        if self.overlaps { waiters.saturating_sub(own) } else { waiters }
    }

    /// A message reports that this attempt was evicted: the worker asks Redis about its lease at once.
    pub(in crate::engine::slot) fn on_evicted(&mut self, number: u64, step: &mut Step) {
        if let Some(heard) = self.heard_of(number) {
            // The reply with the grant may still be on its way. `granted` looks at this.
            heard.is_doubted = true;
        }
        let entry = self.entries.iter().find(|entry| entry.is_attempt(number) && entry.is_held());
        if let Some(lease) = entry.and_then(|entry| entry.lease.upgrade()) {
            // Not lost yet: anybody who may publish can send this message. Until Redis has replied the lease
            // stays valid, but is neither passed on nor lingers.
            lease.doubt(step.now);
            step.watch(&lease);
        }
    }

    /// The clock by which these leases end is not what it was: the worker asks Redis about them at once, and so does the
    /// acquirer about its place in the queue.
    pub(in crate::engine::slot) fn on_clock_fault(&mut self, step: &mut Step) {
        for entry in &self.entries {
            let Some(lease) = entry.lease.upgrade() else { continue };
            // As after a message of eviction: it may have ended there already, or end earlier than it does here. One that
            // lingers is asked about by nobody, and no thread takes it again.
            lease.doubt(step.now);
            if entry.is_held() {
                step.watch(&lease);
            }
        }
        // A grant that is on its way may be from before.
        self.companions.iter_mut().for_each(|it| it.heard.is_doubted = true);
        if let Some(acquirer) = &mut self.acquirer {
            acquirer.heard.is_doubted |= acquirer.asked_at().is_some();
            acquirer.retry_now = true;
            step.wakes_acquirer = true;
        }
        if let Some(upgrader) = &mut self.upgrader {
            upgrader.retry_now = true;
            step.wakes_acquirer = true;
        }
    }

    /// Notes that another client wants the lease of this attempt. Returns whether a thread holds it.
    pub(in crate::engine::slot) fn want_held(&mut self, number: u64) -> bool {
        let held =
            self.entries.iter_mut().filter(|entry| entry.is_attempt(number) && entry.is_held());
        // The holder releases because of the request. A lease that lingered then would not meet it.
        held.map(|entry| entry.demand.wanted = true).count() > 0
    }

    /// Makes the acquirer ask again at once, because messages may have been missed.
    pub(in crate::engine::slot) fn request_retry(&mut self, step: &mut Step) {
        if let Some(acquirer) = &mut self.acquirer {
            acquirer.retry_now = true;
            acquirer.heard.demand.wanted = true;
            step.wakes_acquirer = true;
        }
        if let Some(upgrader) = &mut self.upgrader {
            upgrader.retry_now = true;
            step.wakes_acquirer = true;
        }
        // One of the missed messages may have said that somebody waits. Assumed for the rest of the
        // attempt: wrongly assumed it costs a release, wrongly denied it costs a waiter its turn (rule
        // 18).
        let companions = self.companions.iter_mut().map(|it| &mut it.heard.demand);
        let held = self.entries.iter_mut().map(|entry| &mut entry.demand);
        companions.chain(held).for_each(|demand| demand.wanted = true);
    }
}
