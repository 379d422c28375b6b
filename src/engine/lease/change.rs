//! How a read-write lock is held, and its changes (rules 35 to 37).
//!
//! All of it is one atomic, so that a change takes its number and lowers the access in one step.

use crate::base::share::Access;
use crate::base::sync::{AtomicU64, Ordering};

/// How a read-write lock is held now, the number of the last change, and whether Redis has yet to confirm it.
#[derive(Debug)]
pub(super) struct Changes(AtomicU64);

/// A change of how a read-write lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Grows with each change of the hold; 0 before the first.
    pub(crate) number: u64,
    pub(crate) access: Access,
    /// Whether the worker has to send it.
    pub(super) is_open: bool,
}

impl Changes {
    pub(super) fn new(access: Option<Access>) -> Changes {
        let first = Change { number: 0, access: access.unwrap_or(Access::Write), is_open: false };
        Changes(AtomicU64::new(first.packed()))
    }

    pub(super) fn last(&self) -> Change {
        Change::unpacked(self.0.load(Ordering::SeqCst))
    }

    /// Begins another change, by which it is held with this access from now on. Returns its number.
    pub(super) fn begin(&self, access: Access) -> u64 {
        let mut before = self.0.load(Ordering::SeqCst);
        loop {
            let number = Change::unpacked(before).number + 1;
            let next = Change { number, access, is_open: false }.packed();
            match self.0.compare_exchange(before, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return number,
                Err(other) => before = other,
            }
        }
    }

    /// Replaces what is known of the change of this number, if no other has begun since.
    pub(super) fn update(&self, number: u64, access: Access, is_open: bool) {
        let before = self.0.load(Ordering::SeqCst);
        if Change::unpacked(before).number == number {
            let next = Change { number, access, is_open }.packed();
            // If that fails, another change has begun.
            let _ = self.0.compare_exchange(before, next, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

impl Change {
    fn packed(self) -> u64 {
        let access = match self.access {
            Access::Read => 0,
            Access::UpgradableRead => 1,
            Access::Write => 2,
        };
        self.number << 3 | access << 1 | u64::from(self.is_open)
    }

    fn unpacked(bits: u64) -> Change {
        let access = match bits >> 1 & 3 {
            0 => Access::Read,
            1 => Access::UpgradableRead,
            _ => Access::Write,
        };
        Change { number: bits >> 3, access, is_open: bits & 1 == 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_takes_the_next_number_and_its_access_at_once() {
        let changes = Changes::new(Some(Access::Write));
        assert_eq!(changes.begin(Access::UpgradableRead), 1);
        assert_eq!(changes.begin(Access::Read), 2);
        assert_eq!(changes.last(), Change { number: 2, access: Access::Read, is_open: false });
    }

    #[test]
    fn late_reply_to_an_earlier_change_changes_nothing() {
        let changes = Changes::new(Some(Access::UpgradableRead));
        let upgrade = changes.begin(Access::UpgradableRead);
        let cancel = changes.begin(Access::UpgradableRead);
        changes.update(cancel, Access::UpgradableRead, true);
        changes.update(upgrade, Access::Write, false);
        let open = Change { number: 2, access: Access::UpgradableRead, is_open: true };
        assert_eq!(changes.last(), open);
        changes.update(cancel, Access::UpgradableRead, false);
        assert_eq!(changes.last(), Change { is_open: false, ..open });
    }
}
