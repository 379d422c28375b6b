//! What ends the command early: a text for people and a status for scripts.

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

    #[expect(clippy::print_stderr, reason = "the program's own message")]
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("leasehold: {}", self.text);
        ExitCode::from(self.status)
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
        Failure { text: error.to_string(), status }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure { text: error.to_string(), status: status::INTERNAL }
    }
}
