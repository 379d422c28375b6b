//! The record of a job: a hash beside its lock.
//!
//! | field | value |
//! | --- | --- |
//! | `form` | `1` |
//! | `done` | the last period that is done: its number, the length and the offset of its period, the server's time when the run began, and the run's token, with blanks between. Times are in microseconds |
//! | `done_by` | the owner's value of that run |
//! | `run`, `run_by` | the same of the last run, however it ended |
//! | `end` | how that ended: `running`, `succeeded` or `failed`, a blank, and the server's time |
//! | `reason` | why it failed, or empty |
//! | `tries` | how many runs have begun without a success in the period of time of the last run, that one included |
//! | `over` | the token of a run that ended without a word, and the server's time when that was noticed |
//! | `policy` | how the caller of the last run wanted retries: the least time between them, how many in a period, and how many missed periods to catch up; `-` for none |
//!
//! Only `done` decides whether a period is done, and only a success writes it. So a late write of any other field makes no
//! period run twice. The other fields decide whether a job that fails has to wait.

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::base::error::{Error, Result};
use crate::base::inspection::{HeldPart, Holder};
use crate::base::reserved;
use crate::base::text::clean;
use crate::base::time::millis;
use crate::kind::composition;
use crate::kind::once::period::{Schedule, time};
use crate::kind::once::policy::Policy;
use crate::kind::once::tally::Over;
use crate::kind::{Guard, Handle};
use crate::protocol::holder::ReportedHolder;
use crate::wire::failure::Failure;
use crate::wire::script::Script;
use crate::wire::{Cmd, Pipeline, Value};

static READ: Script = Script::new(composition::once::READ);
/// For a transaction, which has no digest of it.
const NOTE_OVER: &str = include_str!("over.lua");

const FORM: &[u8] = b"1";
const RUNNING: &str = "running";
const SUCCEEDED: &str = "succeeded";
const FAILED: &str = "failed";
/// The longest reason, in bytes.
const LONGEST_REASON: usize = 512;

/// A run: which, when, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) number: i64,
    pub(super) schedule: Schedule,
    /// The server's time when it began.
    pub(super) began: i64,
    pub(super) token: u64,
    /// The owner's value.
    pub(super) by: Vec<u8>,
}

impl Mark {
    fn text(&self) -> String {
        let Mark { number, schedule: Schedule { every, offset }, began, token, .. } = self;
        format!("{number} {every} {offset} {began} {token}")
    }

    fn read(text: &[u8], by: &[u8]) -> Option<Mark> {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        let mut next = || words.next()?.parse::<i64>().ok();
        let (number, every, offset, began) = (next()?, next()?, next()?, next()?);
        let token = u64::try_from(next()?).ok()?;
        let schedule = Schedule { every, offset };
        // Whatever wrote it: no later sum may overflow, and a length of 0 divides nothing.
        let is_sane = words.next().is_none() && every > 0 && (0..every).contains(&offset);
        let is_near = schedule.range(number).is_some() && time(began).is_some();
        (is_sane && is_near).then(|| Mark { number, schedule, began, token, by: by.to_vec() })
    }

    /// The number of its period by another schedule.
    pub(super) fn number_in(&self, schedule: Schedule) -> i64 {
        // By number and not by time: a server whose clock is set back must not find a period open that is
        // done. After a change of the period there is no number to compare, only the time of the run.
        if self.schedule == schedule { self.number } else { schedule.number(self.began) }
    }

    pub(super) fn period(&self) -> Range<SystemTime> {
        // It was checked where the number was made.
        self.schedule.range(self.number).unwrap_or(UNIX_EPOCH..UNIX_EPOCH)
    }

    pub(super) fn began(&self) -> SystemTime {
        time(self.began).unwrap_or(UNIX_EPOCH)
    }

    /// Who made the run.
    pub(super) fn holder(&self, handle: &Handle, now: i64) -> Holder {
        handle.identify(&ReportedHolder {
            overdue: None,
            owner: self.by.as_slice().into(),
            ttl: None,
            last_token: Some(self.token),
            micros: u64::try_from(now).unwrap_or(0),
            part: HeldPart::Whole,
        })
    }
}

/// How a run ended, as its record tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Running,
    Succeeded(i64),
    Failed(i64, String),
}

impl End {
    fn texts(&self) -> (String, &str) {
        match self {
            End::Running => (RUNNING.to_owned(), ""),
            End::Succeeded(at) => (format!("{SUCCEEDED} {at}"), ""),
            End::Failed(at, reason) => (format!("{FAILED} {at}"), shortened(reason)),
        }
    }

    fn read(text: &[u8], reason: &[u8]) -> Option<End> {
        let text = std::str::from_utf8(text).ok()?;
        if text == RUNNING {
            return Some(End::Running);
        }
        let (word, at) = text.split_once(' ')?;
        let at = at.parse().ok().filter(|&at| time(at).is_some())?;
        match word {
            SUCCEEDED => Some(End::Succeeded(at)),
            FAILED => Some(End::Failed(at, clean(&String::from_utf8_lossy(reason)).into_owned())),
            _ => None,
        }
    }
}

fn shortened(reason: &str) -> &str {
    let ends = reason.char_indices().map(|(at, letter)| at + letter.len_utf8());
    let end = ends.take_while(|&end| end <= LONGEST_REASON).last().unwrap_or(0);
    &reason[..end]
}

