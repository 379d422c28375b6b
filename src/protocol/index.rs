//! The index of the locks that are in use, and the scan for those that are not in it.
//!
//! The index is one sorted set on the server, and in a cluster on the node of its slot. Clients announce there
//! what they hold or wait for longer than a second. An entry is `<kind>:<name>`, and its score is the server's
//! time of the last announcement, in seconds.

use crate::base::glob::Glob;
use crate::base::reserved;
use crate::base::sync::Arc;
use crate::protocol::reply::unexpected;
use crate::protocol::target::Target;
use crate::wire::Value;
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::script::Argument::{Bytes, Number};
use crate::wire::script::{Call, Script};

static ANNOUNCE: Script = Script::new(include_str!("announce.lua"));

/// How long an entry lives after its last announcement, in seconds.
const ENTRY_LIFE: u64 = 60;
/// About how many keys one step of a scan looks at.
const KEYS_PER_STEP: &[u8] = b"1000";

/// Announces that these locks are in use.
pub(super) fn announce(targets: &[Arc<Target>]) -> Call {
    let entry = |target: &Arc<Target>| {
        [target.kind().name().as_bytes(), b":", target.name().as_bytes()].concat()
    };
    let entries: Vec<Vec<u8>> = targets.iter().map(entry).collect();
    let names = entries.iter().map(|entry| Bytes(entry));
    let arguments = [Number(ENTRY_LIFE)].into_iter().chain(names);
    ANNOUNCE.call(&[reserved::INDEX.to_vec()], arguments)
}

/// Reads the index.
pub(super) fn list() -> Call {
    Call::plain(&[b"ZRANGE", reserved::INDEX, b"0", b"-1"])
}

/// The kinds and names in the reply to [`list`]. What is no entry is left out: anybody may write there.
pub(super) fn entries(value: Value) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let Value::Array(entries) = value else { return Err(unexpected(&value)) };
    let entry = |value| {
        let Value::BulkString(entry) = value else { return None };
        let colon = entry.iter().position(|&byte| byte == b':')?;
        let kind = String::from_utf8(entry[..colon].to_vec()).ok()?;
        Some((kind, entry[colon + 1..].to_vec()))
    };
    Ok(entries.into_iter().filter_map(entry).collect())
}

/// Why a scan cannot go on.
const SERVER_GONE: &str =
    "the cluster has changed during a scan: the node that was scanned is no master any more";

/// The types of keys that locks are: of a mutex, of a reentrant lock, and of one that several may hold.
pub(crate) const TYPES: [&str; 3] = ["string", "hash", "zset"];

/// How far a scan has come: each server is scanned for one type of keys after the other.
#[derive(Debug, Default)]
pub(crate) struct ScanPosition {
    /// Which of [`TYPES`] it is scanned for.
    pub(crate) kind: usize,
    cursor: Vec<u8>,
    /// The server that is scanned now.
    server: Option<String>,
    /// Those that were scanned to their end.
    done: Vec<String>,
}

impl ScanPosition {
    /// Which of these servers is scanned now; none if all are done. A server that is scanned must stay among
    /// them: what it had has moved elsewhere, perhaps to one that is done.
    pub(crate) fn choose(&mut self, servers: &[&str]) -> Result<Option<usize>, Failure> {
        if let Some(server) = &self.server {
            let place = servers.iter().position(|one| one == server);
            return place
                .map(Some)
                .ok_or_else(|| Failure::NotSent(NotSentReason::Unroutable(SERVER_GONE.into())));
        }
        let next = servers.iter().position(|one| !self.done.iter().any(|done| done == one));
        self.server = next.map(|next| servers[next].to_owned());
        Ok(next)
    }

    pub(crate) fn type_name(&self) -> &'static str {
        TYPES[self.kind]
    }

    /// One step of the scan for keys that match.
    pub(crate) fn call(&self, pattern: &Glob) -> Call {
        let pattern = pattern.to_redis();
        let cursor = if self.cursor.is_empty() { b"0" } else { self.cursor.as_slice() };
        let kind = self.type_name().as_bytes();
        Call::plain(&[b"SCAN", cursor, b"MATCH", &pattern, b"COUNT", KEYS_PER_STEP, b"TYPE", kind])
    }

    /// The keys in the reply to that. Moves on to the next step.
    pub(super) fn read(&mut self, value: Value) -> Result<Vec<Vec<u8>>, Failure> {
        let odd = unexpected(&value);
        let Value::Array(parts) = value else { return Err(odd) };
        let Ok([Value::BulkString(cursor), Value::Array(keys)]) = <[Value; 2]>::try_from(parts)
        else {
            return Err(odd);
        };
        self.cursor = cursor;
        if self.cursor == b"0" {
            self.kind = (self.kind + 1) % TYPES.len();
            if self.kind == 0 {
                self.done.extend(self.server.take());
            }
        }
        let key = |value| match value {
            Value::BulkString(key) => Some(key),
            _ => None,
        };
        Ok(keys.into_iter().filter_map(key).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(cursor: &str) -> Value {
        Value::Array(vec![Value::BulkString(cursor.into()), Value::Array(Vec::new())])
    }

    #[test]
    fn scan_goes_on_by_names_of_servers() {
        let mut position = ScanPosition::default();
        assert_eq!(position.choose(&["b", "a"]).unwrap(), Some(0));
        position.read(page("7")).unwrap();
        // Another one has come, and the order is another one.
        assert_eq!(position.choose(&["a", "b", "c"]).unwrap(), Some(1));
        position.read(page("0")).unwrap();
        for kind in 1..TYPES.len() {
            assert_eq!((position.choose(&["a", "b"]).unwrap(), position.kind), (Some(1), kind));
            position.read(page("0")).unwrap();
        }
        assert_eq!(position.choose(&["b", "a"]).unwrap(), Some(1), "the first is done");
        for _ in TYPES {
            position.read(page("0")).unwrap();
        }
        assert_eq!(position.choose(&["b"]).unwrap(), None);
    }

    #[test]
    fn scan_fails_when_its_server_goes() {
        let mut position = ScanPosition::default();
        position.choose(&["a", "b"]).unwrap();
        position.read(page("7")).unwrap();
        let failure = position.choose(&["b", "c"]).unwrap_err();
        assert!(failure.to_string().contains("no master any more"), "{failure}");
    }
}
