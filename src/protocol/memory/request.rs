//! What the scripts are asked, as values: requests that can be kept, delayed and compared.

use std::time::Duration;

use crate::base::time::millis;
use crate::protocol::errand::{Errand, Task};
use crate::protocol::request::{Attempt, Mode};
use crate::protocol::target::Target;
use crate::protocol::target::{SHORTEST_FENCE, fence, queue};
use crate::wire::Value;

use super::store::{Published, Run, Store, WrongType};

/// One request, with the arguments of the script that serves it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    /// To take the lock, or to queue up for it.
    Acquire {
        owner: Vec<u8>,
        /// Milliseconds, as all times to live are.
        ttl: u64,
        /// Server time in microseconds; 0: not known.
        deadline: u64,
        fence: u64,
        mode: Mode,
        /// Microseconds.
        dies_after: u64,
        queue: u64,
    },
    /// To give it back, or to leave the queue.
    Release {
        owner: Vec<u8>,
        fence: u64,
        /// 0: the one minted.
        last_token: u64,
    },
    /// To delete it if it is still the owner's, and hand over to nobody: the transaction of
    /// [`Release::watch`](crate::Release::watch).
    Delete {
        owner: Vec<u8>,
        fence: u64,
        /// 0: the one minted.
        last_token: u64,
    },
    Renew {
        owner: Vec<u8>,
        ttl: u64,
        count: u32,
        fence: u64,
    },
    /// To take it from an owner.
    Force {
        owner: Vec<u8>,
        /// Server time in microseconds.
        deadline: u64,
        fence: u64,
    },
    /// To ask the holder to let go.
    Ask,
    /// Who holds it.
    Inspect,
}

impl Request {
    pub(crate) fn acquire(attempt: &Attempt<'_>, deadline_micros: u64) -> Request {
        Request::Acquire {
            owner: attempt.owner.to_vec(),
            ttl: millis(attempt.ttl),
            deadline: deadline_micros,
            fence: fence(attempt.ttl),
            mode: attempt.mode,
            dies_after: u64::try_from(attempt.dies_after.as_micros()).unwrap_or(u64::MAX),
            queue: queue(attempt),
        }
    }

    pub(crate) fn release(owner: &[u8], ttl: Duration, last_token: Option<u64>) -> Request {
        let last_token = last_token.unwrap_or(0);
        Request::Release { owner: owner.to_vec(), fence: fence(ttl), last_token }
    }

    pub(crate) fn delete(owner: &[u8], ttl: Duration, last_token: Option<u64>) -> Request {
        let last_token = last_token.unwrap_or(0);
        Request::Delete { owner: owner.to_vec(), fence: fence(ttl), last_token }
    }

    pub(crate) fn renew(owner: &[u8], ttl: Duration, count: u32) -> Request {
        Request::Renew { owner: owner.to_vec(), ttl: millis(ttl), count, fence: fence(ttl) }
    }

    pub(crate) fn force(owner: &[u8], deadline_micros: u64) -> Request {
        let (owner, deadline) = (owner.to_vec(), deadline_micros);
        Request::Force { owner, deadline, fence: fence(SHORTEST_FENCE) }
    }

    pub(crate) fn of(errand: &Errand<'_>) -> Request {
        match errand.task {
            Task::Renew { ttl, count } => Request::renew(errand.owner, ttl, count),
            Task::Release { ttl, last_token } => Request::release(errand.owner, ttl, last_token),
        }
    }
}

/// What a kind of lock answers to requests, and does for them, as its scripts do.
pub(crate) type Scripts =
    fn(run: &mut Run<'_>, keys: &[Vec<u8>], request: &Request) -> Result<Value, WrongType>;

impl Store {
    /// Serves a request for a lock at a moment of the server.
    pub(crate) fn serve(
        &mut self,
        target: &Target,
        request: &Request,
        micros: u64,
    ) -> (Result<Value, WrongType>, Vec<Published>) {
        let mut run = self.at(micros);
        let answer = match target.kind().in_memory() {
            Some(scripts) => scripts(&mut run, target.keys(), request),
            None => Err(WrongType),
        };
        (answer, run.into_published())
    }
}
