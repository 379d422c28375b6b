//! A fast hash, by which states are told apart.

use std::hash::{Hash, Hasher};

/// Hashes what it is given by multiplying to 128 bits and folding, as foldhash does. States are made
/// of many small numbers, for which the standard hasher takes longer than all else together.
#[derive(Debug)]
pub(crate) struct Fold(u64);

impl Default for Fold {
    fn default() -> Fold {
        Fold(FOLD)
    }
}

impl Fold {
    fn add(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * u128::from(FOLD);
        let [low, high] = [product as u64, (product >> 64) as u64];
        self.0 = (low ^ high).wrapping_add(FOLD);
    }
}

/// The golden ratio, an odd number without a pattern.
const FOLD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.add(u64::from(*byte)));
    }

    fn write_u8(&mut self, number: u8) {
        self.add(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.add(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    fn write_i16(&mut self, number: i16) {
        self.add(number as u64);
    }

    fn write_i64(&mut self, number: i64) {
        self.add(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.add(number as u64);
    }
}

/// The hash of a value.
pub(crate) fn fold(value: impl Hash) -> u64 {
    let mut hasher = Fold::default();
    value.hash(&mut hasher);
    hasher.finish()
}
