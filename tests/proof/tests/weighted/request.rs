//! Requests of the weighted lock as commands of Redis, and what replies and messages mean.

use ::redis::Value;

use crate::script::{Name, Scripts};

pub(crate) const LOCK: &str = "x";
pub(crate) const FENCE: &str = "{x}:fence";
pub(crate) const LINE: &str = "{x}:line";
pub(crate) const SIGNS: &str = "{x}:signs";
pub(crate) const KEYS: [&str; 4] = [LOCK, FENCE, LINE, SIGNS];

/// The limit of a read-write lock, and what an upgradable reader weighs.
pub(crate) const ALL: u64 = 1 << 32;
pub(crate) const UPGRADABLE: u64 = (1 << 31) + 1;

/// What an attempt asks for, or holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Weight {
    Permits(u16),
    Reader,
    Upgradable,
    Writer,
}

impl Weight {
    pub(crate) fn number(self) -> u64 {
        match self {
            Weight::Permits(permits) => permits.into(),
            Weight::Reader => 1,
            Weight::Upgradable => UPGRADABLE,
            Weight::Writer => ALL,
        }
    }

    fn word(self) -> String {
        match self {
            Weight::Permits(permits) => permits.to_string(),
            Weight::Reader => "r".to_owned(),
            Weight::Upgradable => "u".to_owned(),
            Weight::Writer => "w".to_owned(),
        }
    }

    fn read(word: &str) -> Weight {
        match word {
            "r" => Weight::Reader,
            "u" => Weight::Upgradable,
            "w" => Weight::Writer,
            permits => Weight::Permits(permits.parse().expect("permits")),
        }
    }
}

/// One attempt of one client, and for how many ms it is given its weight by a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Attempt {
    pub(crate) client: u8,
    pub(crate) number: u16,
    pub(crate) weight: Weight,
    pub(crate) window: u32,
}

impl Attempt {
    pub(crate) fn text(self) -> String {
        let Attempt { client, number, weight, window } = self;
        format!("1q:{client:x}:{number:x}:{window}:{}:1:host:label", weight.word())
    }

    /// The attempt whose value this is.
    pub(crate) fn read(text: &str) -> Attempt {
        let parts: Vec<&str> = text.split(':').collect();
        let hexadecimal = |digits| u16::from_str_radix(digits, 16).expect("a number");
        Attempt {
            client: u8::try_from(hexadecimal(parts[1])).expect("a client"),
            number: hexadecimal(parts[2]),
            window: parts[3].parse().expect("a window"),
            weight: Weight::read(parts[4]),
        }
    }
}

/// The channel of a client.
pub(crate) fn channel(client: u8) -> Vec<u8> {
    format!("leasehold:{client:x}").into_bytes()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Mode {
    Try,
    Join,
    Beat,
}

/// What a hold is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Become {
    Reader,
    Upgradable,
    Writer,
    /// The writer it waits to be.
    StillWriter,
}

/// What is asked. Spans are in ms, but for those after which a waiter is taken for dead; moments and those are
/// in µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    Acquire {
        attempt: Attempt,
        ttl: u32,
        mode: Mode,
        deadline: u64,
        dies_after: i64,
        line: u32,
        limit: u64,
    },
    Release {
        attempt: Attempt,
        ttl: u32,
        last_token: u64,
    },
    Renew {
        attempt: Attempt,
        ttl: u32,
    },
    Touch {
        attempt: Attempt,
    },
    Force {
        attempt: Attempt,
        deadline: u64,
        ttl: u32,
    },
    Change {
        attempt: Attempt,
        number: u64,
        to: Become,
        ttl: u32,
        dies_after: i64,
        line: u32,
    },
    Resize {
        limit: u64,
        declared: u64,
        deadline: u64,
        ttl: u32,
        /// How long the limit is kept after the last use.
        keep: u32,
    },
}

