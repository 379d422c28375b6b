//! Names of locks, and of the keys that belong to them.

use std::borrow::Borrow;
use std::fmt;

use crate::base::error::{Error, Result};
use crate::base::reserved::{self, Reserved, Word, reserved};
use crate::base::sync::Arc;
use crate::base::text::is_plain;

const MAX_BYTES: usize = 64 * 1024;
const SHOWN_BYTES: usize = 96;

/// The name of a lock: the key in Redis, any bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Name(Arc<[u8]>);

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
        let name = Name([prefix, name].concat().into());
        match reserved(&name.0) {
            None => Ok(name),
            Some(why) => Err(name.refusal(&why)),
        }
    }

    fn refusal(&self, why: &Reserved<'_>) -> Error {
        let shown = format!("{self:?}");
        match why {
            Reserved::Beside { name, ending } => Error::config(
                "name",
                format_args!(
                    "{shown} is reserved for a key of the lock \"{}\"",
                    Name((*name).into())
                ),
                format_args!(
                    "a name that, name_prefix included, does not end in \"{}\"",
                    ending.escape_ascii()
                ),
            ),
            Reserved::Beginning(text) => Error::config(
                "name",
                format_args!("{shown} is reserved for keys that belong to no single lock"),
                format_args!("a name that, name_prefix included, does not begin with \"{text}\""),
            ),
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key that stands beside the lock for one purpose, in the same cluster slot. No other lock has it.
    pub(crate) fn beside(&self, word: Word) -> Vec<u8> {
        reserved::beside(&self.0, word)
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(SHOWN_BYTES)];
        match std::str::from_utf8(shown) {
            Ok(text) if text.chars().all(is_plain) => f.write_str(text)?,
            _ => write!(f, "{}", shown.escape_ascii())?,
        }
        if shown.len() < self.0.len() {
            write!(f, "… ({} bytes)", self.0.len())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(name: &str) -> String {
        String::from_utf8(Name::new(b"", name.as_bytes()).unwrap().beside(reserved::FENCE)).unwrap()
    }

    #[test]
    fn keys_beside_a_name_share_its_slot_and_never_another_names_key() {
        assert_eq!(beside("x"), "{x}:fence");
        assert_eq!(beside("{x}"), "{x}:tfence");
        assert_eq!(beside("{x}y"), "{x}y:tfence");
        assert_eq!(beside("a{}b"), "{a{}b}:fence");
    }

    #[test]
    fn odd_names_are_shown_escaped_and_shortened() {
        assert_eq!(Name::new(b"", b"a\r\n\0").unwrap().to_string(), "a\\r\\n\\x00");
        assert!(Name::new(b"", &[b'n'; 70]).unwrap().to_string().ends_with('n'));
        assert!(Name::new(b"", &[b'n'; 700]).unwrap().to_string().ends_with("(700 bytes)"));
    }

    #[test]
    fn an_empty_or_too_long_name_is_refused() {
        assert!(Name::new(b"p:", b"").unwrap_err().is_config());
        assert!(Name::new(b"", &[1; MAX_BYTES]).is_ok());
        let error = Name::new(b"p:", &[1; MAX_BYTES]).unwrap_err().to_string();
        assert!(error.contains("65538 bytes") && error.contains("65536"), "{error}");
    }
}
