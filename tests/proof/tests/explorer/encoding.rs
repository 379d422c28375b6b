//! Requests as commands of Redis, and the meaning of its replies and messages.

use ::redis::Value;

use crate::protocol::{
    Acquire, Answer, Attempt, Grant, Mode, Ownership, Reply, Request, Time, Wake,
};
use crate::scenario::Setting;
use crate::unit::{
    micros, micros_of_token, millis, moment_of_micros, ticks_of_millis, token_of_micros,
};

pub(crate) const LOCK: &str = "x";
pub(crate) const FENCE: &str = "{x}:fence";
pub(crate) const QUEUE: &str = "{x}:queue";
pub(crate) const BEATS: &str = "{x}:beats";
/// Of an election only.
pub(crate) const WORD: &str = "{x}:word";
/// In a cluster a script is given this key too, which is never there, and counts no listeners.
pub(crate) const IN_A_CLUSTER: &str = "{x}:none";

/// The channel of a client.
pub(crate) fn channel(client: u8) -> Vec<u8> {
    format!("leasehold:{client:x}").into_bytes()
}

fn value(Attempt { client, number, window, tail }: Attempt, setting: &Setting) -> String {
    let letter = if setting.is_election { "e:" } else { "" };
    let (version, tail) = match tail {
        0 => (1, String::new()),
        tail => (2, format!("{}:", millis(tail))),
    };
    format!("{version}q:{client:x}:{number:x}:{}:{letter}{tail}1:h:", millis(window))
}

/// The attempt of an owner's value.
pub(crate) fn attempt(value: &[u8]) -> Attempt {
    let text = std::str::from_utf8(value).expect("a value of the explorer");
    let parts: Vec<&str> = text.split(':').collect();
    let number = |digits| u8::from_str_radix(digits, 16).expect("a number");
    let ticks = |digits| ticks_of_millis(integer(digits));
    let tail = match parts[0] {
        "2q" => ticks(parts[if parts[4] == "e" { 5 } else { 4 }]),
        _ => 0,
    };
    Attempt { client: number(parts[1]), number: number(parts[2]), window: ticks(parts[3]), tail }
}

pub(crate) fn integer(digits: &str) -> i64 {
    digits.parse().expect("an integer")
}

/// The arguments of the script that carries a request out.
pub(crate) fn arguments(request: &Request, setting: &Setting) -> Vec<String> {
    let fence = |ttl| millis(setting.fence(ttl)).to_string();
    match *request {
        Request::Acquire(Acquire { owner, ttl, mode, deadline }) => {
            let mode = match mode {
                Mode::Try => "try",
                Mode::Join => "join",
                Mode::Beat => "beat",
            };
            vec![
                value(owner, setting),
                millis(ttl).to_string(),
                micros_of_token(deadline, setting).to_string(),
                fence(ttl),
                mode.to_owned(),
                micros(setting.dead_after()).to_string(),
                millis(setting.queue_keep(ttl)).to_string(),
            ]
        }
        Request::Release { owner, ttl, last_token } => {
            let last_token = last_token.map_or(0, |token| micros_of_token(token, setting));
            let mut words = vec![value(owner, setting), fence(ttl), last_token.to_string()];
            // Whether somebody waits is a hint that may be wrong: so every other attempt gives it.
            words.extend((owner.number % 2 == 1).then(|| "wanted".to_owned()));
            words
        }
        Request::Renew { owner, ttl, tail } => {
            let holds = "0".to_owned();
            let mut words = vec![value(owner, setting), millis(ttl).to_string(), holds, fence(ttl)];
            words.extend((tail > 0).then(|| millis(tail).to_string()));
            words
        }
    }
}

/// The meaning of a script's reply.
pub(crate) fn reply(
    value: Value,
    request: &Request,
    now: Time,
    epoch: u8,
    setting: &Setting,
) -> Reply {
    let numbers: Vec<i64> = match value {
        Value::Int(number) => vec![number],
        // The holder stands behind them.
        Value::Array(parts) => parts.iter().map_while(integer_of).collect(),
        other => panic!("{other:?}"),
    };
    let granted = |token, left| {
        let token = token_of_micros(token, setting);
        Reply::Acquired(Answer::Granted { token, left, now, epoch })
    };
    match (request, numbers.as_slice()) {
        (Request::Acquire(acquire), [token]) => granted(*token, acquire.ttl),
        (Request::Acquire(_), [1, token, left, ..]) => granted(*token, ticks_of_millis(*left)),
        (Request::Acquire(_), [0, left, ..]) => {
            Reply::Acquired(Answer::Busy { left: ticks_of_millis((*left).max(0)), now })
        }
        (Request::Acquire(_), [2, _]) => Reply::Acquired(Answer::Late { now }),
        (Request::Acquire(_), [3, _]) => Reply::Acquired(Answer::Gone { now }),
        (Request::Renew { .. }, [1, _]) => Reply::Ownership(Ownership::Owned),
        (Request::Renew { .. }, [0, _, -1, _]) => Reply::Ownership(Ownership::Gone),
        (Request::Renew { .. }, [-1, _]) => Reply::Ownership(Ownership::Taken),
        (_, [1]) => Reply::Ownership(Ownership::Owned),
        (_, [0, 0, _]) => Reply::Ownership(Ownership::Gone),
        (_, [-1]) => Reply::Ownership(Ownership::Taken),
        (_, numbers) => panic!("{request:?} is no request with the reply {numbers:?}"),
    }
}

fn integer_of(part: &Value) -> Option<i64> {
    let Value::Int(number) = part else { return None };
    Some(*number)
}

/// The meaning of a message that is more than a hint.
pub(crate) fn wake(payload: &[u8], epoch: u8, setting: &Setting) -> Option<Wake> {
    let text = std::str::from_utf8(payload).expect("a message of the scripts");
    let parts: Vec<&str> = text.split(' ').collect();
    match *parts.as_slice() {
        ["g", number, token, now, window, ..] => Some(Wake::Granted(Grant {
            number: u8::from_str_radix(number, 16).expect("a number"),
            token: token_of_micros(integer(token), setting),
            now: moment_of_micros(integer(now), setting),
            window: ticks_of_millis(integer(window)),
            epoch,
        })),
        ["r", ..] => Some(Wake::Retry),
        // Somebody waits: a hint for lingering.
        ["w", ..] => None,
        _ => panic!("{text:?} is no message of these scripts"),
    }
}
