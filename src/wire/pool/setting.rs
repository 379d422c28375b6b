//! How many connections a pool has, and for how long.

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::option::check_bounds;

/// A pool has room for all its connections from the start: for `u32::MAX` of them there is no memory.
const LARGEST: u32 = 65_536;

/// How many connections there are, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct PoolSettings {
    pub(crate) max_size: u32,
    pub(crate) min_idle: u32,
    pub(crate) max_idle: Option<u32>,
    pub(crate) max_wait: Duration,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) max_lifetime: Option<Duration>,
    pub(crate) test_on_borrow: bool,
}

impl Default for PoolSettings {
    fn default() -> PoolSettings {
        PoolSettings {
            max_size: 10,
            min_idle: 0,
            max_idle: None,
            max_wait: Duration::from_secs(1),
            idle_timeout: Some(Duration::from_secs(600)),
            max_lifetime: Some(Duration::from_secs(1800)),
            test_on_borrow: false,
        }
    }
}

impl PoolSettings {
    /// The same for the one connection of a worker, which is made when first needed. Nobody else waits
    /// for it, and renewals find out themselves whether it lives.
    pub(crate) fn of_one(&self) -> PoolSettings {
        PoolSettings {
            max_size: 1,
            min_idle: 0,
            max_idle: None,
            max_wait: Duration::MAX,
            test_on_borrow: false,
            ..self.clone()
        }
    }

    /// Checks what a pool would not survive, and what makes no sense.
    pub(crate) fn check(&self) -> Result<()> {
        if self.max_size == 0 {
            return Err(Error::config("max_size", "0", "at least 1"));
        }
        if self.max_size > LARGEST {
            let allowed = format_args!("at most {LARGEST}");
            return Err(Error::config("max_size", self.max_size, allowed));
        }
        if self.min_idle > self.max_size {
            return Err(Error::config(
                "min_idle",
                self.min_idle,
                format_args!("at most max_size, which is {}", self.max_size),
            ));
        }
        if let Some(max_idle) = self.max_idle
            && !(self.min_idle..=self.max_size).contains(&max_idle)
        {
            return Err(Error::config(
                "max_idle",
                max_idle,
                format_args!("from min_idle to max_size, {} to {}", self.min_idle, self.max_size),
            ));
        }
        let spans = [
            ("max_wait", Some(self.max_wait)),
            ("idle_timeout", self.idle_timeout),
            ("max_lifetime", self.max_lifetime),
        ];
        for (field, span) in spans {
            if let Some(span) = span {
                check_timeout(field, span)?;
            }
        }
        Ok(())
    }
}

/// A time-out of zero means "none" to a socket and a panic to a pool; one too long overflows.
pub(crate) fn check_timeout(field: &str, span: Duration) -> Result<()> {
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    check_bounds(field, span, LONGEST, "1ms to 365 days")
}
