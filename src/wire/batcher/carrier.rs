//! How batches go over the pool.

use std::time::Duration;

use crate::base::time::Moment;
use crate::wire::batcher::batch::{Batch, Carrier};
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::pool::Pool;

impl Carrier for Pool {
    fn limit(&self, start: Moment) -> Moment {
        Pool::limit(self, start)
    }

    fn shortage(&self, waited: Duration) -> NotSentReason {
        Pool::shortage(self, waited)
    }

    fn carry(&self, batch: &mut Batch<'_>) -> Result<(), Failure> {
        let (start, deadline) = batch.span();
        let mut carry = || {
            self.exchange(start, deadline, |connection| {
                let (packed, count, deadline) = batch.seal();
                connection.send(packed, count, deadline)?;
                connection.receive_each(deadline, |outcome| batch.tell(outcome))
            })
        };
        match carry() {
            // The connection had died unnoticed, and nothing was sent on it.
            Err(Failure::NotSent(NotSentReason::Closed(_))) => carry(),
            outcome => outcome,
        }
    }
}
