//! How Redis reads and prints numbers.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// Reads an integer as Redis does: only in the form in which it prints one.
pub(super) fn integer(digits: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    // `parse` accepts "+1" and "007", which Redis refuses.
    (number.to_string().as_bytes() == digits).then_some(number)
}

/// A score of a sorted set: any number but NaN. Redis keeps −0; here it becomes 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Score(f64);

impl Score {
    pub(super) fn new(number: f64) -> Option<Score> {
        // Adding 0 turns −0 into 0, so that equality by bits is equality of numbers.
        (!number.is_nan()).then_some(Score(number + 0.0))
    }

    pub(super) fn read(text: &[u8]) -> Option<Score> {
        Score::new(std::str::from_utf8(text).ok()?.parse().ok()?)
    }

    pub(super) fn number(self) -> f64 {
        self.0
    }

    /// Prints a score as Redis 7.2 and later do: with the fewest digits that identify the number.
    pub(super) fn print(self) -> Vec<u8> {
        print(self.0).into_bytes()
    }
}

/// Equality by bits, so that a store can be hashed: the explorer compares states by it.
impl PartialEq for Score {
    fn eq(&self, other: &Score) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Score {}

impl Hash for Score {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Score) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Score) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn print(number: f64) -> String {
    // Whole numbers up to here are printed as integers: 2^62.
    const WHOLE: f64 = 4_611_686_018_427_387_904.0;
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number.fract() == 0.0 && number.abs() < WHOLE {
        return (number as i64).to_string();
    }
    // Rust and Redis both find the shortest digits; only their layout differs. The conditions below
    // are those of `fpconv`, the library in Redis.
    let scientific = format!("{:e}", number.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits = mantissa.replace('.', "");
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if number < 0.0 { "-" } else { "" };
    // The power of ten of the last digit.
    let last = exponent + 1 - i32::try_from(digits.len()).unwrap_or(0);
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    let text = if last >= 0 && exponent.abs() < exponent + 1 - last + 7 {
        digits + &zeros(last)
    } else if last < 0 && (last > -7 || exponent.abs() < 4) {
        match usize::try_from(exponent + 1) {
            Ok(point) if point > 0 => format!("{}.{}", &digits[..point], &digits[point..]),
            _ => format!("0.{}{digits}", zeros(-exponent - 1)),
        }
    } else {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        format!("{first}{point}{rest}e{exponent:+}")
    };
    format!("{sign}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_accepted_only_as_they_are_printed() {
        for good in ["0", "7", "-7", "9223372036854775807", "-9223372036854775808"] {
            assert_eq!(integer(good.as_bytes()).unwrap().to_string(), good);
        }
        for bad in ["", " 1", "1 ", "+1", "-0", "01", "1.0", "1e3", "9223372036854775808", "x"] {
            assert_eq!(integer(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn scores_are_printed_in_few_digits() {
        for text in ["0", "-3", "0.5", "1700000000000000", "-0.0001", "3.25", "1e+20", "1.5e-10"] {
            let score = Score::read(text.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(score.print()).unwrap(), text);
        }
        assert!(Score::read(b"nan").is_none() && Score::read(b"1x").is_none());
        assert_eq!(Score::read(b"-0"), Score::read(b"0"));
    }
}
