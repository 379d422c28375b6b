//! The replies of the scripts, parsed.

use std::time::Duration;

use redis::{ErrorKind, RedisError, Value};

use crate::base::inspection::HeldPart;
use crate::base::share::PermitNumbers;
use crate::base::time::Moment;
use crate::protocol::holder::{ReportedHolder, known};
use crate::wire::connection::Reply;
use crate::wire::error_context::UNREADABLE;
use crate::wire::failure::Failure;

/// The reply to a request to take a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AcquireReply {
    /// The attempt has the lock.
    Granted(Granted),
    /// Another owner has it.
    Busy(Busy),
    /// Nobody has it, as far as is known: several attempts at the same moment share the votes.
    /// Contains the longest pause before the next try, by which the attempts drift apart.
    Split(Duration),
    /// The request ran after its deadline, and did nothing.
    Late,
    /// The attempt is no longer in the queue.
    Gone,
    /// It never fits: another limit was declared, or it asks for more than the limit in force.
    Refused { declared: u64, limit: u64 },
}

/// The outcome of one request for the lock.
#[derive(Debug)]
pub(crate) struct AcquireOutcome {
    pub(crate) outcome: Result<AcquireReply, Failure>,
    /// Whether the attempt is over without a grant: its votes were released at once, and those
    /// releases may arrive late. The next request needs another owner's value (rule 5).
    pub(crate) is_spent: bool,
}

impl AcquireOutcome {
    pub(crate) fn is_granted(&self) -> bool {
        matches!(self.outcome, Ok(AcquireReply::Granted(_)))
    }
}

/// What was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) token: u64,
    pub(crate) ttl: Duration,
    /// The moment from which `ttl` counts at the latest.
    pub(crate) sent: Moment,
    /// The server's time at the grant in microseconds, and a moment by which that time had passed.
    pub(crate) micros: u64,
    pub(crate) received: Moment,
    pub(crate) waiters: u32,
    pub(crate) permits: PermitNumbers,
}

/// What a reply says about another holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Busy {
    /// How long to wait for it from now on, at most; `None` if it has no end.
    pub(crate) ttl: Option<Duration>,
    /// Who it is.
    pub(crate) holder: ReportedHolder,
    /// How many wait before this attempt, at most.
    pub(crate) ahead: u32,
    /// Whether the holder hands over. If not, no message follows its release.
    pub(crate) hands_over: bool,
}

/// What Redis says about whether an owner has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The owner had it, and the request was carried out.
    Owned,
    /// The key is gone.
    Gone,
    /// Another owner has it.
    Taken,
}

/// What a release did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Released {
    pub(crate) ownership: Ownership,
    /// How many clients listen for releases of this lock, this one included. A hint: the server
    /// counts only those that are connected to it, and a kind without such a channel reports none.
    pub(crate) listeners: u32,
    /// As that of [`OwnershipReply`].
    pub(crate) fence: Option<u64>,
}

impl From<Ownership> for Released {
    fn from(ownership: Ownership) -> Released {
        Released { ownership, listeners: 0, fence: None }
    }
}

/// The ownership, and when the request was sent on the holder's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnershipReply {
    pub(crate) ownership: Ownership,
    pub(crate) sent: Moment,
    /// How many wait, where an exceeded limit counts as one who waits; `None` if the reply does not say.
    pub(crate) waiters: Option<u32>,
    /// The last token of a lock whose key is gone; `None` if the reply does not tell it.
    pub(crate) fence: Option<u64>,
}

impl OwnershipReply {
    /// One that tells nothing else.
    pub(crate) fn new(ownership: Ownership, sent: Moment) -> OwnershipReply {
        OwnershipReply { ownership, sent, waiters: None, fence: None }
    }
}

