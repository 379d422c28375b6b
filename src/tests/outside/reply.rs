//! Replies of servers: the bytes of a connection, and what the readers of all scripts make of the values in them.

use std::io::Read;
use std::time::Duration;

use leasehold_support::fuzz::Target;

use super::{bounded, is_error, is_shown, variant};
use crate::base::error::Error;
use crate::base::id::Identity;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::kind::{KINDS, SHARED_KINDS};
use crate::protocol::inspection::report;
use crate::protocol::lock_kind::LockKind;
use crate::protocol::reply::{
    AcquireReply, ChangeReply, acquired, changed, flag, forced, numbers, ownership, released,
    renewed, resized,
};
use crate::wire::Value;
use crate::wire::connection::Reply;
use crate::wire::error_context::{Limit, locate};
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::server_clock::{ServerClock, micros_of};

const WORDS: &[&str] = &[
    "\r\n",
    "*1\r\n",
    "*2\r\n",
    "*4096\r\n",
    ":0\r\n",
    ":1\r\n",
    ":-1\r\n",
    "$-1\r\n",
    "$1\r\na\r\n",
    "$6\r\n1q:1:1\r\n",
    "+OK\r\n",
    "_\r\n",
    "%1\r\n",
    "~1\r\n",
    ">2\r\n",
    "|1\r\n",
    "=7\r\ntxt:abc\r\n",
    "#t\r\n",
    ",1.5\r\n",
    "(99\r\n",
    "-ERR ",
    "-MOVED 1 a:1\r\n",
    "-WRONGTYPE ",
    "!5\r\nERR x\r\n",
];
/// What the driver may take at a time. It takes room for as many elements as a list announces, but for no more than 4,096
/// of them, and lists lie in one another up to a depth of 100.
const ROOM: u64 = 100 * 4_096 * size_of::<Value>() as u64 + (1 << 20);
/// How many values of an input are read.
const MOST_VALUES: usize = 8;

/// The values in these bytes, which come in pieces as from a socket.
fn values(input: &[u8]) -> Vec<Value> {
    struct Pieces<'a>(&'a [u8]);
    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let length = into.len().min(7);
            self.0.read(&mut into[..length])
        }
    }
    let (mut parser, mut bytes) = (redis::Parser::new(), Pieces(input));
    let parsed = std::iter::from_fn(|| parser.parse_value(&mut bytes).ok());
    parsed.take(MOST_VALUES).collect()
}

/// Shows what is made of a failure, wherever it happens.
fn fails(failure: Failure) -> String {
    is_error(&Error::from(failure))
}

fn outcome<T>(read: Result<T, Failure>, shape: impl FnOnce(T) -> String) -> String {
    read.map_or_else(fails, shape)
}

/// What all readers make of a value.
fn readers(value: &Value, identity: &Identity) -> String {
    let clock = Arc::new(ServerClock::default());
    let (sent, received) = (Moment::from_nanos(7_000_000_000), Moment::from_nanos(7_001_000_000));
    let reply = |value: &Value| Reply {
        value: value.clone(),
        sent,
        received,
        clock: Some((Arc::clone(&clock), 0)),
    };
    let kinds: Vec<&dyn LockKind> = KINDS.iter().chain(&SHARED_KINDS).copied().collect();
    let mut shape = outcome(
        acquired(&reply(value), Duration::from_secs(30), Duration::from_secs(27)),
        |(read, micros)| {
            reply(value).note_time(micros);
            if let AcquireReply::Busy(busy) = &read {
                for kind in &kinds {
                    is_shown(&format!("{:?}", busy.holder.identify(*kind, identity)));
                }
            }
            variant(&read)
        },
    );
    shape += &outcome(changed(&reply(value)), |read| {
        if let ChangeReply::Waits(busy) = &read {
            is_shown(&format!("{:?}", busy.holder.identify(kinds[0], identity)));
        }
        variant(&read)
    });
    shape += &outcome(resized(value), |read| variant(&read));
    shape += &outcome(ownership(value), |read| variant(&read));
    for counts in [true, false] {
        shape += &outcome(released(value, counts), |read| variant(&read.ownership));
        shape += &outcome(renewed(&reply(value), counts), |read| variant(&read.ownership));
    }
    shape += &outcome(forced(value), |read| variant(&read));
    shape += &outcome(flag(value), |read| read.to_string());
    shape += &outcome(numbers(value), |read| read.len().min(8).to_string());
    for kind in kinds {
        shape += &outcome(report(kind.parts(), value.clone()), |seen| {
            is_shown(&seen.identify(kind, identity).to_string());
            "seen".to_owned()
        });
        shape += &outcome(kind.owners(value.clone()), |owners| owners.len().min(2).to_string());
    }
    if let Some(micros) = micros_of(value) {
        reply(value).note_time(micros);
    }
    // Whatever the server says the time is, the deadlines of requests are some time.
    let _ = clock.deadline(received.after(Duration::from_secs(30)));
    shape
}

/// What becomes of an error of the server, in a reply and while connecting.
fn refusal(value: &Value) -> Option<String> {
    let Value::ServerError(error) = value else { return None };
    let error = || redis::RedisError::from(error.clone());
    let limit = Limit::from(Duration::from_secs(1));
    let located = || locate(error(), "10.0.0.7:6379", limit);
    let all = [
        Failure::Refused(error()),
        Failure::Refused(located()),
        Failure::Unknown(located()),
        Failure::NotSent(NotSentReason::Connect(located())),
        Failure::NotSent(NotSentReason::Closed(located())),
    ];
    Some(all.map(fails).join(" "))
}

#[test]
fn reply_of_any_bytes_is_read_or_refused() {
    let identity = Identity::new("here");
    Target::new("reply").words(WORDS).run(|input| {
        let values = bounded(input, ROOM, || values(input));
        let mut shape = values.len().to_string();
        for value in values {
            // What was read is in memory already, and what is made of it is no longer.
            shape = bounded(input, ROOM, || {
                refusal(&value).unwrap_or_else(|| readers(&value, &identity))
            });
        }
        shape
    });
}
