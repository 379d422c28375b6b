//! Where the comparisons of a Lua script are.

use std::ops::Range;

/// The operators, and what takes their places. The longer ones come first.
const SWAPS: [(&str, &str); 6] =
    [("<=", "<"), (">=", ">"), ("==", "~="), ("~=", "=="), ("<", "<="), (">", ">=")];

/// The places of the operators, and what takes their places.
pub(super) fn comparisons(text: &str) -> Vec<(Range<usize>, &'static str)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let comparison = SWAPS.iter().find(|(from, _)| rest.starts_with(from));
        let length = if let Some(comment) = rest.strip_prefix("--") {
            2 + bracketed(comment).unwrap_or_else(|| comment.find('\n').unwrap_or(comment.len()))
        } else if let Some(length) = bracketed(rest) {
            length
        } else if rest.starts_with(['\'', '"']) {
            quoted(rest)
        } else if let Some(&(from, to)) = comparison {
            found.push((at..at + from.len(), to));
            from.len()
        } else {
            rest.chars().next().map_or(1, char::len_utf8)
        };
        at += length;
    }
    found
}

/// The length of a string or comment in long brackets, if one begins here.
fn bracketed(text: &str) -> Option<usize> {
    let level = text.strip_prefix('[')?.bytes().take_while(|byte| *byte == b'=').count();
    let begin = text.get(level + 1..)?.strip_prefix('[')?;
    let end = format!("]{}]", "=".repeat(level));
    Some(level + 2 + begin.find(&end).expect("it ends") + end.len())
}

/// The length of the string that begins here.
fn quoted(text: &str) -> usize {
    let quote = text.as_bytes()[0];
    let mut bytes = text.bytes().enumerate().skip(1);
    while let Some((at, byte)) = bytes.next() {
        if byte == b'\\' {
            bytes.next();
        } else if byte == quote {
            return at + 1;
        }
    }
    panic!("a string has no end: {text}")
}

#[test]
fn comparisons_are_told_from_texts_and_comments() {
    let text = "if a<b then -- c < d\n x = 'e \\' < f' .. \"g > h\" --[[ i\n == j ]]\n y = k[l]==m \
                and [==[ n ]] ~= o ]==] ~= p or q <= r or s >= t or u > v end";
    let found: Vec<_> = comparisons(text).into_iter().map(|(at, to)| (&text[at], to)).collect();
    assert_eq!(
        found,
        [("<", "<="), ("==", "~="), ("~=", "=="), ("<=", "<"), (">=", ">"), (">", ">=")]
    );
}
