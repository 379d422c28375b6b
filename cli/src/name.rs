//! Names of locks: any bytes, as arguments and on the screen.

use std::ffi::{OsStr, OsString};
use std::fmt;

/// The bytes of a name that was given as an argument.
pub(crate) fn bytes(argument: &OsStr) -> &[u8] {
    argument.as_encoded_bytes()
}

/// An argument that is a name or a pattern.
pub(crate) type NameArgument = OsString;

/// Bytes as text that a terminal shows as they are, and of which no two look the same: `\` is `\\`, and what is
/// no UTF-8 or does more than show itself is `\x` and two digits for each byte.
pub(crate) struct Shown<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for letter in chunk.valid().chars() {
                if letter == '\\' {
                    f.write_str("\\\\")?;
                } else if is_plain(letter) {
                    write!(f, "{letter}")?;
                } else {
                    let mut bytes = [0; 4];
                    escape(letter.encode_utf8(&mut bytes).as_bytes(), f)?;
                }
            }
            escape(chunk.invalid(), f)?;
        }
        Ok(())
    }
}

/// The beginning of a value, cut to fit a message and shown in the same way.
pub(crate) struct Abridged<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Abridged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 200;
        match self.0.get(..MOST) {
            Some(begin) if self.0.len() > MOST => write!(f, "{}…", Shown(begin)),
            _ => Shown(self.0).fmt(f),
        }
    }
}

/// A message of one or more lines, which may repeat text from elsewhere: what does more than show itself is escaped.
pub(crate) struct Message<'a>(pub(crate) &'a str);

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            let mut bytes = [0; 4];
            match letter {
                letter if letter == '\n' || is_plain(letter) => write!(f, "{letter}")?,
                letter => escape(letter.encode_utf8(&mut bytes).as_bytes(), f)?,
            }
        }
        Ok(())
    }
}

fn escape(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
}

/// Whether a character only shows itself. Marks of direction could show a name in another order, and characters
/// without a width could hide a difference.
pub(crate) fn is_plain(letter: char) -> bool {
    let does_more = letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !does_more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_are_shown_as_they_are() {
        for name in ["orders:42", "Zürich – 東京", "a b"] {
            assert_eq!(Shown(name.as_bytes()).to_string(), name);
        }
    }

    #[test]
    fn long_values_are_abridged() {
        assert_eq!(Abridged(b"a\x1b").to_string(), r"a\x1b");
        assert_eq!(Abridged(&[b'a'; 200]).to_string(), "a".repeat(200));
        assert_eq!(Abridged(&[b'a'; 201]).to_string(), "a".repeat(200) + "…");
    }

    #[test]
    fn message_keeps_its_lines_and_escapes_the_rest() {
        let text = "no \\ here:\n  \x1b[2J\r\u{202e}é";
        assert_eq!(Message(text).to_string(), "no \\ here:\n  \\x1b[2J\\x0d\\xe2\\x80\\xaeé");
    }

    #[test]
    fn names_that_differ_are_shown_differently() {
        let names: [&[u8]; 7] =
            [b"a\xff", b"a\\xff", b"a\xfe", b"a\x1b[2J", "a\u{202e}".as_bytes(), b"a", b"a\n"];
        let shown: Vec<String> = names.iter().map(|name| Shown(name).to_string()).collect();
        assert_eq!(
            shown,
            [r"a\xff", r"a\\xff", r"a\xfe", r"a\x1b[2J", r"a\xe2\x80\xae", "a", r"a\x0a"]
        );
    }
}
