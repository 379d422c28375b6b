//! How batches go over the pool.

use std::time::Duration;

use crate::base::time::Moment;
use crate::wire::batcher::batch::{Batch, BatchSender};
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::pool::Pool;

impl BatchSender for Pool {
    fn limit(&self, start: Moment) -> Moment {
        Pool::limit(self, start)
    }

    fn shortage(&self, waited: Duration) -> NotSentReason {
        Pool::shortage(self, waited)
    }

    fn send(&self, batch: &mut Batch<'_>) -> Result<(), Failure> {
        let (start, deadline) = batch.span();
        let mut send = || {
            self.exchange(start, deadline, |connection| {
                let (packed, count, deadline) = batch.seal();
                connection.send(packed, count, deadline)?;
                connection.receive_each(deadline, |outcome| batch.push_outcome(outcome))
            })
        };
        match send() {
            // The connection had died unnoticed, and nothing was sent on it.
            Err(Failure::NotSent(NotSentReason::Closed(_))) => send(),
            outcome => outcome,
        }
    }
}
