//! The requests of clients, and the replies and messages to them, at whole ticks of time.

/// A moment or a span, in ticks.
pub(crate) type Time = i16;
/// A token, or a server's time in the unit of tokens.
pub(crate) type Token = i64;

/// One attempt of one client, with the window and the tail that its value carries. The window there is the time to live
/// of the key, so the tail is a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Attempt {
    pub(crate) client: u8,
    pub(crate) number: u8,
    pub(crate) window: Time,
    pub(crate) tail: Time,
}

/// The actions of a client while another has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Mode {
    Try,
    Join,
    Beat,
}

/// A request to take the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Acquire {
    pub(crate) owner: Attempt,
    pub(crate) ttl: Time,
    pub(crate) mode: Mode,
    /// The last server's time at which it may run.
    pub(crate) deadline: Token,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Answer {
    Granted { token: Token, left: Time, now: Time, epoch: u8 },
    Busy { left: Time, now: Time },
    Late { now: Time },
    Gone { now: Time },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Ownership {
    Owned,
    Gone,
    Taken,
}

/// The message that a lock was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Grant {
    pub(crate) number: u8,
    pub(crate) token: Token,
    pub(crate) now: Time,
    pub(crate) window: Time,
    pub(crate) epoch: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Wake {
    Granted(Grant),
    Retry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Request {
    Acquire(Acquire),
    Release {
        owner: Attempt,
        ttl: Time,
        last_token: Option<Token>,
    },
    /// In its tail it yields to those in the line.
    Renew {
        owner: Attempt,
        ttl: Time,
        tail: Time,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Reply {
    Acquired(Answer),
    Ownership(Ownership),
    /// A renewal has yielded.
    Yielded,
}