/// Parses the reply to a request to take a lock for `asked`. Returns the server's time in microseconds, too. The key of the
/// attempt has its `tail` to live besides.
pub(crate) fn acquired(
    reply: &Reply,
    asked: Duration,
    tail: Duration,
) -> Result<(AcquireReply, u64), Failure> {
    let odd = || unexpected(&reply.value);
    // The fast path of the script returns the token alone, which is the server's time then. It
    // grants what was asked for, so the rest is known here.
    if let Value::Int(now) = reply.value {
        let now = u64::try_from(now).map_err(|_| odd())?;
        let granted = Granted {
            token: now,
            ttl: asked,
            sent: reply.sent,
            micros: now,
            received: reply.received,
            waiters: 0,
            permits: None,
        };
        return Ok((AcquireReply::Granted(granted), now));
    }
    let span = |millis: i64| u64::try_from(millis).ok().map(Duration::from_millis);
    let count = |count: i64| u32::try_from(count).map_err(|_| odd());
    let time = |micros: i64| u64::try_from(micros).map_err(|_| odd());
    if let Value::Array(parts) = &reply.value
        && let [rest @ .., Value::BulkString(owner), last] = parts.as_slice()
    {
        let [Value::Int(0), Value::Int(ttl), Value::Int(now), Value::Int(ahead), hands_over] = rest
        else {
            return Err(odd());
        };
        let (ttl, micros) = (span(*ttl), time(*now)?);
        let last_token = known(last).ok_or_else(odd)?;
        let holder = ReportedHolder {
            owner: owner.as_slice().into(),
            ttl,
            // To other attempts it would be nobody.
            overdue: None,
            last_token,
            micros,
            part: HeldPart::Whole,
        };
        let hands_over = *hands_over == Value::Int(1);
        return Ok((
            AcquireReply::Busy(Busy { ttl, holder, ahead: count(*ahead)?, hands_over }),
            micros,
        ));
    }
    let numbers = numbers(&reply.value)?;
    match *numbers.as_slice() {
        [1, token, ttl, now, waiters, ref permits @ ..] => {
            let granted = Granted {
                token: time(token)?,
                // -1 if somebody has removed the key's time to live. Redis keeps the lock for
                // longer then, so what was asked for is safe.
                ttl: span(ttl).map_or(asked, |left| left.saturating_sub(tail)),
                sent: reply.sent,
                micros: time(now)?,
                received: reply.received,
                waiters: count(waiters)?,
                permits: numbered(permits).ok_or_else(odd)?,
            };
            let micros = granted.micros;
            Ok((AcquireReply::Granted(granted), micros))
        }
        [2, now] => Ok((AcquireReply::Late, time(now)?)),
        [3, now] => Ok((AcquireReply::Gone, time(now)?)),
        [4, declared, limit, now] => {
            let (declared, limit) = (time(declared)?, time(limit)?);
            Ok((AcquireReply::Refused { declared, limit }, time(now)?))
        }
        _ => Err(odd()),
    }
}

/// The reply to a change of a weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChangeReply {
    /// The hold has that weight. The token is a new one where it became the writer.
    Changed { token: Option<u64>, micros: u64, received: Moment, waiters: u32 },
    /// It waits to become the writer.
    Waits(Busy),
    /// A later change was made, or it does not wait any more.
    Stale,
    /// It does not hold the lock any more.
    Gone,
}

/// Parses the reply to a change of a weight.
pub(crate) fn changed(reply: &Reply) -> Result<ChangeReply, Failure> {
    let odd = || unexpected(&reply.value);
    if let Value::Array(parts) = &reply.value
        && let [Value::Int(0), ..] = parts.as_slice()
    {
        return match acquired(reply, Duration::ZERO, Duration::ZERO)?.0 {
            AcquireReply::Busy(busy) => Ok(ChangeReply::Waits(busy)),
            _ => Err(odd()),
        };
    }
    match *numbers(&reply.value)?.as_slice() {
        [1, token, now, waiters] => Ok(ChangeReply::Changed {
            token: read_token(token),
            micros: u64::try_from(now).map_err(|_| odd())?,
            received: reply.received,
            waiters: u32::try_from(waiters).map_err(|_| odd())?,
        }),
        [3, _] => Ok(ChangeReply::Stale),
        [4, _] => Ok(ChangeReply::Gone),
        _ => Err(odd()),
    }
}

/// The reply to a resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resized {
    Done,
    /// The request ran after its deadline, and did nothing. The server's time in microseconds.
    Late(u64),
    /// Another limit was declared for the name.
    Refused {
        declared: u64,
    },
}

