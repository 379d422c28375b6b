//! Replies that are errors.

use redis::Value;

/// The outcome of a command or a script.
pub(crate) type CommandResult = Result<Value, ErrorReply>;

/// An error in the form of Redis: a code, a space, and a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorReply(String);

impl ErrorReply {
    /// Makes an error; the text must begin with a code.
    pub(crate) fn new(text: impl Into<String>) -> ErrorReply {
        // An error is one line on the wire, and the text may contain a script's own words.
        let text: String = text.into().replace(['\r', '\n'], " ");
        ErrorReply(text)
    }

    pub(super) fn wrong_type() -> ErrorReply {
        ErrorReply::new("WRONGTYPE Operation against a key holding the wrong kind of value")
    }

    pub(super) fn syntax() -> ErrorReply {
        ErrorReply::new("ERR syntax error")
    }

    pub(super) fn no_integer() -> ErrorReply {
        ErrorReply::new("ERR value is not an integer or out of range")
    }

    pub(super) fn overflow() -> ErrorReply {
        ErrorReply::new("ERR increment or decrement would overflow")
    }

    pub(super) fn out_of_memory() -> ErrorReply {
        ErrorReply::new("OOM command not allowed when used memory > 'maxmemory'.")
    }

    pub(super) fn arity(name: &[u8]) -> ErrorReply {
        let name = name.to_ascii_lowercase();
        let name = name.escape_ascii();
        ErrorReply::new(format!("ERR wrong number of arguments for '{name}' command"))
    }

    pub(super) fn expire_time(name: &[u8]) -> ErrorReply {
        let name = name.to_ascii_lowercase();
        ErrorReply::new(format!("ERR invalid expire time in '{}' command", name.escape_ascii()))
    }

    /// An error about a command that Redis may know and this server does not.
    pub(super) fn unknown(what: &str, name: &[u8]) -> ErrorReply {
        // Cut as Redis cuts it: the name may be any bytes of any length.
        let name = name[..name.len().min(128)].escape_ascii();
        ErrorReply::new(format!(
            "ERR unknown {what} '{name}': the in-memory server of leasehold::testing does not know it"
        ))
    }

    /// Code and words.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The error as an element of an array, as in the reply to `EXEC`.
    pub(super) fn into_value(self) -> Value {
        // Through the driver's parser, since the driver offers no other way to make this value.
        redis::parse_redis_value(format!("-{}\r\n", self.0).as_bytes())
            .unwrap_or(Value::SimpleString(self.0))
    }
}
