//! What the messages that a client hears mean for its slots.

use crate::base::tag::hash_slot;
use crate::engine::listener::ReleaseListener;
use crate::engine::slot::Slot;
use crate::engine::table::Table;
use crate::protocol::wake::Wake;

/// Tells the slots that a message is for.
pub(super) fn dispatch(slots: &Table<Slot>, wake: Wake) {
    match wake {
        Wake::Grant { name, grant } => {
            slots.of_name(&name).iter().for_each(|slot| slot.on_grant(grant));
        }
        Wake::Retry { name } => slots.of_name(&name).iter().for_each(|slot| slot.request_retry()),
        Wake::Wanted { name, number, waiters } => {
            slots.of_name(&name).iter().for_each(|slot| slot.on_wanted(number, waiters));
        }
        Wake::Request { name, number } => {
            slots.of_name(&name).iter().for_each(|slot| slot.on_request(number));
        }
        Wake::Evicted { name, number } => {
            slots.of_name(&name).iter().for_each(|slot| slot.on_evicted(number));
        }
        // What was said while nobody listened is made good by asking (rule 12).
        Wake::Live => slots.all().iter().for_each(|slot| slot.request_retry()),
        Wake::Missed { slots: missed } => {
            let has = |slot: &Slot| missed.binary_search(&hash_slot(slot.target().key())).is_ok();
            slots.all().iter().filter(|slot| has(slot)).for_each(|slot| slot.request_retry());
        }
        Wake::Nothing => {}
    }
}
