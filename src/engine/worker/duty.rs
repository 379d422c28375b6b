//! What the worker is to do.

use crate::base::sync::{Arc, Weak};
use crate::base::time::Moment;
use crate::engine::callback::News;
use crate::engine::worker::give_back::GiveBack;
use crate::engine::worker::tended::Tended;

/// Work for the worker.
#[derive(Debug)]
pub(super) enum Duty {
    /// Look what the slot needs: a renewal, its hold count shown, the end of a lease or a linger.
    Look(Weak<dyn Tended>),
    /// Give it back for a thread that could not or need not do so itself.
    GiveBack(Arc<GiveBack>),
    /// Call the user back.
    Announce(News),
}

/// Work and when it is due.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) due: Moment,
    pub(super) duty: Duty,
}
