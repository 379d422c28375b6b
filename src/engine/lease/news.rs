//! How many wait for a lock, by the replies about a lease, until its slot takes that up.

use crate::base::sync::{AtomicBool, Mutex, Ordering};
use crate::base::time::Moment;

/// The counts of waiters in replies. A slot takes them up before its next event, so that a reply locks no slot.
#[derive(Debug)]
pub(crate) struct News {
    is_new: AtomicBool,
    count: Mutex<Option<Count>>,
}

/// The count of waiters in a reply that came at `received`, to a request that was sent at `sent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) sent: Moment,
    pub(crate) received: Moment,
    pub(crate) waiters: u32,
}

impl News {
    pub(super) fn new() -> News {
        News { is_new: AtomicBool::new(false), count: Mutex::new(None) }
    }

    pub(crate) fn post(&self, new: Count) {
        let mut count = self.count.lock();
        // A known waiter stays known for the rest of the attempt, whatever a later reply counts (rule 18).
        *count = match *count {
            Some(before) if before.waiters > 0 && new.waiters == 0 => Some(before),
            Some(before) => Some(Count { sent: new.sent.max(before.sent), ..new }),
            None => Some(new),
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
        let count = |sent, waiters| Count { sent, received: first, waiters };
        news.post(count(first, 0));
        news.post(count(third, 0));
        assert_eq!(news.take(), Some(count(third, 0)));
        assert_eq!(news.take(), None);
        news.post(count(second, 2));
        news.post(count(third, 0));
        assert_eq!(news.take(), Some(count(second, 2)));
    }
}
