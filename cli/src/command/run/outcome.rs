//! How a run came to its end, and what the program's caller is told of it.

use std::fmt;
use std::process::ExitCode;

use super::report::JobEnd;
use super::signal;
use crate::failure::Failure;
use crate::status;

/// How a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ended(JobEnd),
    /// The job was killed, or told to end, as its lock was not sure any more.
    Cut,
    /// It was told to end, as it had held its lock for as long as it may.
    Overdue,
    /// The system did not run the program, for this reason.
    NotRun(i32),
    /// There was too little left of the lease.
    TooLate,
    /// The job succeeded, and there may be no record of that.
    Unrecorded,
}

/// For the record of a run that is done once.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Ended(JobEnd::Exited(code)) => write!(f, "exit status {code}"),
            Outcome::Ended(JobEnd::Killed(signal)) => write!(f, "signal {signal}"),
            Outcome::Cut => f.write_str("it was ended, as its lock was lost"),
            Outcome::Overdue => {
                f.write_str("it was ended, as it ran for as long as --max-hold allows")
            }
            Outcome::NotRun(_) => f.write_str("its program could not be run"),
            Outcome::TooLate => f.write_str("too little was left of its lease"),
            Outcome::Unrecorded => f.write_str("its success was not recorded"),
        }
    }
}

impl Outcome {
    /// Whether the job was ended from outside, because of its lock.
    pub(crate) fn is_cut(self) -> bool {
        matches!(self, Outcome::Cut | Outcome::Overdue)
    }

    /// The end of this process, after the end of a run.
    pub(crate) fn finish(self, program: &str) -> Result<ExitCode, Failure> {
        const NOT_FOUND: i32 = rustix::io::Errno::NOENT.raw_os_error();
        let why = |error| format!("{program}: {}", std::io::Error::from_raw_os_error(error));
        match self {
            Outcome::Ended(JobEnd::Exited(code)) => {
                Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
            }
            Outcome::Ended(JobEnd::Killed(signal)) => {
                // A shell script ends on Ctrl-C if the program that it waits for was ended by it.
                if signal == rustix::process::Signal::INT.as_raw() {
                    signal::die_of(signal);
                }
                Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX)))
            }
            Outcome::Cut | Outcome::Overdue => Ok(ExitCode::from(status::LOST)),
            Outcome::Unrecorded => Ok(ExitCode::from(status::UNKNOWN_OUTCOME)),
            Outcome::NotRun(NOT_FOUND) => Err(Failure::new(status::NOT_FOUND, why(NOT_FOUND))),
            Outcome::NotRun(error) => Err(Failure::new(status::NOT_EXECUTABLE, why(error))),
            Outcome::TooLate => {
                let text = "there was too little left of the lease to start the job; try again";
                Err(Failure::new(status::UNKNOWN_OUTCOME, text))
            }
        }
    }
}
