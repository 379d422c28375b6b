//! What came by between clients and their server.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold_support::fault::Operation;
use leasehold_support::{Direction, Proxy};
use redis::Value;

use super::Result;

/// What does not come by in this time never does.
const MOST: Duration = Duration::from_secs(20);

/// A message that came by.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    /// Of the client.
    pub(crate) letter: &'static str,
    pub(crate) direction: Direction,
    pub(crate) operation: Operation,
    pub(crate) message: Value,
    pub(crate) is_lost: bool,
}

impl Frame {
    /// What it adds to the number of scripts of a client of this letter that are under way.
    pub(crate) fn opens(&self, letter: &str) -> i32 {
        use Operation::{Acquire, Beat, Release, Renew};
        match self.direction {
            _ if self.letter != letter => 0,
            _ if ![Acquire, Beat, Release, Renew].contains(&self.operation) => 0,
            Direction::Request => 1,
            Direction::Reply => -1,
        }
    }

    /// Whether a client of this letter joins a queue by it.
    pub(crate) fn joins(&self, letter: &str) -> bool {
        let Value::Array(words) = &self.message else { return false };
        self.letter == letter
            && self.direction == Direction::Request
            && words.contains(&Value::BulkString(b"join".to_vec()))
    }

    /// Whether it was published, and answers no request.
    pub(crate) fn is_published(&self) -> bool {
        self.direction == Direction::Reply && self.operation == Operation::Message
    }
}

/// Collects what passes through proxies.
#[derive(Debug, Clone, Default)]
pub(crate) struct Record(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    frames: Mutex<Vec<Frame>>,
    more: Condvar,
}

impl Record {
    /// Collects what passes through the proxy of a client from now on.
    pub(crate) fn collect(&self, letter: &'static str, proxy: &Proxy) {
        let record = self.clone();
        proxy.watch(move |seen| {
            let Ok(message) = redis::parse_redis_value(seen.message) else { return };
            let (direction, operation) = (seen.direction, seen.operation);
            let frame = Frame { letter, direction, operation, message, is_lost: seen.is_lost };
            record.frames().push(frame);
            record.0.more.notify_all();
        });
    }

    /// Takes what came by since the last call.
    pub(crate) fn take(&self) -> Vec<Frame> {
        std::mem::take(&mut *self.frames())
    }

    /// Waits until this is true of what came by. Nothing of it is taken.
    pub(crate) fn wait(&self, is_true: impl Fn(&[Frame]) -> bool) -> Result<()> {
        let end = Instant::now() + MOST;
        let mut frames = self.frames();
        while !is_true(&frames) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("what was waited for did not come: {frames:?}").into());
            }
            let result = self.0.more.wait_timeout(frames, left);
            frames = result.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    fn frames(&self) -> MutexGuard<'_, Vec<Frame>> {
        self.0.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
