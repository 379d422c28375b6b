//! Threads whose requests travel with that of the acquirer.
//!
//! Where holds may overlap there may be enough left for several threads, and N threads that ask one after the other take
//! N round trips. So the first request of an acquirer takes along those that wait behind it for the same. Each has an
//! owner's value of its own, and none of them joins the queue of Redis. One whose thread was served or has left meanwhile
//! is removed from Redis again.

use crate::base::option::LockOptions;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::heartbeat::HEARTBEAT;
use crate::engine::hold::Hold;
use crate::engine::slot::acquirer::{Acquirer, Companion, Heard};
use crate::engine::slot::state::{SlotState, USUAL_REPLY_TIME};
use crate::engine::slot::step::Step;
use crate::engine::slot::waiter::{Admission, EnterRequest, Waiter};

/// As many travel along. A pipeline of scripts holds the server up for all its clients.
const MOST: usize = 31;

impl SlotState {
    /// The acquirer asks for the first time: returns the attempts that travel along, by number, with their options.
    pub(in crate::engine::slot) fn take_along(
        &mut self,
        options: &LockOptions,
        now: Moment,
        deadline: Moment,
        mut next_number: impl FnMut() -> u64,
    ) -> Vec<(u64, LockOptions)> {
        self.companions.clear();
        let is_first = self.acquirer.as_ref().is_some_and(Acquirer::is_asking);
        // Where nothing was left lately each of them would be refused, and where Redis was silent each would have to be
        // removed, and again with the next acquirer.
        let was_in_vain = self.last_held_at.max(self.silent_at) >= now.before(HEARTBEAT);
        // Readers share one entry already.
        if !is_first || was_in_vain || options.access().is_some() {
            return Vec::new();
        }
        // Not past a thread that asks for something else: one that needs more would be overtaken.
        // A request that has less time than a reply may take is for those alone who wait no longer.
        let is_brief = deadline.since(now) < USUAL_REPLY_TIME;
        let fits = |request: &EnterRequest| {
            !is_brief || request.wait_limit.end().is_some_and(|end| end <= deadline)
        };
        let asked = options.of_request();
        let is_alike = |waiter: &&Arc<Waiter>| {
            asked.requests_same_as(&waiter.request.options) && fits(&waiter.request)
        };
        for waiter in self.queue.iter().take_while(is_alike).take(MOST) {
            let heard = Heard { number: next_number(), ..Heard::default() };
            self.companions.push(Companion { waiter: Arc::clone(waiter), heard });
        }
        let attempt = |it: &Companion| (it.heard.number, it.waiter.request.options);
        self.companions.iter().map(attempt).collect()
    }

    /// The request of this attempt was granted. Returns whether its thread has the hold.
    pub(in crate::engine::slot) fn granted_along(
        &mut self,
        hold: &Arc<Hold>,
        number: u64,
        waiters: u32,
        step: &mut Step,
    ) -> bool {
        self.replied_at = step.now;
        let Some(index) = self.companions.iter().position(|it| it.heard.number == number) else {
            return false;
        };
        let Companion { waiter, heard } = self.companions.swap_remove(index);
        let place = self.queue.iter().position(|other| Arc::ptr_eq(other, &waiter));
        // It was served by a thread here, or waits no more.
        let Some(place) = place.filter(|_| !step.closing) else { return false };
        self.queue.remove(place);
        self.add_entry(heard, hold, waiters, step);
        step.admit(&waiter, Admission::Granted(Arc::clone(hold)));
        true
    }

    /// None travels along any more. `is_silent` says that the request had no reply.
    pub(in crate::engine::slot) fn end_along(&mut self, is_silent: bool, now: Moment) {
        self.companions.clear();
        if is_silent {
            self.silent_at = now;
        }
    }

    /// The messages about an attempt whose grant is not known yet.
    pub(super) fn heard_of(&mut self, number: u64) -> Option<&mut Heard> {
        let acquirer = self.acquirer.as_mut().map(|it| &mut it.heard).into_iter();
        let mut heard = acquirer.chain(self.companions.iter_mut().map(|it| &mut it.heard));
        heard.find(|heard| heard.number == number)
    }
}
