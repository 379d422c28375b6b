//! What an operator or another program may do to the keys of a lock.

use crate::fault::server::{self, ask};
use crate::fault::{Active, Fired, Injector, Site};

/// A command of another client, sent once. Only time heals it.
#[derive(Debug, Clone, Copy)]
pub struct Command {
    fault: &'static str,
    /// `KEY` stands for the lock's key.
    words: &'static [&'static str],
    /// Its name in `INFO commandstats`; no other client may send it.
    counted_as: &'static str,
}

/// All keys are gone.
pub const FLUSHED: Command =
    Command { fault: "flushed", words: &["FLUSHALL"], counted_as: "flushall" };

/// The lock's key is gone.
pub const DELETED: Command =
    Command { fault: "deleted", words: &["UNLINK", "KEY"], counted_as: "unlink" };

/// The lock's key is a stranger's for two seconds.
pub const STOLEN: Command = Command {
    fault: "stolen",
    words: &["PSETEX", "KEY", "2000", "stranger"],
    counted_as: "psetex",
};

/// The lock's key ends at once, as when the server's clock jumps.
pub const EXPIRED: Command =
    Command { fault: "expired", words: &["EXPIREAT", "KEY", "1"], counted_as: "expireat" };

/// The lock's key lives for ever.
pub const PERSISTED: Command =
    Command { fault: "persisted", words: &["PERSIST", "KEY"], counted_as: "persist" };

/// A key of the lock's name appears, of a type that is no lock.
pub const RETYPED: Command =
    Command { fault: "retyped", words: &["RPUSH", "KEY", "no lock"], counted_as: "rpush" };

impl Injector for Command {
    fn name(&self) -> String {
        self.fault.to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let (server, counted_as) = (site.server, self.counted_as);
        let before = server.command_calls(&[counted_as]);
        let words = self.words.iter().map(|&word| if word == "KEY" { site.key } else { word });
        ask::<redis::Value>(server, &words.collect::<Vec<_>>());
        let count = move || Fired {
            injected: 1,
            witnessed: server.command_calls(&[counted_as]) - before,
            witness: "INFO commandstats",
        };
        Active::new(self.name(), count, || ())
    }
}

/// The lock's key is evicted for want of memory, as a policy other than `noeviction` does.
#[derive(Debug, Clone, Copy)]
pub struct Evicted;

impl Injector for Evicted {
    fn name(&self) -> String {
        "evicted".to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let (server, key) = (site.server, site.key);
        let evicted = move || server::number(server, "stats", "evicted_keys");
        let before = evicted();
        ask::<()>(server, &["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]);
        ask::<()>(server, &["CONFIG", "SET", "maxmemory", "1"]);
        // A command that may use memory first evicts keys, and then finds that this is not enough.
        for _ in 0..200 {
            let _ = redis::cmd("PFADD").arg("room").query::<()>(&mut server.connection());
            if !ask::<bool>(server, &["EXISTS", key]) {
                break;
            }
        }
        ask::<()>(server, &["CONFIG", "SET", "maxmemory", "0"]);
        ask::<()>(server, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        let gone = u64::from(!ask::<bool>(server, &["EXISTS", key]));
        let count = move || Fired {
            injected: gone,
            witnessed: evicted() - before,
            witness: "INFO evicted_keys",
        };
        Active::new(self.name(), count, || ())
    }
}
