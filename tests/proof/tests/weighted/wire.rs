//! What is under way between clients and the server, at whole ticks.

use crate::request::Become;
use crate::scenario::Time;

/// An attempt of a client: its weight and window are in the client's plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) client: u8,
    pub(crate) number: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Ask {
    Try { id: Id, sent: Time, by: Time },
    Join { id: Id, sent: Time, by: Time },
    Beat { id: Id, sent: Time, by: Time },
    Release { id: Id },
    Leave { id: Id },
    Renew { id: Id, sent: Time },
    Change { id: Id, number: u8, to: Become },
    Resize { limit: u8, by: Time },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Answer {
    Waits {
        id: Id,
        sent: Time,
        at: Time,
    },
    Granted {
        id: Id,
        sent: Time,
        left: Time,
        grant: Grant,
    },
    Gone {
        id: Id,
    },
    /// Another limit, a weight above the limit, or a memory that is full.
    Refused {
        id: Id,
        is_full: bool,
    },
    Busy {
        id: Id,
        sent: Time,
    },
    Released {
        id: Id,
        at: Time,
    },
    Left {
        id: Id,
        at: Time,
    },
    Renewed {
        id: Id,
        sent: Time,
        is_done: bool,
    },
    Changed {
        id: Id,
        number: u8,
        token: u64,
        since: Since,
    },
    UpgradeWaits {
        id: Id,
        number: u8,
    },
    NotChanged {
        id: Id,
        number: u8,
        is_held: bool,
    },
    /// Nobody needs it.
    Nothing,
}

/// The token and the slots, and the limit that was in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Grant {
    pub(crate) token: u64,
    /// A bit for each.
    pub(crate) slots: u32,
    pub(crate) since: Since,
}

/// When a weight was given, and the limit that was in force then. A repeated request has a later token, and the
/// weight since the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Since {
    /// The last token of all, after it was given.
    pub(crate) token: u64,
    pub(crate) limit: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Push {
    Granted { id: Id, at: Time, window: Time, grant: Grant },
    Upgraded { id: Id, number: u8, token: u64, since: Since },
    TooHeavy { id: Id },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Load {
    Ask(Ask),
    Answer(Answer),
    Push(Push),
}
