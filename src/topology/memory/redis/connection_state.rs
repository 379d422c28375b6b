//! The state of one connection at the server: the keys it watches, and its transaction.

use std::collections::BTreeSet;
use std::mem;

use redis::Value;

use super::call;
use super::reply::{CommandResult, ErrorReply};
use super::store::Execution;

/// A connection between its commands.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    watched: BTreeSet<Vec<u8>>,
    /// A watched key was written by any client, or expired.
    is_outdated: bool,
    /// The commands since `MULTI`.
    queue: Option<Vec<Vec<Vec<u8>>>>,
    /// One of these commands was refused.
    is_broken: bool,
}

impl ConnectionState {
    /// Notes that keys were written, or expired.
    pub(crate) fn note(&mut self, touched: &BTreeSet<Vec<u8>>) {
        self.is_outdated |= !self.watched.is_disjoint(touched);
    }

    /// Runs a command of this connection, or queues it.
    pub(crate) fn call(&mut self, run: &mut Execution, words: &[Vec<u8>]) -> CommandResult {
        let name = words.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
        match (name.as_slice(), words) {
            (b"MULTI", [_]) => self.begin(),
            (b"EXEC", [_]) => self.execute(run),
            (b"DISCARD", [_]) => match self.queue {
                Some(_) => Ok(self.end()),
                None => Err(ErrorReply::new("ERR DISCARD without MULTI")),
            },
            (b"WATCH", [_, _, ..]) => self.watch(&words[1..]),
            (b"MULTI" | b"EXEC" | b"DISCARD" | b"WATCH", _) => Err(ErrorReply::arity(&name)),
            _ if self.queue.is_some() => self.enqueue(run, words),
            (b"UNWATCH", [_]) => Ok(self.end()),
            // At once: the wait itself is the client's side of the simulation (`call_slow`).
            (b"WAIT", [_, _, _]) => Ok(Value::Int(0)),
            (b"CLIENT", [_, verb, name]) if verb.eq_ignore_ascii_case(b"SETNAME") => set_name(name),
            (b"WAITAOF", [_, local, _, _]) => wait_for_disk(local),
            _ => call::call(run, words),
        }
    }

    fn begin(&mut self) -> CommandResult {
        if self.queue.is_some() {
            return Err(ErrorReply::new("ERR MULTI calls can not be nested"));
        }
        self.queue = Some(Vec::new());
        Ok(Value::Okay)
    }

    fn watch(&mut self, keys: &[Vec<u8>]) -> CommandResult {
        if self.queue.is_some() {
            return Err(ErrorReply::new("ERR WATCH inside MULTI is not allowed"));
        }
        self.watched.extend(keys.iter().cloned());
        Ok(Value::Okay)
    }

    /// Ends the transaction and watches no keys any more.
    fn end(&mut self) -> Value {
        *self = ConnectionState::default();
        Value::Okay
    }

    fn enqueue(&mut self, run: &Execution, words: &[Vec<u8>]) -> CommandResult {
        // Redis refuses every command of a transaction when memory is full, also one that frees
        // some: the queue itself takes memory. So a release by `WATCH` needs a script as its
        // fallback.
        let refusal = if run.refuses_growth() {
            Err(ErrorReply::out_of_memory())
        } else {
            call::check(words)
        };
        self.is_broken |= refusal.is_err();
        refusal?;
        self.queue.get_or_insert_default().push(words.to_vec());
        Ok(Value::SimpleString("QUEUED".to_owned()))
    }

    fn execute(&mut self, run: &mut Execution) -> CommandResult {
        let Some(queue) = self.queue.take() else {
            return Err(ErrorReply::new("ERR EXEC without MULTI"));
        };
        // `EXEC` ends the watch whatever its outcome, or the next transaction would fail for a key
        // that it does not watch.
        let ConnectionState { is_outdated, is_broken, .. } = mem::take(self);
        if is_broken {
            let text = "EXECABORT Transaction discarded because of previous errors.";
            return Err(ErrorReply::new(text));
        }
        if is_outdated {
            return Ok(Value::Nil);
        }
        // Memory was checked when the commands were queued. Once a transaction runs, Redis does not
        // refuse its commands for memory any more, since that would apply it in part.
        run.note_write();
        let run =
            |words: Vec<Vec<u8>>| call::call(run, &words).unwrap_or_else(ErrorReply::into_value);
        Ok(Value::Array(queue.into_iter().map(run).collect()))
    }
}

/// Nobody looks at the connections of this server.
fn set_name(name: &[u8]) -> CommandResult {
    if name.iter().all(|byte| matches!(byte, b'!'..=b'~')) {
        return Ok(Value::Okay);
    }
    let text = "ERR Client names cannot contain spaces, newlines or special characters.";
    Err(ErrorReply::new(text))
}

/// Replies as a server without an append-only file and without replicas.
fn wait_for_disk(local: &[u8]) -> CommandResult {
    if local == b"0" {
        return Ok(Value::Array(vec![Value::Int(0); 2]));
    }
    let text = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
    Err(ErrorReply::new(text))
}
