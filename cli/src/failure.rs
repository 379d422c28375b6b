//! What ends the command early: a text for people and a status for scripts.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

use leasehold::ErrorKind;

use crate::status;

#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    status: u8,
}

impl Failure {
    pub(crate) fn new(status: u8, text: impl Into<String>) -> Failure {
        Failure { text: text.into(), status }
    }

    /// The arguments ask for something that cannot be.
    pub(crate) fn usage(text: impl Into<String>) -> Failure {
        Failure::new(status::USAGE, text)
    }

    pub(crate) fn report(&self) -> ExitCode {
        // Without a text, what there is to say was printed.
        if !self.text.is_empty() {
            say(self);
        }
        ExitCode::from(self.status)
    }
}

/// Says it on the standard error, where that is not closed.
pub(crate) fn say(text: &impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "leasehold: {text}");
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<leasehold::Error> for Failure {
    fn from(error: leasehold::Error) -> Failure {
        let status = match error.kind() {
            ErrorKind::Config => status::USAGE,
            ErrorKind::Unreachable | ErrorKind::PoolExhausted => status::UNREACHABLE,
            ErrorKind::UnknownOutcome => status::UNKNOWN_OUTCOME,
            ErrorKind::Denied => status::DENIED,
            _ => status::INTERNAL,
        };
        Failure::new(status, error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        // A reader such as `head` that has seen enough is no failure worth a message.
        let text = match error.kind() {
            std::io::ErrorKind::BrokenPipe => String::new(),
            _ => error.to_string(),
        };
        Failure::new(status::INTERNAL, text)
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Error;

    use super::*;

    #[test]
    fn errors_have_the_documented_statuses() {
        let cases = [
            (ErrorKind::Config, 64),
            (ErrorKind::Unreachable, 69),
            (ErrorKind::PoolExhausted, 69),
            (ErrorKind::WrongType, 70),
            (ErrorKind::UnknownOutcome, 75),
            (ErrorKind::Denied, 77),
        ];
        for (kind, status) in cases {
            assert_eq!(Failure::from(Error::new(kind, "why")).status, status, "{kind:?}");
        }
    }
}
