//! Which reader's entry the threads of a process share (rule 39).
//!
//! | state | a thread that wants to read | goes to |
//! | --- | --- | --- |
//! | open | comes in without a command | stale, with time; shut |
//! | stale | comes in, and asks by a renewal whether somebody waits | open, shut |
//! | shut | asks Redis for an entry of its own | open, with that entry |
//!
//! A writer that waits elsewhere may not be heard of, so the door is open only for a heartbeat after the sending of the
//! last request whose reply counted nobody. A waiter that is known shuts it for good: those who are in leave
//! in their time, and the next ones line up.

use crate::base::time::Moment;
use crate::engine::heartbeat::HEARTBEAT;

/// The door of one slot.
#[derive(Debug)]
pub(super) struct Door {
    /// The number of the attempt whose entry it is; 0 while it is shut.
    number: u64,
    open_until: Moment,
}

/// What a thread finds that wants to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DoorState {
    Open(u64),
    Stale(u64),
    Shut,
}

impl Door {
    pub(super) const SHUT: Door = Door { number: 0, open_until: Moment::PAST };

    pub(super) fn shut(&mut self) {
        *self = Door::SHUT;
    }

    /// A reader was granted an entry by a request that was sent at `sent`, and nobody waits.
    pub(super) fn open(&mut self, number: u64, sent: Moment) {
        *self = Door { number, open_until: sent.after(HEARTBEAT) };
    }

    /// The reply to a renewal of this attempt, sent at `sent`, counts so many who wait.
    pub(super) fn counted(&mut self, number: u64, sent: Moment, waiters: u32) {
        if waiters > 0 {
            // They wait for every entry alike.
            self.shut();
        } else if self.is_of(number) {
            self.open_until = self.open_until.max(sent.after(HEARTBEAT));
        }
    }

    /// Whether it is the door of this entry, open or stale.
    pub(super) fn is_of(&self, number: u64) -> bool {
        self.number == number
    }

    pub(super) fn at(&self, now: Moment) -> DoorState {
        match self.number {
            0 => DoorState::Shut,
            number if now < self.open_until => DoorState::Open(number),
            number => DoorState::Stale(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SENT: Moment = Moment::from_nanos(1_000_000_000_000);

    #[test]
    fn door_is_open_for_a_heartbeat_after_the_sending() {
        let mut door = Door::SHUT;
        assert_eq!(door.at(SENT), DoorState::Shut);
        door.open(7, SENT);
        let last = SENT.after(HEARTBEAT - Duration::from_nanos(1));
        assert_eq!(
            (door.at(last), door.at(SENT.after(HEARTBEAT))),
            (DoorState::Open(7), DoorState::Stale(7))
        );
        door.counted(7, last, 0);
        assert_eq!(door.at(SENT.after(HEARTBEAT)), DoorState::Open(7));
        door.counted(7, SENT, 0);
        assert_eq!(
            door.at(SENT.after(HEARTBEAT)),
            DoorState::Open(7),
            "replies may come out of order"
        );
    }

    #[test]
    fn door_is_shut_for_good_by_those_who_wait() {
        let mut door = Door::SHUT;
        door.open(7, SENT);
        door.counted(7, SENT, 1);
        door.counted(7, SENT.after(HEARTBEAT), 0);
        assert_eq!(door.at(SENT), DoorState::Shut);
        door.open(9, SENT);
        door.counted(7, SENT.after(HEARTBEAT * 5), 0);
        assert_eq!(door.at(SENT.after(HEARTBEAT)), DoorState::Stale(9), "not of an earlier entry");
    }
}