impl Request {
    /// The command that carries it out.
    pub(crate) fn words(&self, scripts: &Scripts) -> Vec<Vec<u8>> {
        let number = |number: u32| number.to_string();
        let is_rw = match *self {
            Request::Acquire { limit, .. } => limit == ALL,
            Request::Release { attempt, .. }
            | Request::Renew { attempt, .. }
            | Request::Touch { attempt }
            | Request::Force { attempt, .. }
            | Request::Change { attempt, .. } => !matches!(attempt.weight, Weight::Permits(_)),
            Request::Resize { .. } => false,
        };
        let (name, arguments) = match *self {
            Request::Acquire { attempt, ttl, mode, deadline, dies_after, line, limit } => {
                let mode = match mode {
                    Mode::Try => "try",
                    Mode::Join => "join",
                    Mode::Beat => "beat",
                };
                let (deadline, dies_after) = (deadline.to_string(), dies_after.to_string());
                let first = [attempt.text(), number(ttl), deadline, number(ttl)];
                let rest = [mode.to_owned(), dies_after, number(line), limit.to_string()];
                (Name::Acquire, [first, rest].concat())
            }
            Request::Release { attempt, ttl, last_token } => {
                (Name::Release, vec![attempt.text(), number(ttl), last_token.to_string()])
            }
            Request::Renew { attempt, ttl } => {
                (Name::Renew, vec![attempt.text(), number(ttl), number(0), number(ttl)])
            }
            Request::Touch { attempt } => (Name::Touch, vec![attempt.text()]),
            Request::Force { attempt, deadline, ttl } => {
                (Name::Force, vec![attempt.text(), deadline.to_string(), number(ttl)])
            }
            Request::Change { attempt, number: change, to, ttl, dies_after, line } => {
                let to = match to {
                    Become::Reader => "r",
                    Become::Upgradable => "u",
                    Become::Writer => "w",
                    Become::StillWriter => "beat",
                };
                let first = [attempt.text(), change.to_string(), to.to_owned()];
                let rest = [number(ttl), dies_after.to_string(), number(line)];
                (Name::Change, [first, rest].concat())
            }
            Request::Resize { limit, declared, deadline, ttl, keep } => {
                let [limit, deadline, declared] =
                    [limit, deadline, declared].map(|number| number.to_string());
                let rest = [number(ttl), declared, number(keep)];
                (Name::Resize, [limit, deadline].into_iter().chain(rest).collect())
            }
        };
        command(scripts.text(name, is_rw), arguments.iter().map(String::as_str))
    }
}

/// The command that runs a script.
pub(crate) fn command<'a>(script: &[u8], arguments: impl Iterator<Item = &'a str>) -> Vec<Vec<u8>> {
    let keys = KEYS.iter().copied();
    let words = [b"EVAL".to_vec(), script.to_vec(), b"4".to_vec()];
    let rest = keys.chain(arguments).map(|word| word.as_bytes().to_vec());
    words.into_iter().chain(rest).collect()
}

/// What a script returned.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Reply {
    Granted {
        token: u64,
        left: i64,
        waiters: u32,
        slots: Vec<u32>,
    },
    Busy {
        left: i64,
        ahead: u32,
    },
    Late,
    /// Not in the line.
    Gone,
    Config {
        declared: u64,
        limit: u64,
    },
    /// A release, a renewal, a force or a resize did it; so many wait.
    Done(u32),
    /// It does not hold.
    NotHeld,
    Changed {
        token: u64,
        waiters: u32,
    },
    /// Another change was made since.
    Stale,
    /// Memory is full.
    Refused,
}

