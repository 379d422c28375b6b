//! The moment from which the vote of a server counts.
//!
//! A server that lost its memory in a restart must not vote before every lease has ended that it
//! may have forgotten. It reports by its own clock how long it has run, and a clock can be wrong.
//! Each report is checked against what this client knows of the server. A run is *met* when it
//! replies:
//!
//! | what is known | what follows |
//! | --- | --- |
//! | Another run replied to a request sent at some moment. | The new run started after that moment. If it claims an earlier start, the claim is false: it counts a whole span after its first report arrived. |
//! | This run was met before. | The first report stands: no later report makes the run count earlier. |
//! | This run was met before, and now reports a later start. | One of the two reports is wrong, so the later start is believed, but no start after the first meeting. |
//! | The server reports no run id. | Its reports describe one run only while they agree about its start, and the first of these stands. Replies between the reports prove nothing, because they may be of another run. |
//! | Nothing yet. | The report is believed. |

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::base::sync::Mutex;
use crate::base::time::Moment;
use crate::wire::connection::{Reply, ServerRun};

/// The server rounds down the times of its start and of its report, so that the difference is off
/// by less than this, either way.
const SECOND: Duration = Duration::from_secs(1);

/// One run of a server's process.
#[derive(Clone, Copy, Debug)]
struct SeenRun {
    id: u64,
    counts_from: Moment,
    /// The end of the span after its start by the last report, believed or not.
    reported: Moment,
    /// When its first report was received: it had started by then.
    seen: Moment,
    /// When the last request was sent to which it replied: it was alive then or later.
    met: Moment,
}

/// What is known of the runs of one server, shared by all connections to it.
#[derive(Debug)]
pub(crate) struct RestartQuarantine {
    /// How long a new run has no vote: as long as the longest lease.
    span: Duration,
    last: Mutex<Option<SeenRun>>,
}

impl RestartQuarantine {
    /// A span of zero is for a server that forgets nothing.
    pub(crate) fn new(span: Duration) -> RestartQuarantine {
        RestartQuarantine { span, last: Mutex::new(None) }
    }

    /// Whether a server must report its uptime for its vote to count.
    pub(crate) fn is_needed(&self) -> bool {
        !self.span.is_zero()
    }

    /// Reads the reply to `INFO server` on a new connection; `None` if the user may not run it.
    pub(crate) fn server_run(&self, reply: Option<&Reply>) -> ServerRun {
        let text = reply.and_then(|reply| redis::from_redis_value_ref::<String>(&reply.value).ok());
        // Without a reply the bounds are the widest there are, so that nothing follows from them.
        let (sent, received) =
            reply.map_or((Moment::PAST, Moment::FAR), |reply| (reply.sent, reply.received));
        self.assess_report(&text.unwrap_or_default(), sent, received)
    }

    /// Notes that this run replied to a request sent at `sent`. Returns what is known of it now.
    pub(crate) fn note_reply(&self, server_run: ServerRun, sent: Moment) -> ServerRun {
        let mut last = self.last.lock();
        match &mut *last {
            Some(run) if run.id == server_run.run && run.id != 0 => {
                run.met = run.met.max(sent);
                // The later of both: another connection may since have found that this run started
                // later than this connection was told.
                let counts_from = server_run.counts_from.max(run.counts_from);
                ServerRun { counts_from, ..server_run }
            }
            // A reply of an earlier run that was read late: it proves nothing about the run known
            // now. With id 0 the connection cannot tell its run from a later one.
            _ => server_run,
        }
    }

