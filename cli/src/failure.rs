//! What ends the command early: a text for people and a status for scripts.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

use leasehold::ErrorKind;
use serde_json::json;

use crate::name::Message;
use crate::report::json;
use crate::status;

/// The library's setting of the authorities to trust.
const AUTHORITY_SETTING: &str = "ca_certificate";
/// The end of the library's text about a command or a key that the user may not use. Most refusals name neither.
const MISSING_RULE: &str = "add it to the user's ACL";

#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    status: u8,
    /// Whether it is also reported as a JSON document.
    is_json: bool,
}

impl Failure {
    pub(crate) fn new(status: u8, text: impl Into<String>) -> Failure {
        // The name of a file is an argument, and the text of an error may come from anywhere.
        let text = Message(&text.into()).to_string();
        Failure { text, status, is_json: false }
    }

    /// The arguments ask for something that cannot be.
    pub(crate) fn usage(text: impl Into<String>) -> Failure {
        Failure::new(status::USAGE, text)
    }

    /// Adds a hint for those who cannot reach the server.
    pub(crate) fn hint(mut self, hint: &str) -> Failure {
        if self.status == status::UNREACHABLE {
            self.text += hint;
        }
        self
    }

    /// The same for a program that reads JSON, if it does.
    pub(crate) fn in_json(self, is_json: bool) -> Failure {
        Failure { is_json, ..self }
    }

    pub(crate) fn report(&self) -> ExitCode {
        // Without a text, what there is to say was printed.
        if !self.text.is_empty() {
            if self.is_json {
                // Nothing is to be done about a closed output.
                let _ =
                    json::print(json!({ "error": { "status": self.status, "text": self.text } }));
            }
            say(self);
        }
        ExitCode::from(self.status)
    }
}

/// Says it on the standard error, where that is not closed.
pub(crate) fn say(text: &impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "leasehold: {}", Message(&text.to_string()));
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
        let mut text = error.to_string();
        if status == status::DENIED && text.ends_with(MISSING_RULE) {
            text += "; leasehold doctor shows what is missing (see its --name and --kind)";
        }
        // A certificate that no trusted authority signed. The library names its own setting.
        match text.contains(AUTHORITY_SETTING) {
            true => Failure::new(status::UNREACHABLE, text.replace(AUTHORITY_SETTING, "--ca")),
            false => Failure::new(status, text),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        match error.kind() {
            // A reader such as `head` that has seen enough is no failure.
            std::io::ErrorKind::BrokenPipe => Failure::new(status::DONE, ""),
            _ => Failure::new(status::INTERNAL, error.to_string()),
        }
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
