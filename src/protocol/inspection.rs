//! What a server tells about a lock: who has it, and who waits for it.

use std::time::Duration;

use crate::base::id::Identity;
use crate::base::inspection::{Holder, Inspection, WaitingProcess};
use crate::base::sync::Arc;
use crate::base::token::FencingToken;
use crate::protocol::answer::unexpected;
use crate::protocol::recipe::Kind;
use crate::wire::Value;
use crate::wire::failure::Failure;

/// How many waiters are listed at most.
pub(crate) const MOST_WAITERS: u64 = 1_000;

/// How much of a lock is to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// The owner's value. Only the key of the lock is read, so a node of a cluster replies also while its slot is
    /// being moved.
    Owners,
    /// And its token.
    Holders,
    /// And who waits.
    Waiters,
}

/// A holder as a server reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReportedHolder {
    pub(crate) owner: Arc<[u8]>,
    /// How long its lease lasts; `None`: without an end.
    pub(crate) ttl: Option<Duration>,
    /// What the fence has, if that was to be seen. It is this holder's only if this library gave it the lock.
    pub(crate) last_token: Option<u64>,
    /// The server's time then, in microseconds.
    pub(crate) micros: u64,
}

/// What a server reports of one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) holders: Vec<ReportedHolder>,
    /// How many wait, if that is known.
    waiting: Option<usize>,
    /// The owner's value of each, and when it took its place, if that is known.
    waiters: Vec<(Vec<u8>, Option<u64>)>,
    micros: u64,
}

/// How long ago that was. A time that has not come yet tells nothing: the clock was set back.
fn ago(then: u64, now: u64) -> Option<Duration> {
    now.checked_sub(then).map(Duration::from_micros)
}

impl ReportedHolder {
    /// What people are told of it.
    pub(crate) fn identify(&self, kind: &dyn Kind, identity: &Identity) -> Holder {
        let origin = kind.origin(&self.owner, identity);
        // Of a holder that took the lock in another way the fence knows nothing.
        let token = self.last_token.filter(|_| origin.is_some());
        let token = token.and_then(|last| last.checked_sub(kind.reserved_tokens()));
        Holder {
            owner: self.owner.to_vec(),
            origin,
            since: token.and_then(|minted| ago(minted, self.micros)),
            token: token.map(FencingToken::new),
            ttl: self.ttl,
        }
    }
}

impl Report {
    /// What people are told.
    pub(crate) fn identify(&self, kind: &dyn Kind, identity: &Identity) -> Inspection {
        let waiter = |(index, (owner, joined)): (usize, &(Vec<u8>, Option<u64>))| WaitingProcess {
            owner: owner.clone(),
            origin: kind.origin(owner, identity),
            place: index + 1,
            since: joined.and_then(|joined| ago(joined, self.micros)),
        };
        Inspection {
            holders: self.holders.iter().map(|holder| holder.identify(kind, identity)).collect(),
            waiters: self.waiters.iter().enumerate().map(waiter).collect(),
            waiting: self.waiting,
            servers: Vec::new(),
        }
    }
}

/// Reads the reply to a kind's `inspect`.
pub(crate) fn report(value: Value) -> Result<Report, Failure> {
    let odd = unexpected(&value);
    read(value).ok_or(odd)
}

fn read(value: Value) -> Option<Report> {
    let [micros, holders, waiting, waiters] = parts(value)?;
    let Value::Int(micros) = micros else { return None };
    let micros = u64::try_from(micros).ok()?;
    let (Value::Array(holders), Value::Array(waiters)) = (holders, waiters) else { return None };
    let holder = |value| {
        let [owner, ttl, token] = parts(value)?;
        let (ttl, last_token) = (known(&ttl)?.map(Duration::from_millis), known(&token)?);
        Some(ReportedHolder { owner: text(owner)?.into(), ttl, last_token, micros })
    };
    let waiter = |value| {
        let [owner, joined] = parts(value)?;
        Some((text(owner)?, known(&joined)?))
    };
    Some(Report {
        holders: holders.into_iter().map(holder).collect::<Option<_>>()?,
        waiting: known(&waiting)?.and_then(|count| usize::try_from(count).ok()),
        waiters: waiters.into_iter().map(waiter).collect::<Option<_>>()?,
        micros,
    })
}

fn parts<const N: usize>(value: Value) -> Option<[Value; N]> {
    let Value::Array(parts) = value else { return None };
    parts.try_into().ok()
}

fn text(value: Value) -> Option<Vec<u8>> {
    let Value::BulkString(text) = value else { return None };
    Some(text)
}

/// A number, of which one below zero stands for what is not known.
pub(crate) fn known(value: &Value) -> Option<Option<u64>> {
    let Value::Int(number) = value else { return None };
    Some(u64::try_from(*number).ok())
}