/// Parses the reply to a resize.
pub(crate) fn resized(value: &Value) -> Result<Resized, Failure> {
    if *value == Value::Int(1) {
        return Ok(Resized::Done);
    }
    let number = |number: i64| u64::try_from(number).map_err(|_| unexpected(value));
    match *numbers(value)?.as_slice() {
        [2, now] => number(now).map(Resized::Late),
        [4, declared, _, _] => Ok(Resized::Refused { declared: number(declared)? }),
        _ => Err(unexpected(value)),
    }
}

/// Parses the reply that tells nothing but the ownership.
pub(crate) fn ownership(value: &Value) -> Result<Ownership, Failure> {
    match value {
        Value::Int(1) => Ok(Ownership::Owned),
        Value::Int(0) => Ok(Ownership::Gone),
        Value::Int(-1) => Ok(Ownership::Taken),
        other => Err(unexpected(other)),
    }
}

/// Parses the reply to a release. `has_channel` says whether its kind counts those who listen.
pub(crate) fn released(value: &Value, has_channel: bool) -> Result<Released, Failure> {
    let Value::Array(_) = value else { return ownership(value).map(Released::from) };
    match *numbers(value)?.as_slice() {
        // Without listeners the scripts return a plain 1, so a pair with 0 is another command's
        // reply.
        [1, listeners] if has_channel && listeners > 0 => {
            let listeners = u32::try_from(listeners).map_err(|_| unexpected(value))?;
            Ok(Released { ownership: Ownership::Owned, listeners, fence: None })
        }
        [0, 0, fence] => {
            Ok(Released { ownership: Ownership::Gone, listeners: 0, fence: read_token(fence) })
        }
        _ => Err(unexpected(value)),
    }
}

/// The token that a fence has, if it is one.
pub(crate) fn last_token(fence: &Value) -> Option<u64> {
    redis::from_redis_value_ref(fence).ok()
}

/// The token in this place of a reply; 0 stands for none.
fn read_token(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|&token| token > 0)
}

/// Parses the reply to a renewal, adds when that was sent, and notes the server's time. `counts` says whether its kind
/// counts those who wait.
pub(crate) fn renewed(reply: &Reply, counts: bool) -> Result<OwnershipReply, Failure> {
    let odd = || unexpected(&reply.value);
    let (owned, now, waiters, fence) = match *numbers(&reply.value)?.as_slice() {
        [1, now, waiters] if counts => (1, now, u32::try_from(waiters).ok(), None),
        // The token of a lock of several holders says nothing about one of them.
        [0, now, -1, fence] if !counts => (0, now, None, read_token(fence)),
        [owned, now] if owned != i64::from(counts) => (owned, now, Some(0), None),
        _ => return Err(odd()),
    };
    let ownership = ownership(&Value::Int(owned)).map_err(|_| odd())?;
    // A release has its number of listeners in this place, and no time is as small as such a number.
    let micros = u64::try_from(now).ok().filter(|&it| it > u64::from(u32::MAX)).ok_or_else(odd)?;
    reply.note_time(micros);
    Ok(OwnershipReply { ownership, sent: reply.sent, waiters, fence })
}

/// The numbers of permits.
fn numbered(permits: &[i64]) -> Option<PermitNumbers> {
    let permits =
        permits.iter().map(|&permit| u32::try_from(permit).ok()).collect::<Option<Vec<u32>>>()?;
    Some((!permits.is_empty()).then(|| permits.into()))
}

/// The reply to a forced release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forced {
    /// Whether the named owner had the lock, and now has lost it.
    Done(bool),
    /// The request ran after its deadline, and did nothing. The server's time in microseconds.
    Late(u64),
}

/// Parses the reply to a forced release.
pub(crate) fn forced(value: &Value) -> Result<Forced, Failure> {
    if let Value::Int(had @ (0 | 1)) = value {
        return Ok(Forced::Done(*had == 1));
    }
    match *numbers(value)?.as_slice() {
        [2, now] => u64::try_from(now).map(Forced::Late).map_err(|_| unexpected(value)),
        _ => Err(unexpected(value)),
    }
}

/// Parses a number of receivers: whether there were any.
pub(crate) fn flag(value: &Value) -> Result<bool, Failure> {
    match value {
        Value::Int(number) => Ok(*number > 0),
        other => Err(unexpected(other)),
    }
}

pub(crate) fn numbers(value: &Value) -> Result<Vec<i64>, Failure> {
    let Value::Array(parts) = value else { return Err(unexpected(value)) };
    parts
        .iter()
        .map(|part| match part {
            Value::Int(number) => Ok(*number),
            _ => Err(unexpected(value)),
        })
        .collect()
}

