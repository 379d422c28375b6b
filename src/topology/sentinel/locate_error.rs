//! Why sentinels do not tell where the master is.

use redis::{ErrorKind, RedisError};

use crate::wire::endpoint::{self, Endpoint};
use crate::wire::error_context::{by_sentinel, is_tls_fault, words};
use crate::wire::failure::is_denial;

/// Why sentinels did not tell where the master is.
#[derive(Default)]
pub(super) struct LocateErrors {
    /// How many watch no master of this name.
    unknown_masters: usize,
    /// How many refuse this user, or could not be agreed with on TLS, and what the last of them said.
    refusals: usize,
    refusal: Option<RedisError>,
    last: Option<RedisError>,
}

impl LocateErrors {
    pub(super) fn note_down(&mut self) {
        let text = "a sentinel reports that the master is down".to_owned();
        self.last = Some(RedisError::from((ErrorKind::Io, "the master is down", text)));
    }

    pub(super) fn note(&mut self, node: &Endpoint, error: RedisError) {
        if error.detail().is_some_and(|text| text.contains("No such master")) {
            self.unknown_masters += 1;
        }
        if is_denial(&error) {
            self.refusals += 1;
            self.refusal = Some(by_sentinel(&error, &endpoint::address(node)));
        }
        if is_tls_fault(&error) {
            self.refusals += 1;
            self.refusal = Some(error.clone());
        }
        self.last = Some(error);
    }

    /// Why none of so many told where the master of this name is.
    pub(super) fn trouble(self, count: usize, master: &str) -> RedisError {
        if self.unknown_masters == count {
            let text = match count {
                1 => format!("the sentinel watches no master \"{master}\""),
                _ => format!("none of {count} sentinels watches a master \"{master}\""),
            };
            return RedisError::from((ErrorKind::InvalidClientConfig, "the master's name", text));
        }
        // As long as others may yet tell something of the master, it may be over soon.
        let refused = self.unknown_masters + self.refusals == count;
        if let Some(refusal) = self.refusal.clone().filter(|_| refused) {
            return refusal;
        }
        let outdated = || "what they reported is out of date".to_owned();
        let reason = self.refusal.or(self.last).map_or_else(outdated, |error| words(&error));
        let text = match count {
            1 => format!("the sentinel did not report the master: {reason}"),
            _ => format!("none of {count} sentinels reported the master: {reason}"),
        };
        RedisError::from((ErrorKind::Io, "where the master is", text))
    }
}
