//! From when on a server counts that is one of several.
//!
//! A server that lost its memory in a restart must not vote before all has ended that it may have
//! forgotten. It tells itself for how long it has run, by its own clock. That is believed unless it
//! cannot be: where another run was met since, the clock was set ahead.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::base::sync::Mutex;
use crate::base::time::Moment;
use crate::wire::connection::{Reply, Standing};

/// The server counts whole seconds at both ends.
const SECOND: Duration = Duration::from_secs(1);

/// One run of a server's process.
#[derive(Clone, Copy, Debug)]
struct Run {
    id: u64,
    counts_from: Moment,
    /// When it was last connected to.
    met: Moment,
}

/// What all connections to one server know of its runs.
#[derive(Debug)]
pub(crate) struct Probation {
    /// For how long it does not count.
    span: Duration,
    last: Mutex<Option<Run>>,
}

impl Probation {
    /// A span of zero is for a server that forgets nothing.
    pub(crate) fn new(span: Duration) -> Probation {
        Probation { span, last: Mutex::new(None) }
    }

    /// Whether a server has to tell of itself in order to count.
    pub(crate) fn is_needed(&self) -> bool {
        !self.span.is_zero()
    }

    /// What a new connection has to know, from the answer to `INFO server`; `None` if that is not
    /// allowed.
    pub(crate) fn standing(&self, reply: Option<&Reply>, now: Moment) -> Standing {
        let told = reply.and_then(|reply| redis::from_redis_value_ref::<String>(&reply.value).ok());
        self.judge(&told.unwrap_or_default(), now)
    }

    fn judge(&self, told: &str, now: Moment) -> Standing {
        let field = |name: &str| {
            told.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
        };
        let id = field("run_id").map_or(0, |id| {
            let mut hasher = DefaultHasher::new();
            id.hash(&mut hasher);
            hasher.finish().max(1)
        });
        let seconds = field("uptime_in_seconds").and_then(|seconds| seconds.parse::<u64>().ok());
        let mut last = self.last.lock();
        let mut counts_from = match (seconds, *last) {
            _ if self.span.is_zero() => Moment::PAST,
            (None, _) => Moment::FAR,
            // It was another run so short a time ago that this one cannot be so old.
            (Some(seconds), Some(run))
                if run.id != id && Duration::from_secs(seconds) > now.since(run.met) + SECOND =>
            {
                now.after(self.span)
            }
            (Some(seconds), _) => {
                let surely = Duration::from_secs(seconds).saturating_sub(SECOND);
                match self.span.saturating_sub(surely) {
                    Duration::ZERO => Moment::PAST,
                    left => now.after(left),
                }
            }
        };
        if let Some(run) = *last
            && run.id == id
            && id != 0
        {
            // What was once sure about a run stays so.
            counts_from = counts_from.min(run.counts_from);
        }
        *last = Some(Run { id, counts_from, met: now });
        Standing { run: id, counts_from }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_nanos(1_000_000_000_000);
    const SPAN: Duration = Duration::from_secs(30);

    fn told(run: &str, seconds: u64) -> String {
        format!("# Server\r\nrun_id:{run}\r\nuptime_in_seconds:{seconds}\r\n")
    }

    #[test]
    fn it_counts_once_it_has_surely_run_for_so_long() {
        let from = |seconds| Probation::new(SPAN).judge(&told("a", seconds), NOW).counts_from;
        assert_eq!(from(31), Moment::PAST);
        assert_eq!(from(30), NOW.after(SECOND));
        assert_eq!(from(0), NOW.after(SPAN));
        assert_eq!(Probation::new(SPAN).judge("", NOW).counts_from, Moment::FAR);
        assert_eq!(Probation::new(Duration::ZERO).judge("", NOW).counts_from, Moment::PAST);
    }

    #[test]
    fn a_second_look_at_the_same_run_is_never_worse_than_the_first() {
        let probation = Probation::new(SPAN);
        let first = probation.judge(&told("a", 10), NOW);
        let second = probation.judge(&told("a", 10), NOW.after(SECOND / 2));
        assert_eq!((first.run, first.counts_from), (second.run, second.counts_from));
    }

    #[test]
    fn a_new_run_that_says_it_is_older_than_the_last_meeting_is_not_believed() {
        let probation = Probation::new(SPAN);
        probation.judge(&told("a", 1_000), NOW);
        let later = NOW.after(SPAN * 2);
        assert_eq!(probation.judge(&told("b", 3_600), later).counts_from, later.after(SPAN));
        let later = later.after(SPAN * 2);
        assert_eq!(probation.judge(&told("c", 45), later).counts_from, Moment::PAST);
    }
}