/// The record of a job at one moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// The server's time.
    pub(super) now: i64,
    pub(super) done: Option<Mark>,
    pub(super) run: Option<(Mark, End)>,
    pub(super) tries: u32,
    pub(super) over: Option<Over>,
    pub(super) policy: Policy,
}

impl Record {
    pub(super) fn read(handle: &Handle) -> Result<Record> {
        let key = key(handle);
        let call = READ.call(std::slice::from_ref(&key), []);
        let odd = || {
            Error::wrong_type(format!(
                "its record, the key \"{}\", holds something else, or a record of a later version; look what wrote it, or forget the record",
                key.escape_ascii()
            ))
            .of(handle.name())
        };
        match handle.look(&call) {
            Ok(value) => Record::of(value).ok_or_else(odd),
            Err(error) if error.is_wrong_type() => Err(odd().with_source(error)),
            Err(error) => Err(error),
        }
    }

    fn of(value: Value) -> Option<Record> {
        let Value::Array(parts) = value else { return None };
        let [Value::Int(now), Value::Int(fields), Value::Array(values)]: [Value; 3] =
            parts.try_into().ok()?
        else {
            return None;
        };
        time(now)?;
        if fields == 0 {
            return Some(Record { now, ..Record::default() });
        }
        let values: Vec<Option<Vec<u8>>> = values
            .into_iter()
            .map(|value| match value {
                Value::Nil => Some(None),
                Value::BulkString(text) => Some(Some(text)),
                _ => None,
            })
            .collect::<Option<_>>()?;
        let values: [Option<Vec<u8>>; 10] = values.try_into().ok()?;
        let [form, done, done_by, run, run_by, end, reason, tries, over, policy] = values;
        // A hash of something else is neither read nor written over, and no more one of a later version.
        if form? != FORM {
            return None;
        }
        let done = match done {
            Some(done) => Some(Mark::read(&done, &done_by?)?),
            None => None,
        };
        let run = (Mark::read(&run?, &run_by?)?, End::read(&end?, &reason?)?);
        let tries = std::str::from_utf8(&tries?).ok()?.parse().ok().filter(|&tries| tries > 0)?;
        let over = over.map_or(Some(None), |text| Over::read(&text).map(Some))?;
        Some(Record { now, done, run: Some(run), tries, over, policy: Policy::read(&policy?)? })
    }
}

/// The key of the record, in the hash slot of the lock.
fn key(handle: &Handle) -> Vec<u8> {
    handle.name().side_key(reserved::RECORD)
}

/// What a run writes of itself whenever it writes.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) mark: Mark,
    /// Which try it is, from 1 on.
    pub(super) tries: u32,
    pub(super) policy: Policy,
}

/// Writes how a run ended, if its lock is still its own.
pub(super) fn write(handle: &Handle, guard: &Guard, entry: &Entry, end: &End) -> Result<()> {
    let Entry { mark, tries, policy } = entry;
    let (key, run, (text, reason)) = (key(handle), mark.text(), end.texts());
    apply(handle, guard, |pipe| {
        let fields = pipe.cmd("HSET").arg(&key).arg("form").arg(FORM);
        fields.arg("run").arg(&run).arg("run_by").arg(&mark.by);
        fields.arg("end").arg(text).arg("reason").arg(reason);
        fields.arg("tries").arg(*tries).arg("policy").arg(policy.text());
        if matches!(end, End::Succeeded(_)) {
            fields.arg("done").arg(&run).arg("done_by").arg(&mark.by);
        }
        // Whatever becomes of the job, its record does not stay for ever.
        pipe.cmd("PEXPIRE").arg(&key).arg(millis(policy.keep(mark.schedule)));
    })
}

/// Writes that this run is over without an end, as another has its lock now and noticed that at this time.
pub(super) fn write_over(handle: &Handle, guard: &Guard, mark: &Mark, noticed: i64) -> Result<()> {
    let (key, over) = (key(handle), Over { token: mark.token, noticed });
    apply(handle, guard, |pipe| {
        pipe.cmd("EVAL").arg(NOTE_OVER).arg(1).arg(&key).arg(mark.text()).arg(over.text());
    })
}

/// Runs a transaction on the record. It may be repeated, unlike a user's: it sets fields to values, and only while the
/// lock is this guard's.
fn apply(handle: &Handle, guard: &Guard, build: impl FnOnce(&mut Pipeline)) -> Result<()> {
    // A command that fails inside a transaction does not fail the others.
    let refused = guard.transaction(build)?.into_iter().find_map(|reply| match reply {
        Value::ServerError(error) => Some(Failure::Refused(error.into())),
        _ => None,
    });
    refused.map_or(Ok(()), |refused| Err(Error::from(refused).of(handle.name())))
}

/// Deletes the record. Returns whether there was one.
pub(super) fn forget(handle: &Handle) -> Result<bool> {
    // Not twice: between the two another run could succeed, and its record would go.
    let key = key(handle);
    let mut delete = Cmd::new();
    delete.arg("DEL").arg(&key);
    let deleted = handle.call_once(&key, &delete)?;
    Ok(deleted == Value::Int(1))
}
