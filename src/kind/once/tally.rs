//! What a record has of the runs that failed.

/// A run that ended without a word, as the next holder of its lock noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Over {
    pub(super) token: u64,
    /// The server's time when that was noticed. The run ended before.
    pub(super) noticed: i64,
}

impl Over {
    pub(super) fn text(self) -> String {
        format!("{} {}", self.token, self.noticed)
    }

    pub(super) fn read(text: &[u8]) -> Option<Over> {
        let (token, noticed) = std::str::from_utf8(text).ok()?.split_once(' ')?;
        Some(Over { token: token.parse().ok()?, noticed: noticed.parse().ok()? })
    }
}