    /// Assesses a report that was requested at `sent` and received at `received`.
    fn assess_report(&self, report: &str, sent: Moment, received: Moment) -> ServerRun {
        let field = |name: &str| {
            report.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
        };
        let id = field("run_id").map_or(0, |id| {
            let mut hasher = DefaultHasher::new();
            id.hash(&mut hasher);
            // 0 means "no id" everywhere else.
            hasher.finish().max(1)
        });
        if self.span.is_zero() {
            return ServerRun { run: id, counts_from: Moment::PAST };
        }
        let uptime = field("uptime_in_seconds").and_then(|seconds| seconds.parse::<i64>().ok());
        // A proxy or an old server may leave the field out. Such a server could have restarted a
        // moment ago, so it never counts; `keeps_data` is the user's way out.
        let Some(uptime) = uptime else {
            return ServerRun { run: id, counts_from: Moment::FAR };
        };
        // Redis subtracts its start time from its wall clock. A clock set back since the start
        // makes that negative, and an error here would throw away a server that is well.
        let uptime = Duration::from_secs(u64::try_from(uptime).unwrap_or(0));

        // The end of the span after the latest start that fits this report, and after the earliest.
        // The report was written at some moment between `sent` and `received`, and rounds by up to
        // a second. Only `latest` is safe to count from; `earliest` can only contradict another
        // report.
        let whole = received.after(self.span);
        let latest = whole.before(uptime.saturating_sub(SECOND));
        let earliest = sent.after(self.span).before(uptime + SECOND);

        let mut last = self.last.lock();
        let counts_from = match *last {
            // The run is known. A clock set forward would make it look older with every report, so
            // the first report stands: `max`. A report of a later start shows that one of the two
            // is wrong, and the later is the safe one. `min`: the run replied at `seen`, so it
            // cannot have started after that, however often its clock is set back.
            Some(run) if run.id == id && id != 0 => {
                run.counts_from.max(earliest).min(run.seen.after(self.span))
            }
            // Without an id this may be the same run or another one. Both views are taken: the
            // start by this report, and what followed from the reports before.
            Some(run) if run.agrees(id, earliest, latest) => latest.max(run.counts_from),
            // Another run, which claims to have been alive while the one before it replied: its
            // clock is wrong, and so may be any other time it reports. Only its first contact is
            // certain.
            Some(run) if uptime > received.since(run.met) + SECOND => whole,
            _ => latest,
        };
        let run = match *last {
            Some(run) if run.id == id && id != 0 => {
                SeenRun { counts_from, reported: latest, met: run.met.max(sent), ..run }
            }
            _ => SeenRun { id, counts_from, reported: latest, seen: received, met: sent },
        };

        // Two connections may be opened around a restart, and the one to the run before it may get
        // this far last. Its report must not replace the run that is alive now: what the live run
        // may claim is bounded by the last sign of life of the one before.
        if last.is_none_or(|last| last.id == id || sent >= last.met) {
            *last = Some(run);
        }
        ServerRun { run: id, counts_from }
    }
}

