//! The sentinels of a master, and how they are asked in parallel.
//!
//! | a sentinel | is |
//! | --- | --- |
//! | has replied, or refused a connection | asked again at any time |
//! | was silent, or refused the user | avoided for a while: asked only if the others report no master |
//! | has not replied when the others have | late, and avoided like a silent one until it replies |
//!
//! Each is asked on a thread of its own, so that a silent one does not delay the others. A thread may outlive the
//! question that it was started for, and still notes the outcome.

use std::collections::HashMap;
use std::time::Duration;

use redis::RedisError;

use crate::base::sync::channel::{self, RecvTimeoutError, Sender};
use crate::base::sync::{Arc, AtomicUsize, Mutex, Ordering};
use crate::base::thread::{Role, Threads};
use crate::base::time::{Clock, Moment};
use crate::topology::sentinel::finding::{Findings, Report};
use crate::wire::endpoint::{self, Endpoint};
use crate::wire::error_context::{Limit, locate, no_thread, silence};
use crate::wire::failure::is_denial;
use crate::wire::raw_connection::RawConnection;
use crate::wire::retry::REFUSED;

/// For this long, a sentinel that was silent is asked last, and only if no other one reports the master.
const SILENT_AVOIDED: Duration = Duration::from_secs(10);
/// Once a master is found, the other sentinels have this much time to name a newer one.
const PATIENCE: Duration = Duration::from_millis(150);
/// If the sentinels that are asked first are silent for this long, the others are asked too.
pub(super) const ALONE: Duration = Duration::from_millis(250);
/// The largest number of threads that ask one sentinel at a time. The look-up of its name has no time limit and may
/// hang, and more threads would only wait as well.
const MOST_THREADS: usize = 8;

/// The sentinels.
pub(super) struct Panel {
    pub(super) nodes: Vec<Endpoint>,
    /// Their name for the master.
    pub(super) master: String,
    /// The user, the password and the TLS settings of the master.
    pub(super) template: Endpoint,
    pub(super) clock: Arc<dyn Clock>,
    threads: Threads,
    /// When and why each sentinel was last avoided.
    avoided: Mutex<Vec<Option<(Moment, AvoidReason)>>>,
    /// How many threads are asking each sentinel.
    asking: Vec<AtomicUsize>,
    /// A connection to each sentinel, by address, while nobody uses it.
    pub(super) kept: Mutex<HashMap<String, RawConnection>>,
}

/// Why a sentinel is asked last for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AvoidReason {
    Silent,
    /// It had not replied yet when the others had.
    Late,
    Refused,
}

impl AvoidReason {
    fn lasts(self) -> Duration {
        match self {
            AvoidReason::Silent | AvoidReason::Late => SILENT_AVOIDED,
            AvoidReason::Refused => REFUSED,
        }
    }
}

/// A sentinel's number, and its report or error.
type Heard = (usize, Result<Report, RedisError>);

impl Panel {
    pub(super) fn new(
        nodes: Vec<Endpoint>,
        master: String,
        template: Endpoint,
        clock: Arc<dyn Clock>,
        threads: Threads,
    ) -> Panel {
        let avoided = Mutex::new(vec![None; nodes.len()]);
        let asking = nodes.iter().map(|_| AtomicUsize::new(0)).collect();
        let kept = Mutex::default();
        Panel { nodes, master, template, clock, threads, avoided, asking, kept }
    }

    /// The order in which to ask the sentinels, beginning with `first`, and how many of them are not
    /// avoided.
    pub(super) fn order(&self, first: usize) -> (Vec<usize>, usize) {
        let count = self.nodes.len();
        let all = (0..count).map(|place| first.wrapping_add(place) % count);
        let is_good = |&number: &usize| self.reason(number).is_none();
        let (mut order, avoided): (Vec<_>, Vec<_>) = all.partition(is_good);
        let good = order.len();
        order.extend(avoided);
        (order, good)
    }

    /// Why a sentinel is avoided now, if it is.
    fn reason(&self, number: usize) -> Option<AvoidReason> {
        let now = self.clock.now();
        let (since, reason) = self.avoided.lock()[number]?;
        (now.since(since) <= reason.lasts()).then_some(reason)
    }

    /// Whether a sentinel was not silent lately.
    pub(super) fn is_responsive(&self, number: usize) -> bool {
        self.reason(number) != Some(AvoidReason::Silent)
    }

    /// Notes the outcome of a query. A sentinel that is silent or refuses this user is asked last
    /// for a while.
    pub(super) fn note_outcome(&self, number: usize, error: Option<&RedisError>) {
        // A refused connection is no reason: it costs no time, and the sentinel may be back at any
        // moment. Silence, as of a host without power, costs a time-out each time.
        let reason = match error {
            Some(error) if error.is_timeout() => Some(AvoidReason::Silent),
            Some(error) if is_denial(error) => Some(AvoidReason::Refused),
            _ => None,
        };
        self.avoid(number, reason);
    }

