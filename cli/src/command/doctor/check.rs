//! What the doctor looks at, by the words of its second column.

use std::fmt;

use clap::ValueEnum;

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Check {
    Topology,
    Connection,
    Version,
    #[value(name = "round trip", alias = "round-trip")]
    RoundTrip,
    Clock,
    #[value(name = "Lua", alias = "lua")]
    Lua,
    Commands,
    Permissions,
    Messages,
    Grants,
    Announcements,
    Name,
    Memory,
    Persistence,
    Writes,
    Replicas,
    Lock,
    Clocks,
}

impl Check {
    pub(super) fn word(self) -> &'static str {
        match self {
            Check::Topology => "topology",
            Check::Connection => "connection",
            Check::Version => "version",
            Check::RoundTrip => "round trip",
            Check::Clock => "clock",
            Check::Lua => "Lua",
            Check::Commands => "commands",
            Check::Permissions => "permissions",
            Check::Messages => "messages",
            Check::Grants => "grants",
            Check::Announcements => "announcements",
            Check::Name => "name",
            Check::Memory => "memory",
            Check::Persistence => "persistence",
            Check::Writes => "writes",
            Check::Replicas => "replicas",
            Check::Lock => "lock",
            Check::Clocks => "clocks",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Users copy the word from the second column.
    #[test]
    fn words_are_the_values_of_the_option() {
        for check in Check::value_variants() {
            assert_eq!(Check::from_str(check.word(), false), Ok(*check));
        }
    }
}
