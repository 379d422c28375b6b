//! What the worker keeps alive.

use std::fmt;

use crate::base::loss::Loss;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::engine::lease::LiveLease;

/// Has a lease now and then, and wants the worker to look at it: a slot.
pub(crate) trait Tended: fmt::Debug + Send + Sync {
    /// Returns the lease that a thread has, live or not; another look is owed then. A linger whose time is
    /// over is ended.
    fn held(self: Arc<Self>, now: Moment) -> Option<Arc<LiveLease>>;

    /// Asks for another look then, if there still is a lease.
    fn look_again(self: Arc<Self>, due: Moment);

    /// Its lease was found lost, which the worker logs.
    fn lost(&self, lease: &LiveLease, loss: Loss);
}
