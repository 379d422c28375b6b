//! Sends batches over the pool.

use std::time::Duration;

use crate::base::time::Moment;
use crate::wire::batcher::{Batch, BatchSender};
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
        // `start` is the leader's arrival, not now: its wait for a place counts towards `max_wait`,
        // too.
        let (start, deadline) = batch.span();
        let mut send = || {
            self.with_connection(start, deadline, |connection| {
                // Sealed with the connection in hand: the command of a caller that has given up
                // during the wait for it must not be sent.
                let (packed, count, deadline) = batch.seal();
                connection.send(packed, count, deadline)?;
                connection.receive_each(deadline, |outcome| batch.push_outcome(outcome))
            })
        };
        match send() {
            // A pooled connection had died unnoticed. Nothing was sent, so this is no repetition in
            // the sense of rule 31. Once only, or a server that closes each connection would keep
            // the batch here.
            Err(Failure::NotSent(NotSentReason::Closed(_))) => send(),
            outcome => outcome,
        }
    }
}
