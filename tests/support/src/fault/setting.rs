//! Settings with which a server refuses commands.

use std::sync::{Arc, Mutex, PoisonError};

use redis::Connection;

use crate::Server;
use crate::fault::server::{ask, error_count, field};
use crate::fault::{Active, Fired, Injector, Site};

/// A state of the server in which it answers some commands with an error of one code, which it
/// counts (`errorstat_…`).
#[derive(Debug, Clone, Copy)]
pub struct Refusing {
    fault: &'static str,
    code: &'static str,
    begin: &'static [&'static [&'static str]],
    end: &'static [&'static [&'static str]],
}

/// Commands that may use memory are refused.
pub const OUT_OF_MEMORY: Refusing = Refusing {
    fault: "out-of-memory",
    code: "errorstat_OOM",
    begin: &[
        &["CONFIG", "SET", "maxmemory-policy", "noeviction"],
        &["CONFIG", "SET", "maxmemory", "1"],
    ],
    end: &[&["CONFIG", "SET", "maxmemory", "0"]],
};

/// It is a replica, and refuses to be written to; it keeps its data.
pub const READ_ONLY: Refusing = Refusing {
    fault: "read-only",
    code: "errorstat_READONLY",
    begin: &[&["REPLICAOF", "127.0.0.1", "1"]],
    end: &[&["REPLICAOF", "NO", "ONE"]],
};

/// It is a replica that has lost its master, and refuses all else.
pub const MASTER_DOWN: Refusing = Refusing {
    fault: "master-down",
    code: "errorstat_MASTERDOWN",
    begin: &[
        &["CONFIG", "SET", "replica-serve-stale-data", "no"],
        &["REPLICAOF", "127.0.0.1", "1"],
    ],
    end: &[&["REPLICAOF", "NO", "ONE"], &["CONFIG", "SET", "replica-serve-stale-data", "yes"]],
};

/// It wants replicas before it writes, and has none.
pub const NO_REPLICAS: Refusing = Refusing {
    fault: "no-replicas",
    code: "errorstat_NOREPLICAS",
    begin: &[&["CONFIG", "SET", "min-replicas-to-write", "1"]],
    end: &[&["CONFIG", "SET", "min-replicas-to-write", "0"]],
};

/// The password of the user `worker` is another than `old`.
pub const WRONG_PASSWORD: Refusing = Refusing {
    fault: "wrong-password",
    code: "errorstat_WRONGPASS",
    begin: &[&["ACL", "SETUSER", "worker", "on", ">new", "~*", "&*", "+@all"]],
    end: &[&["ACL", "SETUSER", "worker", ">old"]],
};

/// The user may run no script any more.
pub const NO_PERMISSION: Refusing = Refusing {
    fault: "no-permission",
    code: "errorstat_NOPERM",
    begin: &[&["ACL", "SETUSER", "default", "-eval", "-evalsha"]],
    end: &[&["ACL", "SETUSER", "default", "+@all"]],
};

/// The user may not publish any more.
pub const NO_PUBLISH: Refusing = Refusing {
    fault: "no-publish",
    code: ACL_LOG,
    begin: &[&["ACL", "SETUSER", "default", "-publish"]],
    end: &[&["ACL", "SETUSER", "default", "+@all"]],
};

/// The user may not write sorted sets, such as the index of locks in use, any more.
pub const NO_INDEX: Refusing = Refusing {
    fault: "no-index",
    code: ACL_LOG,
    begin: &[&["ACL", "SETUSER", "default", "-zadd"]],
    end: &[&["ACL", "SETUSER", "default", "+@all"]],
};

/// Only some servers count the denied commands of a script among the errors.
const ACL_LOG: &str = "ACL LOG";

fn denials(server: &Server) -> u64 {
    let entries: Vec<redis::Value> = ask(server, &["ACL", "LOG"]);
    entries.len() as u64
}

impl Injector for Refusing {
    fn name(&self) -> String {
        self.fault.to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let (server, code, end) = (site.server, self.code, self.end);
        let seen = move || match code {
            ACL_LOG => denials(server),
            code => error_count(server, code),
        };
        let before = seen();
        for words in self.begin {
            ask::<redis::Value>(server, words);
        }
        let count = move || Fired { injected: 1, witnessed: seen() - before, witness: code };
        let heal = move || {
            for words in end {
                ask::<redis::Value>(server, words);
            }
        };
        Active::new(self.name(), count, heal)
    }
}

/// It demands a password on new connections.
#[derive(Debug, Clone, Copy)]
pub struct NoPassword;

impl Injector for NoPassword {
    fn name(&self) -> String {
        "no-password".to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        // Existing connections stay, and no new one is accepted.
        let inside = Arc::new(Mutex::new(site.server.connection()));
        let run = |inside: &Mutex<Connection>, words: &[&str]| {
            let mut command = redis::Cmd::new();
            words.iter().for_each(|word| {
                command.arg(*word);
            });
            let mut inside = inside.lock().unwrap_or_else(PoisonError::into_inner);
            command.query::<redis::Value>(&mut inside).expect("the one inside may do all")
        };
        let refused = move |inside: &Mutex<Connection>| {
            let info = run(inside, &["INFO", "errorstats"]);
            let info: String = redis::from_redis_value(info).expect("a text");
            field(&info, "errorstat_NOAUTH")
        };
        let before = refused(&inside);
        run(&inside, &["ACL", "SETUSER", "default", "resetpass", ">secret"]);
        let healer = Arc::clone(&inside);
        let count = move || Fired {
            injected: 1,
            witnessed: refused(&inside) - before,
            witness: "errorstat_NOAUTH",
        };
        let heal = move || {
            run(&healer, &["ACL", "SETUSER", "default", "nopass"]);
        };
        Active::new(self.name(), count, heal)
    }
}
