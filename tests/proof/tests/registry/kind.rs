//! The kinds of fault, and the verdict on their trials.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use leasehold_support::lag;

use crate::common::ms;
use crate::trial::{LEASE, Measured, Trial};

/// A call may end this much after its deadline.
const OVERRUN: Duration = ms(50);
/// The first grant comes this soon after the server came back.
const BACK: Duration = ms(250);
/// So often a trial is repeated because the machine stalled, or because it was late.
const MOST_VOIDS: u32 = 6;

/// A fault at a named operation.
pub(crate) struct Kind {
    /// The fault and its place: `reply-lost@acquire`.
    pub(crate) name: &'static str,
    /// Which guarantees its oracle is about.
    pub(crate) guarantee: &'static str,
    arguments: &'static [&'static str],
    oracle: fn(&Trial),
    outcome: OnceLock<Outcome>,
}

/// The result of a kind's trial.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The violation, if there was one.
    pub(crate) verdict: Result<(), String>,
    /// It broke a bound on time, and nothing else.
    is_late: bool,
    pub(crate) measured: Measured,
    pub(crate) took: Duration,
    pub(crate) lag: Duration,
    pub(crate) voids: u32,
}

impl Kind {
    pub(crate) const fn new(
        name: &'static str,
        guarantee: &'static str,
        arguments: &'static [&'static str],
        oracle: fn(&Trial),
    ) -> Kind {
        Kind { name, guarantee, arguments, oracle, outcome: OnceLock::new() }
    }

    /// Runs its trial, or waits for the one that runs.
    pub(crate) fn outcome(&self) -> &Outcome {
        self.outcome.get_or_init(|| {
            lag::watch();
            let mut voids = 0;
            loop {
                let mut outcome = self.run();
                // On a machine that never stops stalling, a trial that succeeded in spite of it
                // counts. A lateness without a stall that the watching threads saw may still be the
                // machine's, but not each time.
                let well = voids >= MOST_VOIDS && outcome.verdict.is_ok();
                let late = outcome.is_late && voids < MOST_VOIDS;
                if outcome.lag <= ms(LEASE / 10) && !late || well {
                    return Outcome { voids, ..outcome };
                }
                voids += 1;
                if voids > MOST_VOIDS * 4 {
                    outcome.verdict = Err(format!("void {voids} times: the machine stalls"));
                    return Outcome { voids, ..outcome };
                }
            }
        })
    }

    fn run(&self) -> Outcome {
        let begin = Instant::now();
        let trial = Trial::new(self.arguments);
        let verdict = catch_unwind(AssertUnwindSafe(|| (self.oracle)(&trial)));
        let (measured, verdict) = match verdict {
            // The fault may still be on.
            Err(panic) => (trial.measured(), Err(text(&*panic))),
            Ok(()) => trial.finish(),
        };
        let lag = lag::worst_since(begin);
        let late = lateness(&measured, lag);
        let is_late = verdict.is_ok() && late.is_some();
        let verdict = verdict.and_then(|()| match late {
            _ if measured.fired.is_empty() => Err("nothing fired".to_owned()),
            Some(late) => Err(late),
            None => Ok(()),
        });
        Outcome { verdict, is_late, measured, took: begin.elapsed(), lag, voids: 0 }
    }
}

/// Says which bound on time was broken.
fn lateness(measured: &Measured, lag: Duration) -> Option<String> {
    // A call on a busy machine waits for its own turn, and for that of the thread that serves it.
    let slack = lag * 2;
    if measured.overrun > OVERRUN + slack {
        return Some(format!("a call ended {:?} after its deadline", measured.overrun));
    }
    let back = measured.back.filter(|back| *back > BACK + slack)?;
    Some(format!("the first grant came {back:?} after the server was back"))
}

fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

/// The kinds of a file, each with its oracle and a test of the oracle's name. `= of(with)` makes
/// the oracle from one that many kinds share, and this kind's arguments.
macro_rules! kinds {
    (@oracle $oracle:ident) => { $oracle };
    (@oracle $oracle:ident $of:ident($($with:expr),*)) => { |trial| $of(trial, $($with),*) };
    ($(
        $oracle:ident $name:literal $guarantee:literal $([$($argument:literal),*])?
        $(= $of:ident($($with:expr),*))?;
    )*) => {
        pub(crate) static KINDS: [crate::kind::Kind; [$($name),*].len()] = [
            $(crate::kind::Kind::new(
                $name,
                $guarantee,
                &[$($($argument),*)?],
                crate::kind::kinds!(@oracle $oracle $($of($($with),*))?),
            )),*
        ];
        mod kinds {
            $(#[test]
            fn $oracle() {
                crate::census::check($name);
            })*
        }
    };
}
pub(crate) use kinds;

/// A trial that cannot fail proves nothing: each of these has something planted.
mod planted {
    use super::*;
    use crate::common::ask;

    fn verdict(oracle: fn(&Trial)) -> String {
        let kind = Kind::new("planted", "", &[], oracle);
        kind.outcome().verdict.clone().expect_err("it was planted")
    }

    fn fires(trial: &Trial) {
        trial.witnessed(1, 1, "itself");
    }

    #[test]
    fn a_fault_that_did_not_fire_is_no_proof() {
        assert_eq!(verdict(|_| ()), "nothing fired");
        assert!(verdict(|trial| trial.witnessed(2, 1, "itself")).contains("witnessed: 1"));
    }

    #[test]
    fn leftover_keys_are_found() {
        let text = verdict(|trial| {
            fires(trial);
            ask::<()>(&trial.server, &["ZADD", "{k}:queue", "1", "somebody"]);
        });
        assert!(text.contains("left behind") && text.contains("{k}:queue"), "{text}");
    }

    #[test]
    fn late_outcome_and_late_return_are_found() {
        let text = verdict(|trial| {
            fires(trial);
            trial.timed(ms(1), || std::thread::sleep(ms(500)));
        });
        assert!(text.contains("after its deadline"), "{text}");
        let text = verdict(|trial| {
            fires(trial);
            trial.back(ms(700));
        });
        assert!(text.contains("the server was back"), "{text}");
    }

    #[test]
    fn a_token_that_does_not_grow_is_found() {
        let text = verdict(|trial| {
            fires(trial);
            let guard = trial.rival().lock().unwrap();
            trial.granted(&guard);
            trial.granted(&guard);
        });
        assert!(text.contains(" after "), "{text}");
    }
}