impl SeenRun {
    /// Whether two reports without an id may describe one run.
    fn agrees(&self, id: u64, earliest: Moment, latest: Moment) -> bool {
        // Zero only if neither report has an id: a run with an id never agrees with one without.
        let (id, known) = (self.id | id, self.reported);
        id == 0 && earliest <= known && known <= latest.after(SECOND)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Moment = Moment::from_nanos(1_000_000_000_000);
    const SPAN: Duration = Duration::from_secs(30);
    const YEAR: u64 = 365 * 24 * 3600;

    fn report(run: &str, seconds: i64) -> String {
        format!("# Server\r\nrun_id:{run}\r\nuptime_in_seconds:{seconds}\r\n")
    }

    /// A report that comes at once.
    fn look(quarantine: &RestartQuarantine, run: &str, seconds: u64, at: Moment) -> Moment {
        let seconds = i64::try_from(seconds).unwrap();
        quarantine.assess_report(&report(run, seconds), at, at).counts_from
    }

    #[test]
    fn server_votes_once_its_run_surely_lasted_the_span() {
        let from = |seconds| look(&RestartQuarantine::new(SPAN), "a", seconds, NOW);
        assert_eq!(from(31), NOW);
        assert_eq!(from(YEAR), Moment::PAST);
        assert_eq!(from(30), NOW.after(SECOND));
        assert_eq!(from(0), NOW.after(SPAN));
    }

    #[test]
    fn server_without_an_uptime_has_no_vote() {
        let from =
            |span, text| RestartQuarantine::new(span).assess_report(text, NOW, NOW).counts_from;
        assert_eq!(from(SPAN, ""), Moment::FAR);
        assert_eq!(from(SPAN, "run_id:a\r\n"), Moment::FAR);
        assert_eq!(from(Duration::ZERO, ""), Moment::PAST);
        assert_eq!(RestartQuarantine::new(SPAN).server_run(None).counts_from, Moment::FAR);
    }

    #[test]
    fn negative_uptime_counts_as_zero() {
        let server_run = RestartQuarantine::new(SPAN).assess_report(&report("a", -3_600), NOW, NOW);
        assert_eq!(server_run.counts_from, NOW.after(SPAN));
    }

    #[test]
    fn repeated_report_of_a_disbelieved_run_changes_nothing() {
        let quarantine = RestartQuarantine::new(SPAN);
        look(&quarantine, "a", YEAR, NOW);
        assert_eq!(look(&quarantine, "b", YEAR, NOW), NOW.after(SPAN));
        for millis in [0, 1, 1_000, 20_000] {
            let later = NOW.after(Duration::from_millis(millis));
            assert_eq!(look(&quarantine, "b", YEAR, later), NOW.after(SPAN));
        }
    }

    #[test]
    fn clock_set_ahead_after_a_true_report_changes_nothing() {
        let quarantine = RestartQuarantine::new(SPAN);
        let first = look(&quarantine, "a", 0, NOW);
        assert_eq!(look(&quarantine, "a", 3_600, NOW.after(SECOND)), first);
    }

    #[test]
    fn rounded_reports_of_one_run_agree() {
        let quarantine = RestartQuarantine::new(SPAN);
        let first = look(&quarantine, "a", 10, NOW);
        assert_eq!(look(&quarantine, "a", 10, NOW.after(SECOND * 9 / 10)), first);
        assert_eq!(look(&quarantine, "a", 11, NOW.after(SECOND / 10)), first);
    }

    #[test]
    fn later_start_is_believed_but_not_after_the_first_meeting() {
        let quarantine = RestartQuarantine::new(SPAN);
        assert_eq!(look(&quarantine, "a", 3_600, NOW).max(NOW), NOW);
        let first = quarantine.assess_report(&report("a", 3_600), NOW, NOW);
        // The clock had been ahead, and is right now.
        let later = NOW.after(SECOND * 5);
        assert_eq!(look(&quarantine, "a", 8, later), NOW.after(SECOND * 26));
        // An older connection learns it with its next reply.
        assert_eq!(quarantine.note_reply(first, later).counts_from, NOW.after(SECOND * 26));
        assert_eq!(look(&quarantine, "a", 0, later.after(SPAN)), NOW.after(SPAN));
    }

    #[test]
    fn new_run_that_claims_to_predate_the_last_is_not_believed() {
        let quarantine = RestartQuarantine::new(SPAN);
        look(&quarantine, "a", 1_000, NOW);
        let later = NOW.after(SPAN * 2);
        assert_eq!(look(&quarantine, "b", 3_600, later), later.after(SPAN));
        let later = later.after(SPAN * 2);
        assert!(look(&quarantine, "c", 45, later) <= later);
    }

    #[test]
    fn reply_dates_its_run_no_later_than_the_request() {
        let quarantine = RestartQuarantine::new(SPAN);
        let first = quarantine.assess_report(&report("a", 1_000), NOW, NOW);
        let later = NOW.after(SPAN * 2);
        quarantine.note_reply(first, later);
        // It was believed, had the other run been met only when it was connected to.
        let again = later.after(SECOND * 2);
        assert_eq!(look(&quarantine, "b", 40, again), again.after(SPAN));
        // A late reply of the run before says nothing about this one.
        quarantine.note_reply(first, again.after(SPAN));
        let end = again.after(SPAN * 2);
        assert!(look(&quarantine, "c", 50, end) <= end);
    }

    #[test]
    fn late_report_of_an_earlier_run_does_not_hide_the_later() {
        let quarantine = RestartQuarantine::new(SPAN);
        look(&quarantine, "a", YEAR, NOW);
        let later = NOW.after(SPAN);
        let second = look(&quarantine, "b", 0, later);
        // Asked before, and read after.
        quarantine.assess_report(&report("a", 1_000), NOW, later.after(SECOND));
        assert_eq!(look(&quarantine, "b", YEAR, later.after(SECOND)), second);
    }

    #[test]
    fn slow_report_counts_from_its_receipt() {
        let quarantine = RestartQuarantine::new(SPAN);
        let received = NOW.after(SECOND * 4);
        let server_run = quarantine.assess_report(&report("a", 11), NOW, received);
        assert_eq!(server_run.counts_from, received.after(SECOND * 20));
    }

    #[test]
    fn server_without_a_run_id_keeps_no_earlier_credit() {
        let from = |quarantine: &RestartQuarantine, seconds: u64, at| {
            quarantine
                .assess_report(&format!("uptime_in_seconds:{seconds}\r\n"), at, at)
                .counts_from
        };
        let quarantine = RestartQuarantine::new(SPAN);
        assert_eq!(from(&quarantine, 10, NOW), NOW.after(SECOND * 21));
        // The present report counts, and not an earlier one.
        let later = NOW.after(SECOND * 9 / 10);
        assert_eq!(from(&quarantine, 10, later), later.after(SECOND * 21));
        // This may be another run, which cannot be so old.
        let later = NOW.after(SECOND * 5);
        assert_eq!(from(&quarantine, 3_600, later), later.after(SPAN));
        assert_eq!(from(&quarantine, 3_600, later), later.after(SPAN));
    }

    #[test]
    fn disbelieved_server_without_a_run_id_counts_after_one_span() {
        let from = |quarantine: &RestartQuarantine, seconds: u64, at| {
            quarantine
                .assess_report(&format!("uptime_in_seconds:{seconds}\r\n"), at, at)
                .counts_from
        };
        let quarantine = RestartQuarantine::new(SPAN);
        from(&quarantine, 900, NOW);
        // Its clock was set ahead once, by more than a report may be off.
        let later = NOW.after(SECOND * 60);
        assert_eq!(from(&quarantine, 900 + 60 + 5, later), later.after(SPAN));
        for minutes in 2..60 {
            let at = NOW.after(SECOND * 60 * minutes);
            let counts_from = from(&quarantine, 900 + 60 * u64::from(minutes) + 5, at);
            assert_eq!(counts_from, later.after(SPAN), "after {minutes} minutes");
        }
    }

    #[derive(Clone, Copy, Debug)]
    struct Seen {
        pause: u64,
        delay: u64,
        uptime: i64,
        replied: bool,
    }

    fn seen() -> impl Strategy<Value = Seen> {
        let uptime = prop_oneof![-5..40_i64, Just(3_600), Just(i64::MAX)];
        (0..3_000_u64, 0..1_500_u64, uptime, any::<bool>())
            .prop_map(|(pause, delay, uptime, replied)| Seen { pause, delay, uptime, replied })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// Whatever its clock does between them, and however many there are.
        #[test]
        fn no_sequence_of_reports_brings_a_run_forward(
            met_before in any::<bool>(),
            looks in prop::collection::vec(seen(), 2..40),
        ) {
            let quarantine = RestartQuarantine::new(SPAN);
            let mut now = NOW;
            if met_before {
                look(&quarantine, "a", YEAR, now);
            }
            let (mut known, mut earlier, mut end) = (None, Duration::ZERO, Moment::FAR);
            for seen in looks {
                let sent = now;
                now = now.after(Duration::from_millis(seen.delay));
                let server_run = quarantine.assess_report(&report("b", seen.uptime), sent, now);
                if let Some(known) = known {
                    earlier += Moment::since(known, server_run.counts_from);
                } else {
                    end = now.after(SPAN);
                }
                // It had started when it was first met.
                prop_assert!(server_run.counts_from <= end);
                known = Some(server_run.counts_from);
                if seen.replied {
                    prop_assert_eq!(quarantine.note_reply(server_run, now).counts_from, server_run.counts_from);
                }
                now = now.after(Duration::from_millis(seen.pause));
            }
            prop_assert!(earlier <= SECOND, "earlier by {earlier:?} in all");
        }

        /// A server whose clock is right is never kept from voting for longer than it must, and
        /// never votes too early.
        #[test]
        fn right_clock_counts_between_one_span_and_two_seconds_more(
            fraction in 0..1_000_u64,
            looks in prop::collection::vec((0..5_000_u64, 0..300_u64, 0..300_u64), 1..20),
        ) {
            let quarantine = RestartQuarantine::new(SPAN);
            // Whole seconds of the wall clock.
            let started = NOW.after(Duration::from_millis(fraction));
            let mut now = started;
            for (pause, there, back) in looks {
                now = now.after(Duration::from_millis(pause));
                let read = now.after(Duration::from_millis(there));
                let received = read.after(Duration::from_millis(back));
                let uptime = read.since(NOW).as_secs() - started.since(NOW).as_secs();
                let text = report("a", i64::try_from(uptime).unwrap());
                let from = quarantine.assess_report(&text, now, received).counts_from;
                prop_assert!(from >= started.after(SPAN));
                prop_assert!(from <= started.after(SPAN + SECOND * 2 + Duration::from_millis(300)));
                now = received;
            }
        }
    }
}
