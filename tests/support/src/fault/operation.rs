//! The operation of a lock client's message.

use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;

use crate::frame;

/// A module for each kind of lock, with the names of its scripts and their texts.
macro_rules! compose {
    ($($kind:ident { $($script:ident: $($file:literal),+;)+ })+) => {
        $(pub(super) mod $kind {
            pub(crate) const ALL: &[(&str, &str)] =
                &[$((stringify!($script), concat!($(include_str!($file)),+))),+];
        })+
    };
}

#[path = "../../../../src/kind/composition.rs"]
mod composition;

/// The scripts that belong to no kind of lock.
const OTHERS: &[(&str, &str)] = &[
    ("ANNOUNCE", include_str!("../../../../src/protocol/announce.lua")),
    ("VERSION", include_str!("../../../../src/wire/server_version.lua")),
    ("PROBE", "return redis.call('TIME')"),
];

/// The variable by which the mutation gate tells the digests of the scripts that it has planted a bug in, each with the
/// name of the script, as in `ACQUIRE 6b1bf486c81ceb7edf3c093f4c48582e38c0e791`.
pub const PLANTED: &str = "LEASEHOLD_PLANTED_SCRIPTS";

/// Returns the name and the text of each script of the library. Several may have the same name.
pub fn scripts() -> impl Iterator<Item = (&'static str, &'static str)> {
    use composition::{election, mutex, once, quorum, reentrant, rw_lock, semaphore};
    let kinds =
        [mutex::ALL, quorum::ALL, reentrant::ALL, election::ALL, semaphore::ALL, rw_lock::ALL];
    kinds.into_iter().chain([once::ALL, OTHERS]).flatten().copied()
}

/// Returns the digest by which a server knows a script.
pub fn digest(text: &str) -> String {
    redis::Script::new(text).get_hash().to_owned()
}

/// The names of the scripts, by digest.
pub(crate) fn names() -> &'static HashMap<String, String> {
    static NAMES: OnceLock<HashMap<String, String>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let planted = std::env::var(PLANTED).unwrap_or_default();
        let planted = planted.lines().filter_map(|line| line.split_once(' '));
        let shipped = scripts().map(|(name, text)| {
            // Each has its operation, or no proxy begins.
            Operation::of_script(name, &[]);
            (digest(text), name.to_owned())
        });
        shipped.chain(planted.map(|(name, digest)| (digest.to_owned(), name.to_owned()))).collect()
    })
}

/// A request by `EVALSHA` for a script that is none of the library's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownScript {
    digest: String,
}

impl fmt::Display for UnknownScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { digest } = self;
        write!(
            f,
            "no script of src/kind/composition.rs has the digest {digest}, so the operation of a request is not known"
        )
    }
}

/// The operation of a request; a reply has that of its request.
///
/// A script is known by its digest.
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
    /// To tell that locks are in use.
    Announce,
    /// To listen for wake-ups.
    Subscribe,
    /// A wake-up, published to this client.
    Message,
    /// To be connected: no message, but the journal has it.
    Connect,
    /// The first command of a connection.
    Hello,
    /// A part of a transaction: `WATCH`, `MULTI`, `EXEC` and what is between them; or the script that is one.
    Transaction,
    /// Anything else.
    Other,
}

impl Operation {
    /// Returns the operation of a client's message.
    ///
    /// # Errors
    ///
    /// If it runs a script by a digest that no script of the library has. The source of another script is
    /// [`Operation::Other`]: the library sends a source only after the digest.
    pub fn of(request: &[u8]) -> Result<Operation, UnknownScript> {
        let words = frame::words(request);
        let Some(first) = words.first() else { return Ok(Operation::Other) };
        Ok(match first.to_ascii_uppercase().as_slice() {
            b"EVALSHA" => {
                let digest =
                    words.get(1).map(|digest| String::from_utf8_lossy(digest).to_lowercase());
                let digest = digest.unwrap_or_default();
                match names().get(&digest) {
                    Some(name) => Self::of_script(name, &words),
                    None => return Err(UnknownScript { digest }),
                }
            }
            b"EVAL" => {
                let text = words.get(1).and_then(|text| std::str::from_utf8(text).ok());
                let name = text.and_then(|text| names().get(&digest(text)));
                name.map_or(Operation::Other, |name| Self::of_script(name, &words))
            }
            b"SUBSCRIBE" | b"SSUBSCRIBE" => Operation::Subscribe,
            b"TIME" => Operation::Hello,
            b"WATCH" | b"UNWATCH" | b"MULTI" | b"EXEC" | b"DEL" => Operation::Transaction,
            _ => Operation::Other,
        })
    }

