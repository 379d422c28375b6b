//! The operation of a lock client's message.

use std::fmt;

use crate::frame;

/// The operation of a request, recognised by its shape; a reply has that of its request.
///
/// The scripts of all kinds of lock take the same number of arguments after their keys, which is
/// how they are told apart, whatever their digests are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// To take a lock, or to queue up for it.
    Acquire,
    /// To stay in the queue.
    Beat,
    /// To give a lock back, or to leave the queue.
    Release,
    /// To make a lease longer.
    Renew,
    /// To take a lock from its holder.
    Force,
    /// To see who has a lock and who waits.
    Inspect,
    /// To change the limit of a semaphore.
    Resize,
    /// To say a word as the leader of an election.
    Proclaim,
    /// To become the reader or the writer of a read-write lock that one holds.
    Change,
    /// To listen for wake-ups.
    Subscribe,
    /// A wake-up, published to this client.
    Message,
    /// To be connected: no message, but the journal has it.
    Connect,
    /// The first command of a connection.
    Hello,
    /// A part of a transaction: `WATCH`, `MULTI`, `EXEC` and what is between them.
    Transaction,
    /// Anything else.
    Other,
}

impl Operation {
    /// Returns the operation of a client's message.
    pub fn of(request: &[u8]) -> Operation {
        let words = frame::words(request);
        let Some(first) = words.first() else { return Operation::Other };
        match first.to_ascii_uppercase().as_slice() {
            b"EVALSHA" | b"EVAL" => Self::of_script(&words).unwrap_or(Operation::Other),
            b"SUBSCRIBE" | b"SSUBSCRIBE" => Operation::Subscribe,
            b"TIME" => Operation::Hello,
            b"WATCH" | b"UNWATCH" | b"MULTI" | b"EXEC" | b"DEL" => Operation::Transaction,
            _ => Operation::Other,
        }
    }

    fn of_script(words: &[&[u8]]) -> Option<Operation> {
        let keys: usize = std::str::from_utf8(words.get(2)?).ok()?.parse().ok()?;
        let arguments = words.get(3 + keys..)?;
        Some(match arguments {
            // With any number of names.
            [b"announce", ..] => Operation::Other,
            [_, b"inspect" | b"found"] => Operation::Inspect,
            [_, _, _, _, b"beat", _, _] | [_, _, _, _, b"beat", _, _, _] => Operation::Beat,
            [_, _, b"beat", _, _, _] => Operation::Beat,
            [_, _, b"r" | b"u" | b"w", _, _, _] => Operation::Change,
            [_, _, _, _, _, b"resize"] => Operation::Resize,
            [_, _, _, _, b"proclaim", _] => Operation::Proclaim,
            // With a limit, of one server, and of one that has a vote among several.
            [_, _, _, _, _, _, _, _] | [_, _, _, _, _, _, _] | [_, _, _, _, _, _] => {
                Operation::Acquire
            }
            [_, _, _, b"quiet" | b"wanted"] => Operation::Release,
            [_, _, _, b"force" | b"any"] => Operation::Force,
            [_, _, _, _] | [_, _, _, _, _] => Operation::Renew,
            [_, _, _] => Operation::Release,
            _ => Operation::Other,
        })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Acquire => "acquire",
            Operation::Beat => "beat",
            Operation::Release => "release",
            Operation::Renew => "renew",
            Operation::Force => "force",
            Operation::Inspect => "inspect",
            Operation::Resize => "resize",
            Operation::Proclaim => "proclaim",
            Operation::Change => "change",
            Operation::Subscribe => "subscribe",
            Operation::Message => "message",
            Operation::Connect => "connect",
            Operation::Hello => "hello",
            Operation::Transaction => "transaction",
            Operation::Other => "other",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Vec<u8> {
        let words: Vec<&str> = text.split(' ').collect();
        let parts = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n{}", words.len(), parts.collect::<String>()).into_bytes()
    }

    #[test]
    fn scripts_are_recognised_by_their_arguments() {
        for (text, operation) in [
            ("EVALSHA sha 4 k k k k me 30000 0 30000 try 3 6", Operation::Acquire),
            ("EVAL source 4 k k k k me 30000 0 30000 join 3 6", Operation::Acquire),
            ("EVALSHA sha 4 k k k k me 30000 0 30000 beat 3 6", Operation::Beat),
            ("EVALSHA sha 2 k k me 30000 7 30000 8 9", Operation::Acquire),
            ("EVALSHA sha 3 k k k me 30000 0", Operation::Release),
            ("EVALSHA sha 2 k k me 30000 0 quiet", Operation::Release),
            ("EVALSHA sha 4 k k k k me 30000 0 wanted", Operation::Release),
            ("EVALSHA sha 4 k k k k me 30000 1 30000", Operation::Renew),
            ("EVALSHA sha 4 k k k k me 7 1000 force", Operation::Force),
            ("EVALSHA sha 4 k k k k me 7 1000 any", Operation::Force),
            ("EVALSHA sha 4 k k k k me 1000 0 30000 join 3000000 60000 4", Operation::Acquire),
            ("EVALSHA sha 4 k k k k me 1000 0 30000 beat 3000000 60000 4", Operation::Beat),
            ("EVALSHA sha 4 k k k k 8 1000 30000 4 3600000 resize", Operation::Resize),
            ("EVALSHA sha 3 k k k me 7 1 30000 proclaim word", Operation::Proclaim),
            ("EVALSHA sha 5 k k k k k me 1 w 30000 3000000 60000", Operation::Change),
            ("EVALSHA sha 5 k k k k k me 2 u 30000 3000000 60000", Operation::Change),
            ("EVALSHA sha 5 k k k k k me 1 beat 30000 3000000 60000", Operation::Beat),
            ("EVALSHA sha 1 k announce 60 name", Operation::Other),
            ("EVALSHA sha 3 k k k 1000 inspect", Operation::Inspect),
            ("EVALSHA sha 3 k k k 1000 found", Operation::Inspect),
            ("EVALSHA sha 4 k k k k", Operation::Other),
            ("EVALSHA sha 9 k", Operation::Other),
            ("EVALSHA", Operation::Other),
            ("subscribe c", Operation::Subscribe),
            ("TIME", Operation::Hello),
            ("MULTI", Operation::Transaction),
            ("PING", Operation::Other),
        ] {
            assert_eq!(Operation::of(&message(text)), operation, "{text}");
        }
        assert_eq!(Operation::of(b"PING\r\n"), Operation::Other);
        assert_eq!(Operation::of(b""), Operation::Other);
    }
}
