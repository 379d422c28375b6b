//! A short round of the torture (`examples/torture`), and the proof that it can fail.

#[path = "../examples/torture/lab/mod.rs"]
#[allow(dead_code, reason = "the example uses more of it")]
mod lab;

use lab::crew::Crew;
use lab::plan::{Plan, Planted};
use lab::tally::{Tally, complaint};
use lab::trial::{self, Report};
use lab::{Result, holder};
use leasehold_support::ChildBuilder;
use leasehold_support::child::role;

const SEED: u64 = 4;
const PROCESSES: usize = 3;

fn child(builder: ChildBuilder) -> ChildBuilder {
    builder.test("plays_the_holder")
}

/// What the child processes run, and nothing in the process that people started.
#[test]
fn plays_the_holder() -> Result<()> {
    if role().as_deref() == Some(holder::ROLE) { holder::serve() } else { Ok(()) }
}

#[test]
fn a_short_round_has_no_violation() -> Result<()> {
    let mut crew = Crew::hire(PROCESSES, child)?;
    let mut tally = Tally::default();
    // A trial that is void proves nothing.
    for number in 0..24 {
        let plan = Plan::draw(SEED, number, PROCESSES, true);
        let report = trial::run(&mut crew, &plan)?;
        assert!(report.violations.is_empty(), "{}", complaint(&plan, &report));
        tally.add(&report);
        if tally.trials - tally.voids == 5 {
            break;
        }
    }
    let text = tally.text();
    assert!(tally.trials > tally.voids, "the machine stands still:\n{text}");
    assert!(tally.holds > 100 && tally.contended_percent() >= 50.0 && tally.proven() > 0, "{text}");
    Ok(())
}

#[test]
fn what_is_wrong_on_purpose_is_found() -> Result<()> {
    let mut crew = Crew::hire(PROCESSES, child)?;
    for (planted, checker) in [
        (Planted::NoLock, "C1"),
        (Planted::Deaf, "C1"),
        (Planted::Unfenced, "C3"),
        (Planted::Liar, "C4"),
        (Planted::Litter, "C5"),
    ] {
        let mut found = false;
        // Whether something is left is not asked of a trial that is void.
        for number in 0..12 {
            let Report { violations, .. } =
                trial::run(&mut crew, &Plan::planted(SEED, number, planted))?;
            found = violations.iter().any(|violation| violation.checker == checker);
            if found {
                break;
            }
        }
        assert!(found, "{planted:?} was not found by {checker}");
    }
    // And in their absence nothing is found.
    let report = trial::run(&mut crew, &Plan::planted(SEED, 9, Planted::Nothing))?;
    assert_eq!(report.violations, []);
    Ok(())
}

#[test]
fn a_seed_has_one_schedule() {
    let shown = |seed, trial| Plan::draw(seed, trial, PROCESSES, true).to_string();
    for number in 0..50 {
        assert_eq!(shown(SEED, number), shown(SEED, number));
    }
    assert!((0..50).any(|number| shown(SEED, number) != shown(SEED + 1, number)));
}
