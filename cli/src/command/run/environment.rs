//! What the job finds in its environment.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

/// What the job may know about its lock before the lock is granted.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) name: OsString,
    pub(crate) holder: String,
    pub(crate) lease: Duration,
    /// The variable that had the URL of this run, and is kept from the job: the URL may have a password.
    pub(crate) withheld: Option<&'static str>,
}

impl Environment {
    /// The variables to set, or, without a value, to take away.
    pub(crate) fn variables(&self, token: u64) -> Vec<(&'static str, Option<OsString>)> {
        let text = |text: &str| Some(OsStr::new(text).to_owned());
        let mut variables = vec![
            ("LEASEHOLD_NAME", Some(self.name.clone())),
            ("LEASEHOLD_TOKEN", text(&token.to_string())),
            ("LEASEHOLD_HOLDER", text(&self.holder)),
            ("LEASEHOLD_LEASE_SECONDS", text(&self.lease.as_secs_f64().to_string())),
        ];
        variables.extend(self.withheld.map(|secret| (secret, None)));
        variables
    }
}

/// Who holds the lock, as the command shows it too: `<host>:<process>`.
pub(crate) fn holder() -> String {
    let system = rustix::system::uname();
    format!("{}:{}", system.nodename().to_string_lossy(), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(withheld: Option<&'static str>) -> Vec<(&'static str, Option<OsString>)> {
        let lease = Duration::from_millis(1_500);
        let name = OsString::from("nightly");
        let environment = Environment { name, holder: "web-3:71".to_owned(), lease, withheld };
        environment.variables(42)
    }

    #[test]
    fn job_knows_its_lock_and_no_secret() {
        let text = |text: &str| Some(OsString::from(text));
        let expected = [
            ("LEASEHOLD_NAME", text("nightly")),
            ("LEASEHOLD_TOKEN", text("42")),
            ("LEASEHOLD_HOLDER", text("web-3:71")),
            ("LEASEHOLD_LEASE_SECONDS", text("1.5")),
            ("REDIS_URL", None),
        ];
        assert_eq!(variables(Some("REDIS_URL")), expected);
    }

    #[test]
    fn variable_that_was_not_used_stays() {
        let named = |name| variables(None).iter().any(|(other, _)| *other == name);
        assert!(!named("REDIS_URL") && !named("LEASEHOLD_URL"));
    }
}
