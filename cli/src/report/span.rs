//! Spans of time in a few letters.

use std::time::Duration;

/// A span in at most six letters: `350ms`, `12.3s`, `4m05s`, `2h05m`, `30d`. Rounded down: a rest of a lease must
/// not look longer than it is.
pub(crate) fn short(span: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    match span.as_secs() {
        0 => format!("{}ms", span.as_millis()),
        seconds @ 1..MINUTE => format!("{seconds}.{}s", span.subsec_millis() / 100),
        seconds @ MINUTE..HOUR => format!("{}m{:02}s", seconds / MINUTE, seconds % MINUTE),
        seconds @ HOUR..DAY => format!("{}h{:02}m", seconds / HOUR, seconds % HOUR / MINUTE),
        seconds => format!("{}d", seconds / DAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_is_short_and_rounded_down() {
        for (millis, shown) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1.0s"),
            (59_999, "59.9s"),
            (245_000, "4m05s"),
            (7_500_000, "2h05m"),
            (2_592_000_000, "30d"),
        ] {
            assert_eq!(short(Duration::from_millis(millis)), shown);
        }
    }
}
