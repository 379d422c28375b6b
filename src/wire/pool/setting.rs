//! The settings of a pool, and their checks.

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::option::check_bounds;
use crate::base::sync::Arc;
use crate::observe::observers::Observers;
use crate::wire::server_clock::ServerClocks;

/// The largest `max_size`. r2d2 allocates room for all connections at the start, and for `u32::MAX`
/// there is none.
const LARGEST: u32 = 65_536;

/// How many connections there are, and how long each is kept.
#[derive(Clone, Debug)]
pub(crate) struct PoolSettings {
    pub(crate) max_size: u32,
    pub(crate) min_idle: u32,
    pub(crate) max_idle: Option<u32>,
    pub(crate) max_wait: Duration,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) max_lifetime: Option<Duration>,
    pub(crate) test_on_borrow: bool,
    /// Who learns of a connection that was made in the place of another.
    pub(crate) observers: Observers,
    /// The clocks of all servers of the client.
    pub(crate) clocks: Arc<ServerClocks>,
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
            // r2d2 tests by default. That doubles the round trips of each lock, and proves nothing
            // about the moment after. A dead connection is found by its use instead, and the
            // request is repeated.
            test_on_borrow: false,
            observers: Observers::default(),
            clocks: ServerClocks::new(Duration::ZERO, false),
        }
    }
}

impl PoolSettings {
    /// The settings of a pool of the worker: one connection, made when first needed. r2d2 never
    /// closes it, because it would do so before there is another.
    pub(crate) fn of_one(&self) -> PoolSettings {
        PoolSettings {
            max_size: 1,
            min_idle: 0,
            max_idle: None,
            // Nobody else uses the connection, so the worker waits only while it is being made.
            max_wait: Duration::MAX,
            idle_timeout: None,
            max_lifetime: None,
            test_on_borrow: false,
            ..self.clone()
        }
    }

    /// Rejects settings that r2d2 would panic on, and those that make no sense.
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

/// Rejects a time-out of zero, which means "none" to a socket and panics in r2d2, and one that
/// overflows.
pub(crate) fn check_timeout(field: &str, span: Duration) -> Result<()> {
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    check_bounds(field, span, LONGEST, "1ms to 365 days")
}
