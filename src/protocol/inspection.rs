//! What a server tells about a lock: who has it, and who waits for it.

use std::time::Duration;

use crate::base::id::Identity;
use crate::base::inspection::{HeldPart, Inspection, PermitCount, WaitingProcess};
use crate::base::share::Access;
use crate::protocol::holder::{ReportedHolder, ago, known};
use crate::protocol::lock_kind::{LockKind, Parts};
use crate::protocol::reply::unexpected;
use crate::wire::Value;
use crate::wire::failure::Failure;

/// How many waiters are listed at most.
pub(crate) const MOST_WAITERS: u64 = 1_000;

/// How much of a lock is to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// The owner's value alone. It takes a plain command of one key, so a node of a cluster replies also while its
    /// slot is being moved.
    Owners,
    /// And its lease and token.
    Holders,
    /// The waiters too.
    Waiters,
    /// The same, for a key that nobody has said is a lock of this kind: anything else is an error.
    Found,
}

/// What a server reports of one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) holders: Vec<ReportedHolder>,
    /// How many wait, if that is known.
    waiting: Option<usize>,
    /// The owner's value of each, and when it took its place, if that is known.
    waiters: Vec<(Vec<u8>, Option<u64>)>,
    permits: Option<PermitCount>,
    /// What the leader of an election says.
    word: Option<Vec<u8>>,
    micros: u64,
}

impl Report {
    /// Where no more than that was to be seen.
    pub(super) fn of_owners(owners: Vec<Vec<u8>>) -> Report {
        let holder = |owner: Vec<u8>| ReportedHolder {
            owner: owner.into(),
            ttl: None,
            last_token: None,
            micros: 0,
            overdue: None,
            part: HeldPart::Whole,
        };
        let holders = owners.into_iter().map(holder).collect();
        Report { holders, waiting: None, waiters: Vec::new(), permits: None, word: None, micros: 0 }
    }

    /// The same where the keys of some holders outlive their leases.
    pub(super) fn with_tails(mut self, kind: &dyn LockKind) -> Report {
        self.holders.iter_mut().for_each(|holder| holder.take_off(kind.tail(&holder.owner)));
        self
    }

    /// The description for people.
    pub(crate) fn identify(&self, kind: &dyn LockKind, identity: &Identity) -> Inspection {
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
            permits: self.permits,
            word: self.word.clone(),
            servers: Vec::new(),
        }
    }
}

/// Reads the reply to a kind's `inspect`.
pub(crate) fn report(parts: Parts, value: Value) -> Result<Report, Failure> {
    let odd = unexpected(&value);
    read(parts, value).ok_or(odd)
}

fn read(parts: Parts, value: Value) -> Option<Report> {
    let Value::Array(mut whole) = value else { return None };
    // Only weighted locks report limits.
    let [declared, limit, used] = match parts {
        Parts::Whole | Parts::Lead => [0; 3],
        Parts::Permits | Parts::Access => sums_of(whole.pop()?)?,
    };
    let word = if parts == Parts::Lead { word_of(whole.pop()?)? } else { None };
    let [micros, holders, waiting, waiters] = whole.try_into().ok()?;
    let Value::Int(micros) = micros else { return None };
    let micros = u64::try_from(micros).ok()?;
    let (Value::Array(holders), Value::Array(waiters)) = (holders, waiters) else { return None };
    let holder = |value| {
        let Value::Array(mut whole) = value else { return None };
        let part = part(&whole.split_off(whole.len().min(3)), parts)?;
        let [owner, ttl, token] = whole.try_into().ok()?;
        let (ttl, last_token) = (known(&ttl)?.map(Duration::from_millis), known(&token)?);
        let owner = text(owner)?.into();
        Some(ReportedHolder { owner, ttl, overdue: None, last_token, micros, part })
    };
    let waiter = |value| {
        let [owner, joined] = array(value)?;
        Some((text(owner)?, known(&joined)?))
    };
    Some(Report {
        holders: holders.into_iter().map(holder).collect::<Option<_>>()?,
        waiting: known(&waiting)?.and_then(|count| usize::try_from(count).ok()),
        waiters: waiters.into_iter().map(waiter).collect::<Option<_>>()?,
        permits: (declared != 0 && parts == Parts::Permits)
            .then_some(PermitCount { limit: bounded(limit), used: bounded(used) }),
        word,
        micros,
    })
}

/// The limit declared, the limit in force, the sum of the weights.
fn sums_of(value: Value) -> Option<[u64; 3]> {
    let sums = array::<3>(value)?;
    let sums: Vec<u64> = sums.iter().map(|sum| known(sum)?).collect::<Option<_>>()?;
    sums.try_into().ok()
}

/// What the leader says, in a list that is empty if that is nothing.
fn word_of(value: Value) -> Option<Option<Vec<u8>>> {
    let Value::Array(mut words) = value else { return None };
    match (words.pop(), words.is_empty()) {
        (None, _) => Some(None),
        (Some(word), true) => Some(Some(text(word)?)),
        _ => None,
    }
}

/// The part of a lock that a holder has, read from the values after its token.
fn part(numbers: &[Value], parts: Parts) -> Option<HeldPart> {
    let number = |value| known(value)?.and_then(|number| u32::try_from(number).ok());
    let numbers: Vec<u32> = numbers.iter().map(number).collect::<Option<_>>()?;
    match (parts, numbers.as_slice()) {
        (Parts::Whole | Parts::Lead, []) => Some(HeldPart::Whole),
        (Parts::Permits, _) => Some(HeldPart::Permits(numbers)),
        (Parts::Access, [0]) => Some(HeldPart::Access(Access::Read)),
        (Parts::Access, [1]) => Some(HeldPart::Access(Access::UpgradableRead)),
        (Parts::Access, [2]) => Some(HeldPart::Access(Access::Write)),
        _ => None,
    }
}

fn bounded(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn array<const N: usize>(value: Value) -> Option<[Value; N]> {
    let Value::Array(parts) = value else { return None };
    parts.try_into().ok()
}

fn text(value: Value) -> Option<Vec<u8>> {
    let Value::BulkString(text) = value else { return None };
    Some(text)
}
