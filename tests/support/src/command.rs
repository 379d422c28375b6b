//! The commands that a server has run.

use std::collections::BTreeMap;

/// How often each command ran, by `INFO commandstats`.
///
/// Names are in lower case; a subcommand is `container|name`, as in `client|setinfo`. Calls made
/// inside scripts are counted too, one by one, beside the `eval` or `evalsha` that made them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandStats {
    /// Calls by command name.
    pub calls: BTreeMap<String, u64>,
}

impl CommandStats {
    pub(crate) fn parse(info: &str) -> Self {
        let calls = info
            .lines()
            .filter_map(|line| line.trim_end().strip_prefix("cmdstat_")?.split_once(":calls="))
            .filter_map(|(name, rest)| {
                let count = rest.split(',').next()?.parse().ok()?;
                Some((name.to_lowercase(), count))
            })
            .collect();
        Self { calls }
    }

    /// Returns how often the command ran.
    pub fn calls(&self, name: &str) -> u64 {
        self.calls.get(name).copied().unwrap_or(0)
    }

    /// Returns how often clients themselves sent `eval`, `evalsha` or one of `others`.
    ///
    /// The server counts a script's calls like a client's, so `others` must be commands
    /// that no script calls.
    pub fn client_commands(&self, others: &[&str]) -> u64 {
        ["eval", "evalsha"]
            .iter()
            .chain(others.iter().filter(|name| !name.starts_with("eval")))
            .map(|name| self.calls(name))
            .sum()
    }

    /// Returns the commands that ran after `before` was taken.
    pub fn since(&self, before: &Self) -> Self {
        let calls = self
            .calls
            .iter()
            .map(|(name, count)| (name.clone(), count.saturating_sub(before.calls(name))))
            .filter(|(_, count)| *count > 0)
            .collect();
        Self { calls }
    }
}
