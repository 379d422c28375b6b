//! One line of the doctor's.

use std::fmt;

use serde_json::{Value, json};

use super::check::Check;
use super::rule;

/// How bad it is; the last is the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Fine,
    /// A warning that the user knows of.
    Accepted,
    /// It could not be asked.
    Unknown,
    /// Locks work, and a promise of theirs does not hold, or not always.
    Warning,
    /// A lock cannot be had.
    Fault,
}

impl Level {
    pub(super) fn word(self) -> &'static str {
        match self {
            Level::Fine => "ok",
            Level::Accepted => "accepted",
            Level::Unknown => "unknown",
            Level::Warning => "warning",
            Level::Fault => "fault",
        }
    }

    pub(super) fn status(self) -> u8 {
        match self {
            Level::Fine | Level::Accepted | Level::Unknown => 0,
            Level::Warning => 1,
            Level::Fault => 2,
        }
    }
}

/// What holds on a server, what that means for a lock, and how to mend it.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) check: Check,
    pub(super) level: Level,
    pub(super) seen: String,
    /// Empty where there is none.
    pub(super) consequence: String,
    pub(super) mend: String,
    /// Which one, in a cluster.
    pub(super) server: Option<String>,
}

impl Finding {
    pub(super) fn fine(check: Check, seen: impl Into<String>) -> Finding {
        Finding {
            check,
            level: Level::Fine,
            seen: seen.into(),
            consequence: String::new(),
            mend: String::new(),
            server: None,
        }
    }

    /// `why` is the refusal of a server, or another text.
    pub(super) fn unknown(check: Check, why: impl fmt::Display) -> Finding {
        let why = why.to_string();
        let why = match rule::missing(&why) {
            Some(rule) => format!("this user lacks {rule}"),
            None => why,
        };
        Finding {
            level: Level::Unknown,
            ..Finding::fine(check, format!("not known, because {why}"))
        }
    }

    pub(super) fn warning(check: Check, seen: impl Into<String>) -> Finding {
        Finding { level: Level::Warning, ..Finding::fine(check, seen) }
    }

    pub(super) fn fault(check: Check, seen: impl Into<String>) -> Finding {
        Finding { level: Level::Fault, ..Finding::fine(check, seen) }
    }

    /// Makes a warning of an accepted check count no more.
    pub(super) fn accept(&mut self, accepted: &[Check]) {
        if self.level == Level::Warning && accepted.contains(&self.check) {
            self.level = Level::Accepted;
        }
    }

    pub(super) fn so(mut self, consequence: impl Into<String>) -> Finding {
        self.consequence = consequence.into();
        self
    }

    pub(super) fn mend(mut self, mend: impl Into<String>) -> Finding {
        self.mend = mend.into();
        self
    }

    pub(super) fn json(&self) -> Value {
        let or_null = |text: &String| (!text.is_empty()).then(|| text.clone());
        json!({
            "check": self.check.word(),
            "server": self.server,
            "level": self.level.word(),
            "seen": self.seen,
            "consequence": or_null(&self.consequence),
            "mend": or_null(&self.mend),
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:8} {:12} {}", self.level.word(), self.check, self.seen)?;
        match &self.server {
            Some(server) => writeln!(f, " ({server})")?,
            None => writeln!(f)?,
        }
        for (title, text) in [("so", &self.consequence), ("mend", &self.mend)] {
            if !text.is_empty() {
                writeln!(f, "{:21} {title}: {text}", "")?;
            }
        }
        Ok(())
    }
}
