//! Durations as people write them: `500ms`, `10s`, `2h`. A number alone is seconds, as for flock(1).

use std::time::Duration;

const TOO_LONG: &str = "the time is too long";

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
    let mut sum = Duration::ZERO;
    let mut rest = text;
    loop {
        let (term, others) = rest.split_at(end_of_term(rest));
        // The places in the text of the error are those of the whole.
        let wrong = |_| {
            humantime::parse_duration(text).map_or_else(
                |it| format!("{it}; write a time such as 500ms, 10s or 5m"),
                |_| TOO_LONG.to_owned(),
            )
        };
        let span = humantime::parse_duration(term).map_err(wrong)?;
        sum = sum.checked_add(span).ok_or(TOO_LONG)?;
        rest = others;
        if rest.is_empty() {
            return Ok(sum);
        }
    }
}

/// Where the first term of a time ends, such as `2h ` in `2h 30m`: before the number behind its unit. Terms are read one by
/// one, as humantime 2.4 panics at a sum that is too great.
fn end_of_term(text: &str) -> usize {
    let unit = text.find(char::is_alphabetic).unwrap_or(text.len());
    text[unit..].find(|letter: char| letter.is_ascii_digit()).map_or(text.len(), |at| unit + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_plain_seconds_are_read() {
        let cases = [
            ("500ms", 500),
            ("10s", 10_000),
            ("2h", 7_200_000),
            ("1h 30m5s", 5_405_000),
            ("3", 3_000),
            ("0.5", 500),
        ];
        for (text, millis) in cases {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "-1", "soon", "NaN", "inf", "1e400", "1M", "1d 2M", "1m 2", " "] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        let error = parse_duration("1m 2,3s").unwrap_err();
        assert!(error.contains("at 4"), "{error}");
    }

    #[test]
    fn sum_that_is_too_long_is_refused() {
        for text in ["18446744073709551615s 1000ms", "584542046090y 584542046090y", "1e20"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
