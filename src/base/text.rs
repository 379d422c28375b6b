//! How errors and log lines show times, spans of time, and text that another process or a server wrote.
//!
//! A line end in such a text could forge a log line, an escape sequence could change the terminal,
//! and a mark of direction could show the text in another order. So foreign text is escaped before
//! it is shown.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A span of time as people write it: `350ms`, `1.2s`, `1m 5s`. It is rounded down, to two units at
/// most: a rest of a lease must not look longer than it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span(pub(crate) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MINUTE: u64 = 60;
        const HOUR: u64 = 60 * MINUTE;
        const DAY: u64 = 24 * HOUR;
        // Half a trillion years would not tell the reader which value was passed.
        if self.0 == Duration::MAX {
            return f.write_str("Duration::MAX");
        }
        let (all, seconds) = (self.0, self.0.as_secs());
        let (great, unit, rest, small) = match seconds {
            0 if all.is_zero() => return f.write_str("0s"),
            0 if all < Duration::from_micros(1) => return write!(f, "{}ns", all.as_nanos()),
            0 if all < Duration::from_millis(1) => return write!(f, "{}µs", all.as_micros()),
            0 => return write!(f, "{}ms", all.as_millis()),
            1..MINUTE => {
                let tenths = all.subsec_millis() / 100;
                return match tenths {
                    0 => write!(f, "{seconds}s"),
                    _ => write!(f, "{seconds}.{tenths}s"),
                };
            }
            MINUTE..HOUR => (seconds / MINUTE, "m", seconds % MINUTE, "s"),
            HOUR..DAY => (seconds / HOUR, "h", seconds % HOUR / MINUTE, "m"),
            DAY.. => (seconds / DAY, "d", seconds % DAY / HOUR, "h"),
        };
        match rest {
            0 => write!(f, "{great}{unit}"),
            _ => write!(f, "{great}{unit} {rest}{small}"),
        }
    }
}

/// A time of a server's clock: `2026-11-26 02:00:03 UTC`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Utc(pub(crate) SystemTime);

impl Utc {
    /// The date and the time of day. `None` for a time without a year of four digits.
    fn parts(self) -> Option<(String, String)> {
        // The formatter panics before 1970, and fails after 9999.
        self.0.duration_since(UNIX_EPOCH).ok()?;
        let mut text = String::new();
        write!(text, "{}", humantime::format_rfc3339_seconds(self.0)).ok()?;
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        Some((date.to_owned(), time.to_owned()))
    }

    /// The time of day alone, for a time that is less than a day away.
    fn near(self) -> String {
        self.parts().map_or_else(|| self.to_string(), |(_, time)| format!("{time} UTC"))
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            Some((date, time)) => write!(f, "{date} {time} UTC"),
            None => f.write_str("a time beyond the calendar"),
        }
    }
}

/// A time of a server's clock, and how far it is from that clock's present if that is known: `8h ago (02:00:03 UTC)`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    Past(SystemTime, Option<Duration>),
    Coming(SystemTime, Option<Duration>),
}

impl When {
    /// Seen from the present of the same clock.
    pub(crate) fn seen(at: SystemTime, now: SystemTime) -> When {
        match now.duration_since(at) {
            Ok(ago) => When::Past(at, Some(ago)),
            Err(ahead) => When::Coming(at, Some(ahead.duration())),
        }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAY: Duration = Duration::from_secs(86_400);
        let (When::Past(at, span) | When::Coming(at, span)) = *self;
        let Some(span) = span else { return write!(f, "at {}", Utc(at)) };
        match self {
            When::Past(..) => write!(f, "{} ago", Span(span))?,
            When::Coming(..) => write!(f, "in {}", Span(span))?,
        }
        match span < DAY {
            true => write!(f, " ({})", Utc(at).near()),
            false => write!(f, " ({})", Utc(at)),
        }
    }
}

/// Whether a character only shows itself.
pub(crate) fn is_plain(letter: char) -> bool {
    // Besides control characters: marks of direction and isolates, zero-width characters, line and
    // paragraph separators, interlinear annotations, tags. Letters of every script stay, so that
    // names can be read in their own language.
    let does_more = letter.is_control()
        || matches!(letter,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !does_more
}

/// Escapes every character that is not plain.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_plain(letter) {
            clean.push(letter);
        } else {
            clean.extend(letter.escape_default());
        }
    }
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_is_shown_as_people_write_it() {
        for (span, shown) in [
            (Duration::ZERO, "0s"),
            (Duration::from_nanos(7), "7ns"),
            (Duration::from_micros(999), "999µs"),
            (Duration::from_micros(350_999), "350ms"),
            (Duration::from_secs(1), "1s"),
            (Duration::from_nanos(1_234_567_891), "1.2s"),
            (Duration::from_millis(59_999), "59.9s"),
            (Duration::from_secs(65), "1m 5s"),
            (Duration::from_secs(600), "10m"),
            (Duration::from_secs(2 * 3_600 + 300), "2h 5m"),
            (Duration::from_secs(30 * 86_400 + 3_600), "30d 1h"),
            (Duration::MAX, "Duration::MAX"),
        ] {
            assert_eq!(Span(span).to_string(), shown);
        }
    }

    #[test]
    fn time_is_shown_with_its_distance_and_with_its_date_where_that_is_needed() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        // 02:00:03 on the day after.
        let (now, hour) = (1_795_744_803, 3_600);
        for (when, shown) in [
            (When::seen(at(now), at(now)), "0s ago (02:00:03 UTC)"),
            (When::seen(at(now), at(now + 8 * hour)), "8h ago (02:00:03 UTC)"),
            (When::seen(at(now), at(now + 24 * hour)), "1d ago (2026-11-27 02:00:03 UTC)"),
            (When::seen(at(now), at(now - 60)), "in 1m (02:00:03 UTC)"),
            (When::seen(at(now), at(now - 48 * hour)), "in 2d (2026-11-27 02:00:03 UTC)"),
            (When::Past(at(now), None), "at 2026-11-27 02:00:03 UTC"),
            (
                When::Past(UNIX_EPOCH - Duration::from_secs(1), None),
                "at a time beyond the calendar",
            ),
            (When::Coming(at(1 << 40), None), "at a time beyond the calendar"),
        ] {
            assert_eq!(when.to_string(), shown);
        }
    }

    #[test]
    fn plain_text_is_left_as_it_is() {
        for text in ["", "ERR no such key", "Zürich – 東京", "a\u{a0}b"] {
            assert!(matches!(clean(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn line_ends_escapes_and_direction_marks_are_escaped() {
        let text = "a\r\nb\u{1b}[31mc\u{202e}d\u{feff}";
        assert_eq!(clean(text), r"a\r\nb\u{1b}[31mc\u{202e}d\u{feff}");
    }
}