    /// Notes that a sentinel has not replied when the others have. A later reply undoes that.
    pub(super) fn note_late(&self, number: usize) {
        self.avoid(number, Some(AvoidReason::Late));
    }

    fn avoid(&self, number: usize, reason: Option<AvoidReason>) {
        self.avoided.lock()[number] = reason.map(|reason| (self.clock.now(), reason));
    }

    /// Asks one sentinel on the caller's thread.
    pub(super) fn ask_noting(&self, number: usize, left: Duration) -> Result<Report, RedisError> {
        let report = self.ask(&self.nodes[number], left);
        self.note_outcome(number, report.as_ref().err());
        report
    }

    /// Asks sentinels in parallel, each for at most `each`: the first `good` ones, and the others if those
    /// report no master. Ends when all have replied, or soon after a master was found: at once if one report
    /// `suffices`. Returns those that have not replied by then.
    pub(super) fn ask_at_once(
        self: &Arc<Self>,
        numbers: &[usize],
        good: usize,
        each: Duration,
        suffices: bool,
        findings: &mut Findings<'_>,
    ) -> Vec<usize> {
        let (sender, heard) = channel::unbounded();
        let (mut others, start) = (numbers[good..].iter(), self.clock.now());
        let mut open: Vec<usize> = Vec::new();
        for &number in &numbers[..good] {
            self.ask_aside(number, each, &sender);
            open.push(number);
        }
        // If all are avoided, they are all asked at once.
        let mut may_ask_others = open.is_empty();
        let mut found_at = None;
        loop {
            let found = findings.has_found();
            if found && suffices {
                break;
            }
            // If there is a report, the avoided sentinels are not asked at all: each may cost a time-out, and
            // the rank guards against a report that is too old.
            if !found && (may_ask_others || open.is_empty()) {
                for &number in others.by_ref() {
                    self.ask_aside(number, each, &sender);
                    open.push(number);
                }
            }
            if open.is_empty() {
                break;
            }
            let now = self.clock.now();
            if found {
                found_at.get_or_insert(now);
            }
            // The end of the wait, and whether the others are asked then.
            let (until, is_end) = match found_at {
                Some(found_at) => (PATIENCE.saturating_sub(now.since(found_at)), true),
                None if !may_ask_others && others.len() > 0 => {
                    (ALONE.min(each).saturating_sub(now.since(start)), false)
                }
                // An error from a sentinel that replied is worth more than silence, and a caller gets it
                // only before its own time is over.
                None if findings.has_reports() => {
                    ((each / 2).saturating_sub(now.since(start)), true)
                }
                None => (each.saturating_sub(now.since(start)), true),
            };
            match heard.recv_timeout(until) {
                Ok((number, outcome)) => {
                    open.retain(|open| *open != number);
                    findings.add(&self.nodes[number], number, outcome);
                }
                Err(RecvTimeoutError::Timeout) if !is_end => may_ask_others = true,
                Err(_) => break,
            }
        }
        let waited = self.clock.now().since(start);
        for &number in &open {
            findings.add(&self.nodes[number], number, Err(self.silence_of(number, waited)));
        }
        open
    }

    /// Asks one sentinel on a thread of its own.
    fn ask_aside(self: &Arc<Self>, number: usize, each: Duration, heard: &Sender<Heard>) {
        let (panel, sender) = (Arc::clone(self), heard.clone());
        // Relaxed: only the number matters.
        if self.asking[number].fetch_add(1, Ordering::Relaxed) >= MOST_THREADS {
            self.asking[number].fetch_sub(1, Ordering::Relaxed);
            let _ = heard.send((number, Err(self.silence_of(number, each))));
            return;
        }
        let body = move || {
            let report = panel.ask_noting(number, each);
            panel.asking[number].fetch_sub(1, Ordering::Relaxed);
            // The receiver is gone if the question was settled without this report.
            let _ = sender.send((number, report));
        };
        if let Err(error) = self.threads.spawn(Role::Locator, body) {
            self.asking[number].fetch_sub(1, Ordering::Relaxed);
            log!(error, "the thread that asks a sentinel could not be started: {error}");
            let _ = heard.send((number, Err(no_thread())));
        }
    }

    fn silence_of(&self, number: usize, waited: Duration) -> RedisError {
        let limit = Limit { span: waited, setting: None };
        locate(silence(), &endpoint::address(&self.nodes[number]), limit)
    }

    /// Those that have not replied to a question that is being asked, as errors name them.
    pub(super) fn silent(&self) -> String {
        let is_asked = |number: &usize| self.asking[*number].load(Ordering::Relaxed) > 0;
        let mut silent: Vec<usize> = (0..self.nodes.len()).filter(is_asked).collect();
        if silent.is_empty() {
            silent = (0..self.nodes.len()).collect();
        }
        let names: Vec<String> =
            silent.iter().map(|&number| endpoint::address(&self.nodes[number])).collect();
        let (those, have) = match names.len() {
            1 => ("the sentinel", "has"),
            _ => ("the sentinels", "have"),
        };
        format!("{those} {} {have} not named the master \"{}\"", names.join(", "), self.master)
    }
}