    /// The operation of a script with this name.
    ///
    /// # Panics
    ///
    /// If there is no such name.
    fn of_script(name: &str, words: &[&[u8]]) -> Operation {
        // The number of a script's argument, from 1.
        let is_beat = |number: usize| {
            let keys =
                words.get(2).and_then(|keys| std::str::from_utf8(keys).ok()?.parse::<usize>().ok());
            keys.and_then(|keys| words.get(2 + keys + number)) == Some(&b"beat".as_slice())
        };
        match name {
            "ACQUIRE" if is_beat(5) => Operation::Beat,
            "CHANGE" if is_beat(3) => Operation::Beat,
            "ACQUIRE" => Operation::Acquire,
            "CHANGE" => Operation::Change,
            "RELEASE" => Operation::Release,
            "RENEW" => Operation::Renew,
            "FORCE" => Operation::Force,
            "INSPECT" => Operation::Inspect,
            "RESIZE" => Operation::Resize,
            "PROCLAIM" => Operation::Proclaim,
            "ANNOUNCE" => Operation::Announce,
            "TRANSACTION" => Operation::Transaction,
            "TOUCH" | "LOOK" | "REQUEST" | "READ" | "VERSION" | "PROBE" => Operation::Other,
            new => panic!("say here which operation the script {new} is"),
        }
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
            Operation::Announce => "announce",
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

    /// The message that runs a script.
    fn run(command: &str, script: &str, rest: &str) -> Vec<u8> {
        let words: Vec<&str> = [command, script].into_iter().chain(rest.split(' ')).collect();
        let parts = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n{}", words.len(), parts.collect::<String>()).into_bytes()
    }

    #[test]
    fn scripts_are_known_by_digest_and_by_source() {
        for (name, rest, operation) in [
            ("ACQUIRE", "4 k k k k me 30000 0 30000 try 3 6", Operation::Acquire),
            ("ACQUIRE", "4 k k k k me 30000 0 30000 join 3 6", Operation::Acquire),
            ("ACQUIRE", "4 k k k k me 30000 0 30000 beat 3 6", Operation::Beat),
            ("ACQUIRE", "4 k k k k me 1000 0 30000 beat 3000000 60000 4", Operation::Beat),
            ("ACQUIRE", "2 k k me 30000 7 30000 8 9", Operation::Acquire),
            ("ACQUIRE", "4 beat beat beat beat beat 30000 0 30000 try 3 6", Operation::Acquire),
            ("RELEASE", "3 k k k me 30000 0", Operation::Release),
            ("RELEASE", "4 k k k k me 30000 0 wanted", Operation::Release),
            ("RENEW", "4 k k k k me 30000 1 30000", Operation::Renew),
            ("RENEW", "4 k k k k me 30000 1 30000 500 another", Operation::Renew),
            ("FORCE", "4 k k k k me 7 1000", Operation::Force),
            ("FORCE", "4 k k k k me 7 1000 any", Operation::Force),
            ("RESIZE", "4 k k k k 8 1000 30000 4 3600000", Operation::Resize),
            ("PROCLAIM", "3 k k k me 7 1 30000 word", Operation::Proclaim),
            ("CHANGE", "5 k k k k k me 1 w 30000 3000000 60000", Operation::Change),
            ("CHANGE", "5 k k k k k me 1 beat 30000 3000000 60000", Operation::Beat),
            ("INSPECT", "3 k k k 1000", Operation::Inspect),
            ("INSPECT", "3 k k k 1000 found", Operation::Inspect),
            ("TRANSACTION", "2 k y me nothing 2 GET y", Operation::Transaction),
            ("ANNOUNCE", "1 k 60 name", Operation::Announce),
            ("TOUCH", "2 k k me", Operation::Other),
        ] {
            let texts: Vec<&str> = scripts().filter(|it| it.0 == name).map(|it| it.1).collect();
            assert!(!texts.is_empty(), "no {name}");
            for text in texts {
                let sent = [run("EVALSHA", &digest(text), rest), run("eval", text, rest)];
                let [by_digest, by_source] = sent.map(|message| Operation::of(&message));
                assert_eq!(by_digest.as_ref(), Ok(&operation), "{name} {rest}");
                assert_eq!(by_source, by_digest, "{name} {rest}");
            }
        }
    }

    /// A request that nobody knows must not pass for one that no fault is about.
    #[test]
    fn unknown_digest_is_an_error_and_names_it() {
        let error = Operation::of(&run("EVALSHA", "0123abcd", "1 k me")).unwrap_err();
        assert!(error.to_string().contains("0123abcd"), "{error}");
        assert!(Operation::of(b"*1\r\n$7\r\nEVALSHA\r\n").is_err());
        // A test's own.
        assert_eq!(Operation::of(&run("EVAL", "return 1", "0")), Ok(Operation::Other));
    }

    #[test]
    fn commands_are_known_by_their_names() {
        for (message, operation) in [
            ("*2\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n", Operation::Subscribe),
            ("*1\r\n$4\r\nTIME\r\n", Operation::Hello),
            ("*1\r\n$5\r\nMULTI\r\n", Operation::Transaction),
            ("*1\r\n$4\r\nPING\r\n", Operation::Other),
            ("PING\r\n", Operation::Other),
            ("", Operation::Other),
        ] {
            assert_eq!(Operation::of(message.as_bytes()), Ok(operation), "{message:?}");
        }
    }
}
