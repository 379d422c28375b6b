//! A little statistics, and results as lines of JSON.

use std::fmt::Write;

/// Returns the middle of the values, or NaN if there are none.
pub fn median(values: &[f64]) -> f64 {
    percentile(values, 50.0)
}

/// Returns the percentile, from 0 to 100, interpolated between neighbours; NaN if there are none.
pub fn percentile(values: &[f64], percent: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let place = percent.clamp(0.0, 100.0) / 100.0 * last as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    low + (high - low) * place.fract()
}

/// Returns Jain's index of fairness: 1 if all shares are equal, 1/n if one takes all, NaN if
/// there is nothing to share.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// A JSON object on one line, its keys in the order given.
#[derive(Debug, Clone, Default)]
pub struct JsonLine {
    text: String,
}

impl JsonLine {
    /// Returns an empty object.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a string.
    pub fn string(mut self, key: &str, value: &str) -> Self {
        self.key(key);
        quote(&mut self.text, value);
        self
    }

    /// Adds a number; what JSON has no number for becomes null.
    pub fn number(mut self, key: &str, value: f64) -> Self {
        if !value.is_finite() {
            return self.null(key);
        }
        self.key(key);
        self.write(format_args!("{value}"));
        self
    }

    /// Adds a whole number.
    pub fn integer(mut self, key: &str, value: u64) -> Self {
        self.key(key);
        self.write(format_args!("{value}"));
        self
    }

    /// Adds a truth value.
    pub fn boolean(mut self, key: &str, value: bool) -> Self {
        self.key(key);
        self.write(format_args!("{value}"));
        self
    }

    /// Adds a null.
    pub fn null(mut self, key: &str) -> Self {
        self.key(key);
        self.text.push_str("null");
        self
    }

    /// Returns the line, without its end.
    pub fn finish(self) -> String {
        format!("{{{}}}", self.text)
    }

    fn key(&mut self, key: &str) {
        if !self.text.is_empty() {
            self.text.push(',');
        }
        quote(&mut self.text, key);
        self.text.push(':');
    }

    fn write(&mut self, value: std::fmt::Arguments<'_>) {
        self.text.write_fmt(value).expect("a string takes any text");
    }
}

fn quote(text: &mut String, value: &str) {
    text.push('"');
    for letter in value.chars() {
        match letter {
            '"' | '\\' => text.extend(['\\', letter]),
            '\u{0}'..='\u{1f}' => {
                write!(text, "\\u{:04x}", u32::from(letter)).expect("a string takes any text");
            }
            _ => text.push(letter),
        }
    }
    text.push('"');
}
