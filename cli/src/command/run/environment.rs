//! What the job finds in its environment.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

/// Variables with secrets that the job does not need.
const SECRETS: [&str; 1] = ["REDIS_URL"];

/// What the job may know about its lock before the lock is granted.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) name: OsString,
    pub(crate) holder: String,
    pub(crate) lease: Duration,
    pub(crate) keep_url: bool,
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
        if !self.keep_url {
            variables.extend(SECRETS.map(|secret| (secret, None)));
        }
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

    fn variables(keep_url: bool) -> Vec<(&'static str, Option<OsString>)> {
        let lease = Duration::from_millis(1_500);
        let name = OsString::from("nightly");
        let environment = Environment { name, holder: "web-3:71".to_owned(), lease, keep_url };
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
        assert_eq!(variables(false), expected);
    }

    #[test]
    fn url_stays_on_demand() {
        assert!(variables(true).iter().all(|(name, _)| *name != "REDIS_URL"));
    }
}