impl Reply {
    pub(crate) fn read(request: &Request, value: Result<Value, String>) -> Reply {
        let numbers: Vec<i64> = match value {
            Ok(Value::Int(number)) => vec![number],
            Ok(Value::Array(parts)) => parts
                .iter()
                .map(|part| match part {
                    Value::Int(number) => *number,
                    // The holder of the lease that ends first.
                    Value::BulkString(_) => 0,
                    other => panic!("{request:?}: {other:?}"),
                })
                .collect(),
            Err(text) if text.starts_with("OOM") => return Reply::Refused,
            other => panic!("{request:?}: {other:?}"),
        };
        let positive = |number: i64| u64::try_from(number).expect("not negative");
        let count = |number: i64| u32::try_from(number).expect("a count");
        match (request, numbers.as_slice()) {
            (Request::Acquire { .. }, [1, token, left, _, waiters, slots @ ..]) => Reply::Granted {
                token: positive(*token),
                left: *left,
                waiters: count(*waiters),
                slots: slots.iter().map(|slot| count(*slot)).collect(),
            },
            (Request::Acquire { .. }, [0, left, _, ahead, 1, 0, -1]) => {
                Reply::Busy { left: *left, ahead: count(*ahead) }
            }
            (Request::Acquire { .. } | Request::Force { .. } | Request::Resize { .. }, [2, _]) => {
                Reply::Late
            }
            (Request::Acquire { .. }, [3, _]) => Reply::Gone,
            (Request::Acquire { .. } | Request::Resize { .. }, [4, declared, limit, _]) => {
                Reply::Config { declared: positive(*declared), limit: positive(*limit) }
            }
            (Request::Change { .. }, [1, token, _, waiters]) => {
                Reply::Changed { token: positive(*token), waiters: count(*waiters) }
            }
            (Request::Change { .. }, [0, left, _, 0, 1, 0, -1]) => {
                Reply::Busy { left: *left, ahead: 0 }
            }
            (Request::Change { .. }, [3, _]) => Reply::Stale,
            (Request::Change { .. }, [4, _]) => Reply::NotHeld,
            (Request::Renew { .. }, [1, _, waiters]) => Reply::Done(count(*waiters)),
            (Request::Renew { .. }, [0, _]) => Reply::NotHeld,
            (Request::Acquire { .. } | Request::Change { .. }, _) => {
                panic!("{request:?}: {numbers:?}")
            }
            (_, [1]) => Reply::Done(0),
            (Request::Resize { .. }, _) => panic!("{request:?}: {numbers:?}"),
            (_, [0]) => Reply::NotHeld,
            _ => panic!("{request:?}: {numbers:?}"),
        }
    }
}

/// A message to an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Message {
    pub(crate) client: u8,
    pub(crate) number: u16,
    pub(crate) says: Says,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Says {
    Granted {
        token: u64,
        at: u64,
        window: u32,
        waiters: u32,
        slots: Vec<u32>,
    },
    Upgraded {
        token: u64,
        change: u64,
        waiters: u32,
    },
    /// Its weight is above the limit in force.
    TooHeavy {
        limit: u64,
    },
    Retry,
    Wanted {
        waiters: u32,
    },
    Evicted,
}

impl Message {
    pub(crate) fn read(channel: &[u8], payload: &[u8]) -> Message {
        let (channel, payload) =
            (String::from_utf8_lossy(channel), String::from_utf8_lossy(payload));
        let client = channel.strip_prefix("leasehold:").expect("a client's channel");
        let parts: Vec<&str> = payload.split(' ').collect();
        let digits = |at: usize| parts[at].parse::<u64>().expect("digits");
        let count = |at: usize| u32::try_from(digits(at)).expect("a count");
        let says = match parts[0] {
            word @ ("g" | "s") => Says::Granted {
                token: digits(2),
                at: digits(3),
                window: count(4),
                waiters: count(5),
                slots: match word {
                    "s" => parts[6].split(',').map(|slot| slot.parse().expect("a slot")).collect(),
                    _ => Vec::new(),
                },
            },
            "u" => Says::Upgraded { token: digits(2), change: digits(4), waiters: count(5) },
            "c" => Says::TooHeavy { limit: digits(2) },
            "r" => Says::Retry,
            "w" => Says::Wanted { waiters: count(2) },
            "x" => Says::Evicted,
            _ => panic!("{payload:?}"),
        };
        assert_eq!(parts.last(), Some(&LOCK), "{payload:?}");
        Message {
            client: u8::from_str_radix(client, 16).expect("a client"),
            number: u16::from_str_radix(parts[1], 16).expect("a number"),
            says,
        }
    }
}
