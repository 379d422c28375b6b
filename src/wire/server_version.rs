//! Whether a server is new enough: it needs `PEXPIRE … GT`, which came with Redis 7.0.
//!
//! Without a check, a server that is too old would grant locks of three kinds, because only their renewals use
//! that option, and each of them would be lost after its first lease.
//!
//! | `HELLO` on a new connection | the server |
//! | --- | --- |
//! | reports version 7 or later | is new enough. It is sent together with `TIME`, without a round trip of its own |
//! | reports an older version or none, as a proxy may | is tested by a script, once in each of its runs |

use redis::{ErrorKind, RedisError, Value};

use crate::wire::script::{Call, NO_KEYS, Script};

/// The first major version of Redis that is new enough. Every version of Valkey has a higher one.
const OLDEST: u32 = 7;

const NEEDS: &str = "needs Redis 7.0 or later, or Valkey";

/// Tests whether the server knows the option.
static CAPABILITY: Script = Script::new(include_str!("server_version.lua"));

/// The call of that script with its source, because the server need not keep a script that is run once.
pub(super) fn capability() -> Call {
    let call = CAPABILITY.call(NO_KEYS, []);
    call.with_source().unwrap_or(call)
}

/// The version in a reply to `HELLO`, which is a map in RESP3 and a list in RESP2; `None` if there is none.
pub(super) fn reported(hello: &Value) -> Option<String> {
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok().map(str::to_owned),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    };
    let is_version = |name: &Value| text(name).is_some_and(|name| name == "version");
    let value = match hello {
        Value::Map(fields) => fields.iter().find(|(name, _)| is_version(name)).map(|(_, it)| it),
        Value::Array(fields) => {
            fields.chunks_exact(2).find(|field| is_version(&field[0])).map(|field| &field[1])
        }
        _ => None,
    };
    value.and_then(text)
}

/// Whether a version is new enough.
pub(super) fn is_enough(version: &str) -> bool {
    version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok())
        .is_some_and(|it: u32| it >= OLDEST)
}

/// The error of a connection to a server that is too old, with the version that it reports.
pub(super) fn too_old(address: &str, version: Option<&str>) -> RedisError {
    let reported =
        version.map_or_else(String::new, |version| format!(" (it reports version {version})"));
    let text =
        format!("the server at {address} does not know PEXPIRE … GT{reported}; leasehold {NEEDS}");
    RedisError::from((ErrorKind::Client, "the server's version", text))
}

/// Whether a connection failed because the server is too old.
pub(super) fn is_too_old(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Client && error.detail().is_some_and(|text| text.ends_with(NEEDS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::memory::{Store, call};

    /// Only servers of Redis 6.2 and earlier refuse the number of arguments.
    #[test]
    fn refusal_of_the_option_alone_shows_that_a_server_is_too_old() {
        let arity = "ERR Wrong number of args calling Redis command From Lua script";
        for (begin, enough) in [
            ("local redis = {REDIS_VERSION_NUM = 458752}".to_owned(), 1),
            (String::new(), 1),
            (format!("local redis = {{pcall = function() return {{err = '{arity}'}} end}}"), 0),
            ("local redis = {pcall = function() return {err = 'NOPERM'} end}".to_owned(), 1),
        ] {
            let mut words = CAPABILITY.call(NO_KEYS, []).words();
            words[1] = [begin.as_bytes(), b"\n", &words[1]].concat();
            let (reply, _) = Store::default().run(0, |run| call(run, &words));
            assert_eq!(reply.unwrap(), Value::Int(enough), "{begin}");
        }
    }

    #[test]
    fn version_is_read_from_either_form_of_the_reply() {
        let text = |text: &str| Value::BulkString(text.into());
        let fields = [text("server"), text("redis"), text("version"), text("7.0.15")];
        assert_eq!(reported(&Value::Array(fields.to_vec())).as_deref(), Some("7.0.15"));
        let [server, redis, version, number] = fields;
        let map = Value::Map(vec![(server.clone(), redis), (version, number)]);
        assert_eq!(reported(&map).as_deref(), Some("7.0.15"));
        for odd in [Value::Nil, Value::Okay, Value::Array(vec![server]), Value::Array(vec![])] {
            assert_eq!(reported(&odd), None, "{odd:?}");
        }
    }

    #[test]
    fn major_number_decides() {
        for (version, enough) in [
            ("7.0.0", true),
            ("9.1", true),
            ("10.0.1", true),
            ("6.2.14", false),
            ("", false),
            ("x", false),
        ] {
            assert_eq!(is_enough(version), enough, "{version}");
        }
    }
}