/// The failure for a reply that none of our scripts returns. It belongs to another command, so the
/// outcome of ours is unknown.
pub(crate) fn unexpected(value: &Value) -> Failure {
    // The value itself stays out of the error: it may be another caller's data.
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::Array(_) => "a list",
        _ => "something else",
    };
    Failure::Unknown(RedisError::from((
        ErrorKind::UnexpectedReturnType,
        UNREADABLE,
        kind.to_owned(),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(reply: &Reply) -> Result<(AcquireReply, u64), Failure> {
        acquired(reply, Duration::from_secs(9), Duration::ZERO)
    }

    fn answer(numbers: &[i64]) -> Result<(AcquireReply, u64), Failure> {
        let value = Value::Array(numbers.iter().map(|&number| Value::Int(number)).collect());
        let at = Moment::from_nanos(7);
        asked(&Reply { value, sent: at, received: at, clock: None })
    }

    /// Rule 46: what the script tells is the key's.
    #[test]
    fn tail_is_no_part_of_what_is_granted() {
        let at = Moment::from_nanos(7);
        let granted = |value| {
            let reply = Reply { value, sent: at, received: at, clock: None };
            match acquired(&reply, Duration::from_secs(3), Duration::from_secs(27)).unwrap().0 {
                AcquireReply::Granted(granted) => granted.ttl,
                other => panic!("{other:?}"),
            }
        };
        let told = |left| Value::Array([1, 5, left, 99, 0].map(Value::Int).into());
        assert_eq!(granted(Value::Int(77)), Duration::from_secs(3));
        assert_eq!(granted(told(29_000)), Duration::from_secs(2));
        assert_eq!(granted(told(26_000)), Duration::ZERO);
        assert_eq!(granted(told(-1)), Duration::from_secs(3));
    }

    #[test]
    fn replies_are_parsed_or_rejected() {
        let at = Moment::from_nanos(7);
        let granted = Granted {
            token: 5,
            ttl: Duration::from_millis(30),
            sent: at,
            micros: 99,
            received: at,
            waiters: 2,
            permits: None,
        };
        let with_permits = Granted { permits: Some([4, 0].into()), ..granted.clone() };
        for (numbers, granted) in
            [(&[1, 5, 30, 99, 2][..], granted.clone()), (&[1, 5, 30, 99, 2, 4, 0], with_permits)]
        {
            assert_eq!(answer(numbers).unwrap(), (AcquireReply::Granted(granted), 99));
        }
        let refused = AcquireReply::Refused { declared: 4, limit: 2 };
        assert_eq!(answer(&[4, 4, 2, 99]).unwrap(), (refused, 99));
        let owner = || Value::BulkString(b"a".to_vec());
        let busy = |parts: &[i64], last: &[Value]| {
            let numbers = parts.iter().map(|&number| Value::Int(number));
            let value = Value::Array(numbers.chain(last.iter().cloned()).collect());
            asked(&Reply { value, sent: at, received: at, clock: None })
        };
        let reported = ReportedHolder {
            owner: (*b"a").into(),
            ttl: None,
            overdue: None,
            last_token: Some(7),
            micros: 99,
            part: HeldPart::Whole,
        };
        let expected =
            |holder| AcquireReply::Busy(Busy { ttl: None, holder, ahead: 3, hands_over: true });
        let (found, now) = busy(&[0, -1, 99, 3, 1], &[owner(), Value::Int(7)]).unwrap();
        assert_eq!((found, now), (expected(reported.clone()), 99));
        let (found, _) = busy(&[0, -1, 99, 3, 1], &[owner(), Value::Int(-1)]).unwrap();
        assert_eq!(found, expected(ReportedHolder { last_token: None, ..reported }));
        for odd in [
            busy(&[0, -1, 99, 3, 1], &[owner()]),
            busy(&[0, -1, 99, 3, 1], &[Value::Int(7), owner()]),
            busy(&[0, -1, 99, 3, 1], &[owner(), Value::Nil]),
            busy(&[0, -1, 99, 3], &[owner(), Value::Int(7)]),
            busy(&[1, -1, 99, 3, 1], &[owner(), Value::Int(7)]),
            busy(&[0, -1, -99, 3, 1], &[owner(), Value::Int(7)]),
            answer(&[0, -1, 99, 3, 1]),
        ] {
            assert!(odd.unwrap_err().is_unknown());
        }
        assert_eq!(answer(&[2, 99]).unwrap(), (AcquireReply::Late, 99));
        let fresh = Reply { value: Value::Int(77), sent: at, received: at, clock: None };
        let (fresh, now) = asked(&fresh).unwrap();
        let ttl = Duration::from_secs(9);
        assert_eq!(
            fresh,
            AcquireReply::Granted(Granted { token: 77, ttl, micros: 77, waiters: 0, ..granted })
        );
        assert_eq!(now, 77);
        assert_eq!(answer(&[3, 99]).unwrap(), (AcquireReply::Gone, 99));
        for odd in [
            &[][..],
            &[1],
            &[1, -5, 30, 99, 0],
            &[1, 5, 30, 99, 0, -1],
            &[4, 1],
            &[0, 1, -9, 0, 0],
            &[2, -1],
        ] {
            assert!(answer(odd).unwrap_err().is_unknown(), "{odd:?}");
        }
        assert!(ownership(&Value::Nil).unwrap_err().is_unknown());
        assert!(ownership(&Value::Int(2)).unwrap_err().is_unknown());
        let heard = |by| Value::Array(vec![Value::Int(1), Value::Int(by)]);
        let owned = Released { listeners: 3, ..Released::from(Ownership::Owned) };
        assert_eq!(released(&heard(3), true).unwrap(), owned);
        assert!(released(&heard(3), false).unwrap_err().is_unknown(), "it has no channel");
        let renewal = |value| {
            let reply = Reply { value, sent: at, received: at, clock: None };
            [true, false].map(|counts| {
                renewed(&reply, counts).ok().map(|renewed| renewed.waiters.unwrap_or(99))
            })
        };
        const NOW: i64 = 1_795_248_287_440_246;
        let list = |numbers: &[i64]| {
            Value::Array(numbers.iter().map(|&number| Value::Int(number)).collect())
        };
        assert_eq!(renewal(list(&[1, NOW])), [None, Some(0)]);
        assert_eq!(renewal(list(&[1, NOW, 3])), [Some(3), None], "a mutex has no such reply");
        assert_eq!(renewal(list(&[1, NOW, -1])), [Some(99), None]);
        assert_eq!(renewal(list(&[-1, NOW])), [Some(0), Some(0)]);
        assert_eq!(renewal(list(&[0, NOW, 3])), [None, None]);
        assert_eq!(renewal(list(&[0, NOW])), [Some(0), None], "that of a mutex tells the fence");
        assert_eq!(renewal(list(&[0, NOW, -1, 7])), [None, Some(99)]);
        for (fence, told) in [(7, Some(7)), (0, None), (-7, None)] {
            let value = list(&[0, NOW, -1, fence]);
            let gone = Reply { value, sent: at, received: at, clock: None };
            let gone = renewed(&gone, false).unwrap();
            assert_eq!((gone.ownership, gone.fence), (Ownership::Gone, told));
            let gone = Released { fence: told, ..Released::from(Ownership::Gone) };
            for has_channel in [true, false] {
                assert_eq!(released(&list(&[0, 0, fence]), has_channel).unwrap(), gone);
            }
        }
        for odd in [list(&[2, NOW]), list(&[1, -NOW]), heard(3), Value::Int(1), Value::Nil] {
            assert_eq!(renewal(odd), [None, None], "no renewal is answered so");
        }
        let short = list(&[1]);
        for odd in [heard(0), heard(-1), heard(1 << 32), short, list(&[0, NOW]), list(&[1, 0, 7])] {
            assert!(released(&odd, true).unwrap_err().is_unknown(), "{odd:?}");
        }
        assert_eq!(forced(&Value::Int(1)).unwrap(), Forced::Done(true));
        let late = |now| Value::Array(vec![Value::Int(2), Value::Int(now)]);
        assert_eq!(forced(&late(9)).unwrap(), Forced::Late(9));
        for odd in [Value::Int(2), late(-1), Value::Nil] {
            assert!(forced(&odd).unwrap_err().is_unknown(), "{odd:?}");
        }
    }
}
