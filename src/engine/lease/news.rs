//! How many wait for a lock, by the replies about a lease, until its slot takes that up.

use crate::base::sync::{AtomicBool, Mutex, Ordering};
use crate::base::time::Moment;

/// The counts of waiters in replies. A slot takes them up before its next event, so that a reply locks no slot.
#[derive(Debug)]
pub(crate) struct News {
    is_new: AtomicBool,
    count: Mutex<Option<Count>>,
}

/// The count of waiters in the reply to a request that was sent at `sent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) sent: Moment,
    pub(crate) waiters: u32,
}

impl News {
    pub(super) fn new() -> News {
        News { is_new: AtomicBool::new(false), count: Mutex::new(None) }
    }

    pub(crate) fn post(&self, sent: Moment, waiters: u32) {
        let mut count = self.count.lock();
        // A known waiter stays known for the rest of the attempt, whatever a later reply counts (rule 18).
        *count = match *count {
            Some(before) if before.waiters > 0 && waiters == 0 => Some(before),
            Some(before) => Some(Count { sent: sent.max(before.sent), waiters }),
            None => Some(Count { sent, waiters }),
        };
        self.is_new.store(true, Ordering::SeqCst);
    }

    /// Takes up what was posted since the last time.
    pub(crate) fn take(&self) -> Option<Count> {
        // Each lock comes here, and usually nothing was posted.
        if !self.is_new.load(Ordering::SeqCst) {
            return None;
        }
        let mut count = self.count.lock();
        self.is_new.store(false, Ordering::SeqCst);
        count.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_is_taken_up_once_and_one_who_waits_stays() {
        let news = News::new();
        assert_eq!(news.take(), None);
        let [first, second, third] = [5, 9, 7].map(Moment::from_nanos);
        news.post(first, 0);
        news.post(third, 0);
        assert_eq!(news.take(), Some(Count { sent: third, waiters: 0 }));
        assert_eq!(news.take(), None);
        news.post(second, 2);
        news.post(third, 0);
        assert_eq!(news.take(), Some(Count { sent: second, waiters: 2 }));
    }
}
