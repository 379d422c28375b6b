//! Whether the machine stood still, and how late calls returned.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::History;
use super::call::Call;
use super::event::{Event, What};
use super::record::now;
use crate::processor;

/// In the place of a process: all of them.
const MACHINE: u32 = 0;
const PAUSE: Duration = Duration::from_millis(5);
/// What is later than this was kept waiting, in ns.
const LATE: u64 = 2_000_000;

/// Whether a process got the processor later than `limit` ns after it should have, but for the times
/// at which it was stopped on purpose. Such a history proves nothing about time.
pub fn stalled(history: &History, limit: u64) -> bool {
    let stops: Vec<(u32, u64, u64)> = stops(history);
    history.events().iter().any(|event| match event.what {
        What::Lagged { by } if by > limit => {
            let begin = event.at.saturating_sub(by);
            let meant = |(process, from, until): &(u32, u64, u64)| {
                *process == event.process && *from < event.at && *until >= begin
            };
            !stops.iter().any(meant)
        }
        _ => false,
    })
}

/// By how much a call returned after its deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overrun {
    /// By how much, in ns, less what its process had to wait for the processor meanwhile.
    pub by: u64,
    /// Which call.
    pub text: String,
}

/// Returns the call, or release, that returned latest after its deadline, but for those of a process
/// that was stopped meanwhile.
pub fn worst_overrun(history: &History) -> Option<Overrun> {
    let stops = stops(history);
    let mut worst: Option<Overrun> = None;
    let mut look = |call: &Call, what: &str, begin: u64, end: u64, budget: u64| {
        let process = call.who.0;
        let stopped = stops.iter().any(|stop| stop.0 == process && stop.1 < end && stop.2 > begin);
        let late = (end - begin).saturating_sub(budget);
        if stopped || late == 0 {
            return;
        }
        let by = late.saturating_sub(lag(history, process, begin, end));
        if worst.as_ref().is_none_or(|worst| worst.by < by) {
            worst = Some(Overrun {
                by,
                text: format!("{what} of {}, {} µs allowed", call.shown(), budget / 1000),
            });
        }
    };
    for call in history.calls() {
        if let Some(returned) = call.returned {
            look(call, "acquire", call.invoked, returned, call.budget);
        }
        if let (Some((begin, _, budget)), Some((end, _))) = (call.releasing, call.released) {
            look(call, "release", begin, end, budget);
        }
    }
    worst
}

/// How long a process, or the machine, waited for the processor within a span, together.
fn lag(history: &History, process: u32, begin: u64, end: u64) -> u64 {
    let events = history.events();
    let from = events.partition_point(|event| event.at < begin);
    let lags = events[from..].iter().take_while(|event| event.at <= end + 20_000_000);
    let lags = lags.filter(|event| event.process == process || event.process == MACHINE);
    let (mut sum, mut counted) = (0, begin);
    for event in lags {
        if let What::Lagged { by } = event.what {
            // One after the other, so that what several saw counts once.
            sum += event.at.saturating_sub(counted.max(event.at - by));
            counted = counted.max(event.at);
        }
    }
    sum
}

/// Stays on one processor and tells, until it is over, when and by how much it got it too late.
///
/// A machine may take one processor away and leave the others: one such thread is needed for each.
pub fn watch_processor(number: usize, over: &AtomicBool) -> Vec<Event> {
    // Where that is not allowed it watches whatever it runs on.
    let _ = processor::pin(&[number]);
    let mut events = Vec::new();
    while !over.load(Ordering::SeqCst) {
        let due = now() + PAUSE.as_nanos() as u64;
        thread::sleep(PAUSE);
        let at = now();
        if at > due + LATE {
            let what = What::Lagged { by: at - due };
            events.push(Event { at, process: MACHINE, thread: 0, call: 0, lock: 0, what });
        }
    }
    events
}

fn stops(history: &History) -> Vec<(u32, u64, u64)> {
    let stops = history.events().iter().filter_map(|event| match event.what {
        What::Stopped { until } => Some((event.process, event.at, until)),
        _ => None,
    });
    stops.collect()
}

#[cfg(test)]
mod tests {
    use super::super::call::doctored::{MS, clean, event, history};
    use super::*;

    fn with(extra: Vec<super::super::Event>) -> History {
        let mut events = clean();
        events.extend(extra);
        history(events)
    }

    #[test]
    fn stalled_machine_is_noticed_but_no_stopped_process() {
        let lagged = || event(100, 1, 0, What::Lagged { by: 30 * MS });
        assert!(!stalled(&with(vec![]), 20 * MS));
        assert!(stalled(&with(vec![lagged()]), 20 * MS));
        assert!(!stalled(&with(vec![lagged()]), 40 * MS));
        let stopped = |process| event(70, process, 0, What::Stopped { until: 99 * MS });
        assert!(!stalled(&with(vec![lagged(), stopped(1)]), 20 * MS));
        assert!(stalled(&with(vec![lagged(), stopped(2)]), 20 * MS));
    }

    #[test]
    fn the_worst_overrun_leaves_out_what_the_machine_took() {
        assert_eq!(worst_overrun(&with(vec![])), None);
        let call = |at: u64, process: u32| {
            let invoked = What::Invoked { budget: 10 * MS, waits: false };
            let failed = What::Failed(super::super::Outcome::Unknown);
            vec![event(500, process, 1, invoked), event(500 + at, process, 1, failed)]
        };
        let late = [call(40, 3), call(90, 4)].concat();
        assert_eq!(worst_overrun(&with(late.clone())).unwrap().by, 80 * MS);
        let mut lagged = late.clone();
        lagged.push(event(560, 4, 0, What::Lagged { by: 40 * MS }));
        // The whole machine: half of that is known already.
        lagged.push(event(580, 0, 0, What::Lagged { by: 40 * MS }));
        assert_eq!(worst_overrun(&with(lagged)).unwrap().by, 30 * MS);
        let mut stopped = late;
        stopped.push(event(550, 4, 0, What::Stopped { until: 560 * MS }));
        assert_eq!(worst_overrun(&with(stopped)).unwrap().by, 30 * MS);
    }
}
