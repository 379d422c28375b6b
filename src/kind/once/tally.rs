//! What a record has of the runs that failed.

/// How many runs of one period of time have begun without a success, as the run that wrote it counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// The server's time when that run began.
    pub(super) began: i64,
    pub(super) token: u64,
    /// That run included.
    pub(super) tries: u32,
}

impl Counted {
    pub(super) fn text(self) -> String {
        format!("{} {} {}", self.began, self.token, self.tries)
    }

    pub(super) fn read(text: &[u8]) -> Option<Counted> {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        let began = words.next()?.parse().ok()?;
        let token = words.next()?.parse().ok()?;
        let tries = words.next()?.parse().ok().filter(|&tries| tries > 0)?;
        words.next().is_none().then_some(Counted { began, token, tries })
    }
}

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
