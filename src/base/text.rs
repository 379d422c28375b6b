//! Text that another process or a server wrote, made fit to be shown.
//!
//! A log line or a terminal obeys line ends and escape sequences, and shows text with marks of direction in
//! another order than it has. So nobody but us decides where our lines end.

use std::borrow::Cow;

/// Whether a character shows itself and does nothing else.
pub(crate) fn is_plain(letter: char) -> bool {
    let does_more = letter.is_control()
        || matches!(letter,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !does_more
}

/// The text with every character escaped that is not plain.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_plain(letter) {
            clean.push(letter);
        } else {
            clean.extend(letter.escape_default());
        }
    }
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_left_as_it_is() {
        for text in ["", "ERR no such key", "Zürich – 東京", "a\u{a0}b"] {
            assert!(matches!(clean(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn line_ends_escapes_and_direction_marks_are_escaped() {
        let text = "a\r\nb\u{1b}[31mc\u{202e}d\u{feff}";
        assert_eq!(clean(text), r"a\r\nb\u{1b}[31mc\u{202e}d\u{feff}");
    }
}
