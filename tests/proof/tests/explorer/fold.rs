//! A fast hash that distinguishes states.

use std::hash::{Hash, Hasher};

/// Hashes what it is given by multiplying to 128 bits and folding, as foldhash does. States are
/// made of many small numbers, for which the standard hasher takes longer than all else together.
/// So they are packed into words first, each as wide as its type.
#[derive(Debug)]
pub(crate) struct Fold {
    hash: u64,
    /// The last numbers, and how many bits they take.
    packed: u64,
    bits: u32,
}

impl Default for Fold {
    fn default() -> Fold {
        Fold { hash: FOLD, packed: 0, bits: 0 }
    }
}

impl Fold {
    fn pack(&mut self, number: u64, bits: u32) {
        if self.bits + bits > u64::BITS {
            self.hash = mix(self.hash, self.packed);
            (self.packed, self.bits) = (0, 0);
        }
        self.packed |= number << self.bits;
        self.bits += bits;
    }
}

fn mix(hash: u64, number: u64) -> u64 {
    let product = u128::from(hash ^ number) * u128::from(FOLD);
    let [low, high] = [product as u64, (product >> 64) as u64];
    (low ^ high).wrapping_add(FOLD)
}

/// The golden ratio, an odd number without a pattern.
const FOLD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        mix(mix(self.hash, self.packed), self.bits.into())
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.write_u8(*byte));
    }

    fn write_u8(&mut self, number: u8) {
        self.pack(number.into(), u8::BITS);
    }

    fn write_u16(&mut self, number: u16) {
        self.pack(number.into(), u16::BITS);
    }

    fn write_u32(&mut self, number: u32) {
        self.pack(number.into(), u32::BITS);
    }

    fn write_u64(&mut self, number: u64) {
        self.pack(number, u64::BITS);
    }

    fn write_i16(&mut self, number: i16) {
        self.write_u16(number.cast_unsigned());
    }

    fn write_i64(&mut self, number: i64) {
        self.write_u64(number.cast_unsigned());
    }

    /// A length, and none is longer.
    fn write_usize(&mut self, number: usize) {
        self.write_u32(number as u32);
    }

    /// Which variant of an enum it is, and none has more of them.
    fn write_isize(&mut self, number: isize) {
        self.write_u8(number as u8);
    }
}

/// The hash of a value.
pub(crate) fn fold(value: impl Hash) -> u64 {
    let mut hasher = Fold::default();
    value.hash(&mut hasher);
    hasher.finish()
}
