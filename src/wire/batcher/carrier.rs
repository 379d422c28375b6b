//! The way of a batch to the server and back.

use std::time::Duration;

use crate::base::time::Moment;
use crate::wire::batcher::batch::Batch;
use crate::wire::failure::{Failure, Hindrance};
use crate::wire::pool::Pool;

/// Takes batches to the server and back: the pool, except in tests.
pub(crate) trait Carrier {
    /// Until when a caller that came then waits for a connection, as things stand.
    fn limit(&self, start: Moment) -> Moment;

    /// Why there was no connection for a caller that waited for this long.
    fn shortage(&self, waited: Duration) -> Hindrance;

    /// Takes a batch to the server and back. A failure befalls all in it that have no outcome.
    fn carry(&self, batch: &mut Batch<'_>) -> Result<(), Failure>;
}

impl Carrier for Pool {
    fn limit(&self, start: Moment) -> Moment {
        Pool::limit(self, start)
    }

    fn shortage(&self, waited: Duration) -> Hindrance {
        Pool::shortage(self, waited)
    }

    fn carry(&self, batch: &mut Batch<'_>) -> Result<(), Failure> {
        let (start, deadline) = batch.span();
        let mut carry = || {
            self.exchange_since(start, deadline, |connection| {
                let (packed, count, deadline) = batch.seal();
                connection.send(packed, count, deadline)?;
                connection.receive_each(deadline, |outcome| batch.tell(outcome))
            })
        };
        match carry() {
            // The connection had died unnoticed, and nothing was sent on it.
            Err(Failure::NotSent(Hindrance::Closed(_))) => carry(),
            outcome => outcome,
        }
    }
}
