//! Names of locks.

use std::borrow::Borrow;
use std::fmt;

use crate::base::sync::Arc;
use crate::base::text::is_plain;

/// Errors and log lines show no more of a name, which may have 64 KiB.
const SHOWN_BYTES: usize = 96;

/// The name of a lock: the key in Redis, any bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name(Arc<[u8]>);

impl Name {
    /// A name of these bytes, without any check.
    pub(super) fn unchecked(bytes: &[u8]) -> Name {
        Name(bytes.into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ShownName(&self.0).fmt(f)
    }
}

/// A name of a lock as people see it.
pub(crate) struct ShownName<'a>(pub(crate) &'a [u8]);

impl fmt::Display for ShownName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(SHOWN_BYTES)];
        // A name is any bytes. One that is not plain text is escaped as a whole, so that no part of
        // it can be taken for an escape of ours. That includes a long name that is cut within a
        // character.
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

    fn shown(bytes: &[u8]) -> String {
        Name::unchecked(bytes).to_string()
    }

    #[test]
    fn odd_names_are_shown_escaped_and_shortened() {
        assert_eq!(shown(b"a\r\n\0"), "a\\r\\n\\x00");
        assert!(shown(&[b'n'; 70]).ends_with('n'));
        assert!(shown(&[b'n'; 700]).ends_with("(700 bytes)"));
    }
}
