//! Names that no lock may have: the side keys of other locks, and the library's own keys.
//!
//! A [side key](Name::side_key) needs a [`Word`], and this table has all words. So the side keys of
//! every kind of lock are reserved for all kinds: otherwise each token of the lock `x` would
//! overwrite the lock `{x}:fence`.

use crate::base::error::{Error, Result};
use crate::base::name::Name;
use crate::base::tag::hashed;

/// The longest name, with its prefix.
const MAX_BYTES: usize = 64 * 1024;

/// The purpose of a side key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(&'static str);

impl Word {
    pub(crate) const fn as_bytes(self) -> &'static [u8] {
        self.0.as_bytes()
    }
}

/// The words in use, each with a constant, and the words for later kinds of lock. These are
/// reserved from the start: a later release could not reserve a name that a user's lock already
/// has.
macro_rules! words {
    ($($(#[$meta:meta])* $constant:ident = $used:literal),+; $($later:literal),+) => {
        $($(#[$meta])* pub(crate) const $constant: Word = Word($used);)+
        const WORDS: &[Word] = &[$(Word($used),)+ $(Word($later),)+];
    };
}

words! {
    /// The last token.
    FENCE = "fence",
    /// The line of a mutex: those who wait for it.
    LINE_OF_MUTEX = "queue",
    /// Its signs of life: when each of them counts as dead.
    SIGNS_OF_MUTEX = "beats",
    /// A key that never exists. In a cluster, every script declares it, so that a node that is
    /// giving the slot away refuses the script as a whole.
    NEVER = "never",
    /// The line of a lock whose holders have weights.
    LINE_OF_WEIGHTED = "line",
    /// Its signs of life.
    SIGNS_OF_WEIGHTED = "signs",
    /// When a job ran last.
    RECORD = "record",
    /// The line of an election: its candidates.
    LINE_OF_ELECTION = "candidates",
    /// Their signs of life.
    SIGNS_OF_ELECTION = "pulses",
    /// What the leader of an election says, and in which term.
    WORD_OF_ELECTION = "word";
    // Of counted locks.
    "changes", "limit", "slots", "permits", "readers", "writers", "upgrade",
    // Of anything else.
    "holders", "waiters", "owner", "owners", "count", "index", "latch", "lease", "meta", "notes",
    "once", "records", "sharers", "state", "stats"
}

/// The index of the locks that are in use.
pub(crate) const INDEX: &[u8] = b"leasehold:index";

/// Reserved beginnings of names. The first is the library's own, for keys and channels that belong
/// to no single lock. The others are those of Redisson's side keys.
const BEGINNINGS: &[&str] = &[
    "leasehold:",
    "redisson_lock__channel:",
    "redisson_lock_queue:",
    "redisson_lock_timeout:",
    "redisson_rwlock:",
    "redisson_unlock_latch:",
];

impl Name {
    /// Checks a caller's name and puts the client's prefix before it.
    pub(crate) fn new(prefix: &[u8], name: &[u8]) -> Result<Name> {
        if name.is_empty() {
            return Err(Error::config("name", "empty", "at least one byte"));
        }
        let length = prefix.len().saturating_add(name.len());
        if length > MAX_BYTES {
            return Err(Error::config(
                "name",
                format_args!("{length} bytes are too many"),
                "at most 65536 bytes, name_prefix included",
            ));
        }
        // Checked with the prefix, since only the whole is the key: "fence" is a fine name, and
        // with the prefix "{x}:" it is a side key.
        let name = Name::unchecked(&[prefix, name].concat());
        let begins = |text: &&&str| name.as_bytes().starts_with(text.as_bytes());
        let (purpose, rule) = if let Some(beginning) = BEGINNINGS.iter().find(begins) {
            let purpose = "keys that belong to no single lock".to_owned();
            (purpose, format!("begin with \"{beginning}\""))
        } else if let Some((lock, ending)) = lock_of_side_key(name.as_bytes()) {
            let purpose = format!("a key of the lock {:?}", Name::unchecked(lock));
            (purpose, format!("end in \"{}\"", ending.escape_ascii()))
        } else {
            return Ok(name);
        };
        Err(Error::config(
            "name",
            format_args!("{name:?} is reserved for {purpose}"),
            format_args!("a name that, name_prefix included, does not {rule}"),
        ))
    }

    /// The side key for one purpose, in the same hash slot as the lock. No other lock has it.
    pub(crate) fn side_key(&self, word: Word) -> Vec<u8> {
        let (name, word) = (self.as_bytes(), word.as_bytes());
        // A name without a tag becomes the tag of its side keys. A name with a tag keeps it, and
        // its words begin with a `t`: with the same form, the locks `x` and `{x}` would share their
        // side keys.
        if has_tag(name) {
            [name, b":t", word].concat()
        } else {
            [b"{", name, b"}:", word].concat()
        }
    }
}

/// The lock of a side key, and the ending by which it is recognised: the inverse of
/// [`Name::side_key`], for all words.
fn lock_of_side_key(key: &[u8]) -> Option<(&[u8], &[u8])> {
    // The last colon: a name may have colons, and a word has none.
    let (before, ending) = key.split_at(key.iter().rposition(|&byte| byte == b':')?);
    let is_word = |text: &[u8]| WORDS.iter().any(|word| word.as_bytes() == text);
    let untagged = before.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"));
    match untagged {
        // Only what `side_key` can make is reserved. `{{x}}:fence` is no side key, since the name
        // `{x}` has a tag and its fence is `{x}:tfence`; users may have such names.
        Some(name) if !name.is_empty() && !has_tag(name) && is_word(&ending[1..]) => {
            Some((name, ending))
        }
        _ if has_tag(before) && ending.strip_prefix(b":t").is_some_and(is_word) => {
            Some((before, ending))
        }
        _ => None,
    }
}

/// Whether Redis Cluster hashes only a part of the name.
fn has_tag(name: &[u8]) -> bool {
    hashed(name).len() < name.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_keys_of_every_word_are_reserved() {
        for name in ["x", "a:b", "a}b", "a{b", "a{}b", "{x}", "{x}y", "p{x}:y", "{x}:fence"] {
            for &word in WORDS {
                let key = Name::unchecked(name.as_bytes()).side_key(word);
                let of = lock_of_side_key(&key).map(|(lock, _)| lock);
                assert_eq!(of, Some(name.as_bytes()), "{}", key.escape_ascii());
                assert!(Name::new(b"", &key).is_err(), "{}", key.escape_ascii());
            }
        }
        for key in [INDEX, b"leasehold:", b"redisson_lock__channel:{x}"] {
            assert!(Name::new(b"", key).is_err(), "{}", key.escape_ascii());
        }
    }

    #[test]
    fn an_empty_or_too_long_name_is_refused() {
        assert!(Name::new(b"p:", b"").unwrap_err().is_config());
        assert!(Name::new(b"", &[1; MAX_BYTES]).is_ok());
        let error = Name::new(b"p:", &[1; MAX_BYTES]).unwrap_err().to_string();
        assert!(error.contains("65538 bytes") && error.contains("65536"), "{error}");
    }

    #[test]
    fn side_keys_share_their_locks_slot_and_are_no_lock() {
        for (name, key) in [
            ("x", "{x}:fence"),
            ("{x}", "{x}:tfence"),
            ("{x}y", "{x}y:tfence"),
            ("a{}b", "{a{}b}:fence"),
        ] {
            let name = Name::new(b"", name.as_bytes()).unwrap();
            assert_eq!(name.side_key(FENCE), key.as_bytes(), "{name}");
        }
    }

    #[test]
    fn names_that_resemble_a_side_key_are_allowed() {
        for name in [
            "x:fence",
            "x}:fence",
            "{x:fence",
            "{}:fence",
            "a{x}:fence",
            "{x}:fences",
            "{x}fence",
            "{x}:fence:",
            "{x}:fence:1",
            "fence",
            "x:tfence",
            "{x}:other",
            "leasehold",
            "{x}",
            "x:",
        ] {
            assert!(Name::new(b"", name.as_bytes()).is_ok(), "{name}");
        }
    }

    /// Or `x:t` and `{…}` could have a key in common.
    #[test]
    fn no_reserved_word_is_another_prefixed_with_t() {
        for word in WORDS {
            assert!(word.0.bytes().all(|byte| byte.is_ascii_lowercase()), "{word:?}");
            let twins = WORDS.iter().filter(|other| *other == word).count();
            assert_eq!(twins, 1, "{word:?}");
            let rest = word.0.strip_prefix('t');
            assert!(!WORDS.iter().any(|other| Some(other.0) == rest), "{word:?}");
        }
    }
}
