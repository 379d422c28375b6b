//! What the messages that a client hears mean for its slots.

use crate::base::tag::hash_slot;
use crate::engine::listener::ReleaseListener;
use crate::engine::slot::Slot;
use crate::engine::slot_table::SlotTable;
use crate::protocol::wake_message::WakeMessage;

/// Tells the slots that a message is for.
pub(super) fn dispatch(slots: &SlotTable<Slot>, wake: WakeMessage) {
    match wake {
        WakeMessage::Grant { name, grant } => {
            slots.of_name(&name).iter().for_each(|slot| slot.on_grant(grant));
        }
        WakeMessage::Retry { name } => {
            slots.of_name(&name).iter().for_each(|slot| slot.request_retry())
        }
        WakeMessage::Wanted { name, number, waiters } => {
            slots.of_name(&name).iter().for_each(|slot| slot.on_wanted(number, waiters));
        }
        WakeMessage::Request { name, number } => {
            slots.of_name(&name).iter().for_each(|slot| slot.on_request(number));
        }
        WakeMessage::Evicted { name, number } => {
            slots.of_name(&name).iter().for_each(|slot| slot.on_evicted(number));
        }
        // What was said while nobody listened is made good by asking (rule 12).
        WakeMessage::Listening => slots.all().iter().for_each(|slot| slot.request_retry()),
        WakeMessage::Missed { slots: missed } => {
            let has = |slot: &Slot| missed.binary_search(&hash_slot(slot.target().key())).is_ok();
            slots.all().iter().filter(|slot| has(slot)).for_each(|slot| slot.request_retry());
        }
        WakeMessage::Ignored => {}
    }
}
