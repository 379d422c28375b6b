//! Passes the messages that a client receives, and the faults of its servers' clocks, to its slots.

use crate::base::sync::Arc;
use crate::base::tag::hash_slot;
use crate::engine::listener::ReleaseListener;
use crate::engine::slot::Slot;
use crate::engine::slot_table::SlotTable;
use crate::protocol::Protocol;
use crate::protocol::wake_message::WakeMessage;
use crate::wire::server_clock::ClockFault;

/// Passes a message to the slots that it is for. The listener calls this with none of its locks held:
/// slots are locked here, and the last reference to one may be dropped.
pub(super) fn dispatch(slots: &SlotTable<Slot>, wake: WakeMessage) {
    // A message names the lock but not its kind, so the slots of all kinds of that name get it. The
    // number of an attempt is unique in a client, so a slot ignores a number that is not its own. A
    // `Retry` has no number: a slot that it is not for asks Redis once more, which is safe.
    match wake {
        WakeMessage::Grant { name, grant } => {
            slots.of_name(&name).iter().for_each(|slot| slot.on_grant(&grant));
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
        // Messages may have been lost while the client did not listen. Nothing says which, so all ask
        // (rule 12).
        WakeMessage::Listening => slots.all().iter().for_each(|slot| slot.request_retry()),
        WakeMessage::Missed { hash_slots: missed } => {
            let has = |slot: &Slot| missed.binary_search(&hash_slot(slot.target().key())).is_ok();
            slots.all().iter().filter(|slot| has(slot)).for_each(|slot| slot.request_retry());
        }
        WakeMessage::Ignored => {}
    }
}

/// Tells of a fault of a clock, and has the locks asked about whose leases end by it.
pub(super) fn on_clock_fault(slots: &SlotTable<Slot>, protocol: &dyn Protocol, fault: &ClockFault) {
    // The leases first: what is written may take a while.
    let is_its = |slot: &&Arc<Slot>| protocol.is_timed_by(slot.target(), fault.clock);
    slots.all().iter().filter(is_its).for_each(Slot::on_clock_fault);
    log!(warn, "{fault}");
}
