//! The slot of a key in Redis Cluster: a hash of the part between its first pair of braces, or of
//! the whole key if there is none.

/// The number of hash slots.
pub(crate) const SLOTS: u16 = 16384;

/// The part of a key that is hashed. `{}` is not a tag.
pub(crate) fn hashed(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let after = &key[open + 1..];
    // The first `}` after the first `{`, and only that one. In `{}{x}` the tag is empty, so the
    // whole key is hashed and a later pair does not count. A search for "any tag" would put keys
    // into other slots than the servers do.
    match after.iter().position(|&byte| byte == b'}') {
        Some(close) if close > 0 => &after[..close],
        _ => key,
    }
}

/// The hash slot of a key.
pub(crate) fn hash_slot(key: &[u8]) -> u16 {
    crc(hashed(key)) % SLOTS
}

/// CRC-16/XMODEM, as the specification of Redis Cluster names it. Not one of the other CRC-16s:
/// their results differ.
fn crc(bytes: &[u8]) -> u16 {
    const TABLE: [u16; 256] = table();
    bytes.iter().fold(0, |crc, &byte| {
        let [high, low] = crc.to_be_bytes();
        u16::from_be_bytes([low, 0]) ^ TABLE[usize::from(high ^ byte)]
    })
}

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_match_the_cluster_specification() {
        assert_eq!(crc(b"123456789"), 0x31c3);
        assert_eq!((hash_slot(b"foo"), hash_slot(b"bar"), hash_slot(b"")), (12182, 5061, 0));
        assert_eq!(hash_slot(b"{user1000}.following"), hash_slot(b"user1000"));
    }

    #[test]
    fn first_braces_are_the_hash_tag_unless_empty() {
        for (key, part) in [
            ("x", "x"),
            ("{x}y", "x"),
            ("foo{bar}{zap}", "bar"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("a}b", "a}b"),
            ("a{b", "a{b"),
        ] {
            assert_eq!(hashed(key.as_bytes()), part.as_bytes(), "{key}");
        }
    }
}
