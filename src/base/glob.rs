//! Patterns of names.

/// A literal prefix, and a pattern in which `*` stands for any bytes and `?` for one; everything else stands for
/// itself.
#[derive(Clone, Debug)]
pub(crate) struct Glob {
    prefix: Vec<u8>,
    pattern: Vec<u8>,
}

impl Glob {
    pub(crate) fn new(prefix: &[u8], pattern: &[u8]) -> Glob {
        Glob { prefix: prefix.to_vec(), pattern: pattern.to_vec() }
    }

    /// What follows the prefix in a text that matches as a whole.
    pub(crate) fn rest<'a>(&self, text: &'a [u8]) -> Option<&'a [u8]> {
        text.strip_prefix(self.prefix.as_slice()).filter(|rest| self.fits(rest))
    }

    fn fits(&self, text: &[u8]) -> bool {
        let (mut at, mut read) = (0, 0);
        // Where the last `*` stands, and how far the text was read there. Only the last one is tried again: an
        // earlier one could gain nothing that the last cannot, so the time does not grow with the number of stars.
        let mut star = None;
        while read < text.len() {
            match self.pattern.get(at) {
                Some(b'*') => {
                    star = Some((at, read));
                    at += 1;
                }
                Some(&byte) if byte == b'?' || byte == text[read] => {
                    (at, read) = (at + 1, read + 1)
                }
                _ => {
                    let Some((last, begin)) = star else { return false };
                    star = Some((last, begin + 1));
                    (at, read) = (last + 1, begin + 1);
                }
            }
        }
        self.pattern[at..].iter().all(|&byte| byte == b'*')
    }

    /// All of it as Redis writes patterns.
    pub(crate) fn to_redis(&self) -> Vec<u8> {
        let escape = |byte: u8, special: &[u8], to: &mut Vec<u8>| {
            if special.contains(&byte) {
                to.push(b'\\');
            }
            to.push(byte);
        };
        let mut pattern = Vec::new();
        self.prefix.iter().for_each(|&byte| escape(byte, b"*?[]\\", &mut pattern));
        self.pattern.iter().for_each(|&byte| escape(byte, b"[]\\", &mut pattern));
        pattern
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stars_and_question_marks_are_special() {
        for (pattern, yes, no) in [
            ("", "", "a"),
            ("?*", "a", ""),
            ("orders:*", "orders:", "order:1"),
            ("*:?", "a:b:c", "a:bc"),
            ("a*b*c", "abbbc", "abbb"),
            ("[ab]\\*", "[ab]\\x", "a"),
        ] {
            let glob = Glob::new(b"p*", pattern.as_bytes());
            let text = ["p*", yes].concat();
            assert_eq!(glob.rest(text.as_bytes()), Some(yes.as_bytes()), "{pattern} {yes}");
            assert_eq!(glob.rest(["p*", no].concat().as_bytes()), None, "{pattern} {no}");
            assert_eq!(glob.rest(["pp", yes].concat().as_bytes()), None, "{pattern} {yes}");
        }
    }

    #[test]
    fn many_stars_take_no_more_time_than_one() {
        let pattern = "*a".repeat(200) + "b";
        assert_eq!(Glob::new(b"", pattern.as_bytes()).rest(&[b'a'; 20_000]), None);
    }

    #[test]
    fn prefix_is_literal_for_redis_too() {
        let pattern = Glob::new(b"a*?\\:", b"o[1]*").to_redis();
        assert_eq!(pattern, b"a\\*\\?\\\\:o\\[1\\]*");
    }
}
