//! Durations as people write them: `500ms`, `10s`, `2h`. A number alone is seconds, as for flock(1).

use std::time::Duration;

/// Reads a duration.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string());
    }
    // For humantime it is a month, beside `m` for a minute.
    if text.split(|letter: char| !letter.is_alphabetic()).any(|unit| unit == "M") {
        return Err(
            "M is ambiguous: write m for minutes, or days such as 30d for a month".to_owned()
        );
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_plain_seconds_are_read() {
        let cases =
            [("500ms", 500), ("10s", 10_000), ("2h", 7_200_000), ("3", 3_000), ("0.5", 500)];
        for (text, millis) in cases {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "-1", "soon", "NaN", "inf", "1e400", "1M", "1d 2M"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
