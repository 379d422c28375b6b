//! Why sentinels do not report the master.

use redis::{ErrorKind, RedisError};

use crate::wire::endpoint::{self, Endpoint};
use crate::wire::error_context::{by_sentinel, is_tls_fault, words};
use crate::wire::failure::is_denial;

/// Why sentinels did not report the master.
#[derive(Default)]
pub(super) struct LocateErrors {
    /// How many watch no master of this name.
    unknown_masters: usize,
    /// How many refuse this user or a TLS handshake, and the last such error.
    refusals: usize,
    refusal: Option<RedisError>,
    last: Option<RedisError>,
}

impl LocateErrors {
    pub(super) fn note(&mut self, node: &Endpoint, error: RedisError) {
        // Sentinel has no code for this: the text is all there is.
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

    /// The error if none of `count` sentinels reported the master of this name.
    pub(super) fn trouble(self, count: usize, master: &str) -> RedisError {
        // A wrong name is a setting to mend, if all sentinels agree. A single one may have been
        // reset.
        if self.unknown_masters == count {
            let text = match count {
                1 => format!("the sentinel watches no master \"{master}\""),
                _ => format!("none of {count} sentinels watches a master \"{master}\""),
            };
            return RedisError::from((ErrorKind::InvalidClientConfig, "the master's name", text));
        }
        // A refusal is lasting, and callers do not wait for its end. So it is returned only if no
        // other sentinel is left that may report the master soon.
        let refused = self.unknown_masters + self.refusals == count;
        if let Some(refusal) = self.refusal.clone().filter(|_| refused) {
            return refusal;
        }
        let outdated = || "what they reported is out of date".to_owned();
        let reason = self.refusal.or(self.last).map_or_else(outdated, |error| words(&error));
        let text = match count {
            1 => format!("the sentinel did not report the master \"{master}\": {reason}"),
            _ => format!("none of {count} sentinels reported the master \"{master}\": {reason}"),
        };
        RedisError::from((ErrorKind::Io, "where the master is", text))
    }
}

/// The error if a quorum of sentinels considers the master down.
pub(super) fn master_down(master: &str, address: &str) -> RedisError {
    // Sentinels with an old password of the master cannot reach it, although it works. No fail-over cures that.
    let text = format!(
        "the sentinels report that the master \"{master}\" at {address} is down (o_down); if it works, they may \
         have an old password of it (SENTINEL SET {master} auth-pass …)"
    );
    RedisError::from((ErrorKind::Io, "the master is down", text))
}
