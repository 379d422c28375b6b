//! A command in the bytes that are sent.
//!
//! Each part is written once, to where it stays. `redis::Cmd` collects the parts, and packs them into
//! other memory.

/// Room for the first line, which has the number of parts: `*`, the number, the end of the line.
const HEAD: usize = 1 + MOST_DIGITS + 2;
/// Room for the line before each part, which has its length, and for the end of the part.
const AROUND: usize = HEAD + 2;
/// As many as the largest number has.
const MOST_DIGITS: usize = 20;

/// A command, packed.
#[derive(Clone, Debug)]
pub(super) struct PackedCommand {
    bytes: Vec<u8>,
    /// Where the first line begins. It is as long as the number in it.
    start: usize,
}

impl PackedCommand {
    /// Packs a command of these parts.
    pub(super) fn of(parts: &[&[u8]]) -> PackedCommand {
        let mut packer = Packer::new(parts.iter().map(|part| part.len() + AROUND).sum());
        parts.iter().for_each(|part| packer.push(part));
        packer.finish()
    }

    /// The bytes to send.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The parts of which it was made.
    pub(super) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes();
        let mut line = move |length: Option<usize>| {
            let end = match length {
                Some(length) => length,
                None => rest.iter().position(|byte| *byte == b'\r')?,
            };
            let (line, after) = rest.split_at_checked(end)?;
            rest = after.get(2..)?;
            Some(line)
        };
        // The number of parts.
        line(None);
        std::iter::from_fn(move || {
            let length = line(None)?.get(1..)?;
            let length = std::str::from_utf8(length).ok()?.parse().ok()?;
            line(Some(length))
        })
    }
}

impl From<Vec<u8>> for PackedCommand {
    /// Takes the bytes of a command that is packed.
    fn from(bytes: Vec<u8>) -> PackedCommand {
        PackedCommand { bytes, start: 0 }
    }
}

/// Packs a command, part by part.
pub(super) struct Packer {
    bytes: Vec<u8>,
    parts: u64,
}

impl Packer {
    /// With room for so many bytes.
    pub(super) fn new(room: usize) -> Packer {
        // The number of parts comes first and is known last, so there is room for it.
        let mut bytes = Vec::with_capacity(HEAD + room);
        bytes.resize(HEAD, 0);
        Packer { bytes, parts: 0 }
    }

    /// Adds a part.
    pub(super) fn push(&mut self, part: &[u8]) {
        self.parts += 1;
        self.bytes.push(b'$');
        self.bytes.extend_from_slice(Digits::of(part.len() as u64).bytes());
        self.bytes.extend_from_slice(b"\r\n");
        self.bytes.extend_from_slice(part);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Adds a number.
    pub(super) fn push_number(&mut self, number: u64) {
        self.push(Digits::of(number).bytes());
    }

    pub(super) fn finish(mut self) -> PackedCommand {
        let digits = Digits::of(self.parts);
        let digits = digits.bytes();
        let start = HEAD - 2 - digits.len() - 1;
        self.bytes[start] = b'*';
        self.bytes[start + 1..HEAD - 2].copy_from_slice(digits);
        self.bytes[HEAD - 2..HEAD].copy_from_slice(b"\r\n");
        PackedCommand { bytes: self.bytes, start }
    }
}

/// The digits of a number.
struct Digits {
    all: [u8; MOST_DIGITS],
    start: usize,
}

impl Digits {
    fn of(mut number: u64) -> Digits {
        let (mut all, mut start) = ([0; MOST_DIGITS], MOST_DIGITS);
        loop {
            start -= 1;
            all[start] = b"0123456789"[(number % 10) as usize];
            number /= 10;
            if number == 0 {
                return Digits { all, start };
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.all[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_packed_as_by_redis_and_read_again() {
        let long = vec![b'x'; 12_345];
        let many = vec![b"\r\n$3\r\n".as_slice(); 1_234];
        let commands: [&[&[u8]]; 5] =
            [&[b"PING"], &[b"GET", b""], &[b"SET", b"\x00\xff\r\n", b"*1"], &[&long, b"a"], &many];
        for parts in commands {
            let mut cmd = redis::Cmd::new();
            parts.iter().for_each(|part| _ = cmd.arg(*part));
            let packed = PackedCommand::of(parts);
            assert_eq!(packed.bytes(), cmd.get_packed_command());
            assert_eq!(packed.parts().collect::<Vec<_>>(), parts);
        }
    }

    #[test]
    fn numbers_are_packed_in_digits() {
        for number in [0, 7, 10, 1_000, u64::MAX] {
            let mut packer = Packer::new(0);
            packer.push_number(number);
            let packed = packer.finish();
            assert_eq!(packed.parts().collect::<Vec<_>>(), [number.to_string().as_bytes()]);
        }
    }
}
