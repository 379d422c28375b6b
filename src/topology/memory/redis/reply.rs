//! Replies that are errors.

use redis::Value;

/// What a command or a script returns.
pub(crate) type CommandResult = Result<Value, ErrorReply>;

/// An error as Redis words it: its code, a blank, and more words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorReply(String);

impl ErrorReply {
    /// The text must begin with a code.
    pub(crate) fn new(text: impl Into<String>) -> ErrorReply {
        // A reply is one line.
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

    /// What Redis may know, and this server does not.
    pub(super) fn unknown(what: &str, name: &[u8]) -> ErrorReply {
        let name = name[..name.len().min(128)].escape_ascii();
        ErrorReply::new(format!(
            "ERR unknown {what} '{name}': the in-memory server of leasehold::testing does not know it"
        ))
    }

    /// Code and words.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The error in its place within an array, as in the reply to `EXEC`.
    pub(super) fn into_value(self) -> Value {
        redis::parse_redis_value(format!("-{}\r\n", self.0).as_bytes())
            .unwrap_or(Value::SimpleString(self.0))
    }
}
