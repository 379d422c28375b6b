//! The record of a job that runs once in a period.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::{LastRun, LockClient, Once, Period, RunEnd};
use serde_json::{Value, json};

/// The job of this name. Its record says for which periods it ran, so that any period will do to read it.
pub(crate) fn of(client: &LockClient, name: &[u8]) -> leasehold::Result<Once> {
    client.once(name, Period::every(Duration::from_secs(86_400)))
}

/// The last run of a job, and when it is due.
pub(crate) fn json(last: &LastRun) -> Value {
    let (state, reason) = match last.end() {
        RunEnd::Running => ("running", None),
        RunEnd::Died => ("died", None),
        RunEnd::Succeeded => ("succeeded", None),
        RunEnd::Failed(reason) => ("failed", Some(reason)),
        _ => ("unknown", None),
    };
    let by = last.by();
    json!({
        "state": state,
        "reason": reason,
        "began": time(last.began()),
        "ended": last.ended().and_then(time),
        "period": [time(last.period().start), time(last.period().end)],
        "host": by.host(),
        "pid": by.pid(),
        "label": by.label(),
        "token": by.token().map(|token| token.get()),
        "tries": last.tries(),
        "succeeded": last.succeeded_at().and_then(time),
        "due": last.due_at().and_then(time),
    })
}

/// A time of the server's clock as RFC 3339 has it, unless that cannot show it.
fn time(at: SystemTime) -> Option<String> {
    use std::fmt::Write as _;
    at.duration_since(UNIX_EPOCH).ok()?;
    let mut text = String::new();
    write!(text, "{}", humantime::format_rfc3339_millis(at)).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_that_of_the_standard_where_that_has_one() {
        let at = UNIX_EPOCH + Duration::from_millis(1_795_744_803_120);
        assert_eq!(time(at).as_deref(), Some("2026-11-27T02:00:03.120Z"));
        assert_eq!(time(UNIX_EPOCH - Duration::from_secs(1)), None);
        assert_eq!(time(UNIX_EPOCH + Duration::from_secs(1 << 40)), None);
    }
}
