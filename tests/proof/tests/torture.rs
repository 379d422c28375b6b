//! A short round of the torture (`src/bin/torture`), and the proof that it can fail.

#[path = "../src/bin/torture/lab/mod.rs"]
#[allow(dead_code, reason = "the example uses more of it")]
mod lab;

use std::thread;
use std::time::Duration;

use lab::crew::Crew;
use lab::plan::{Plan, Planted, Shown};
use lab::tally::{Tally, complaint};
use lab::trial::{self, Report};
use lab::{Result, holder, quorum};
use leasehold_support::ChildBuilder;
use leasehold_support::child::role;

const SEED: u64 = 4;
const PROCESSES: usize = 3;

fn child(builder: ChildBuilder) -> ChildBuilder {
    builder.test("torture_holder_process")
}

/// The entry point of child processes; it does nothing in the process that people started.
#[test]
fn torture_holder_process() -> Result<()> {
    if role().as_deref() == Some(holder::ROLE) { holder::serve() } else { Ok(()) }
}

#[test]
fn a_short_round_has_no_violation() -> Result<()> {
    let mut crew = Crew::hire(PROCESSES, child)?;
    let mut tally = Tally::default();
    // A trial that is void proves nothing.
    for number in 0..60 {
        let plan = Plan::draw(SEED, number, PROCESSES, true);
        let report = trial::run(&mut crew, &plan)?;
        assert!(report.violations.is_empty(), "{}", complaint(&plan, &report));
        tally.add(&report);
        // A machine that stalls a lot has to bring one to its end at least.
        let sound = tally.trials - tally.voids;
        if sound == 5 || (sound > 0 && number >= 24) {
            break;
        }
    }
    let text = tally.text();
    assert!(tally.trials > tally.voids, "the machine stands still:\n{text}");
    assert!(tally.holds > 100 && tally.contended_percent() >= 50.0 && tally.proven() > 0, "{text}");
    Ok(())
}

#[test]
fn silent_hold_comes_back_or_is_taken() -> Result<()> {
    let mut crew = Crew::hire(PROCESSES, child)?;
    let mut tally = Tally::default();
    for number in 0..60 {
        let plan = Plan::silent(SEED, number);
        let report = trial::run(&mut crew, &plan)?;
        assert!(report.violations.is_empty(), "{}", complaint(&plan, &report));
        tally.add(&report);
        let (silent, back) = tally.silences;
        if back > 0 && silent > back {
            return Ok(());
        }
    }
    panic!("of silent holds some come back, and some do not:\n{}", tally.text());
}

/// Runs trials over several servers until this number was not void.
fn over_several(plan: impl Fn(u64) -> quorum::Plan, wanted: u64, pause: Duration) -> Result<Tally> {
    let mut crew = quorum::Crew::hire(PROCESSES, child)?;
    let mut tally = Tally::default();
    for number in 0..wanted * 20 {
        let plan = plan(number);
        let report = quorum::run(&mut crew, &plan)?;
        assert!(report.violations.is_empty(), "{}", complaint(&plan, &report));
        tally.add(&report);
        let sound = tally.trials - tally.voids;
        if sound == wanted || (sound > 0 && number >= wanted * 5) {
            break;
        }
        thread::sleep(pause);
    }
    assert!(tally.trials > tally.voids, "the machine stands still:\n{}", tally.text());
    Ok(tally)
}

#[test]
fn a_short_round_over_several_servers_has_no_violation() -> Result<()> {
    let tally =
        over_several(|number| quorum::Plan::draw(SEED, number, PROCESSES), 3, Duration::ZERO)?;
    let text = tally.text();
    assert!(tally.holds > 50 && tally.contended_percent() >= 50.0 && tally.proven() > 0, "{text}");
    Ok(())
}

#[test]
fn two_minorities_make_no_majority() -> Result<()> {
    let tally = over_several(|number| quorum::Plan::partitioned(SEED, number), 1, Duration::ZERO)?;
    assert!(tally.holds > 0 && tally.proven() > 0, "{}", tally.text());
    Ok(())
}

#[test]
fn forgetful_majority_has_no_vote_while_holds_last() -> Result<()> {
    // Until the servers count again.
    let pause = Duration::from_millis(2_200);
    let tally = over_several(|number| quorum::Plan::forgetful(SEED, number), 1, pause)?;
    assert!(tally.holds > 0 && tally.proven() > 0, "{}", tally.text());
    Ok(())
}

#[test]
fn planted_bugs_over_several_servers_are_found() -> Result<()> {
    let mut crew = quorum::Crew::hire(PROCESSES, child)?;
    for (planted, checker) in [
        (Planted::NoLock, "C1"),
        (Planted::Deaf, "C1"),
        (Planted::Unfenced, "C3"),
        (Planted::Litter, "C5"),
    ] {
        let found = (0..12).any(|number| {
            let report = quorum::run(&mut crew, &quorum::Plan::planted(SEED, number, planted));
            let violations = report.map(|report| report.violations).unwrap_or_default();
            violations.iter().any(|violation| violation.checker == checker)
        });
        assert!(found, "{planted:?} was not found by {checker}");
    }
    Ok(())
}

#[test]
fn planted_bugs_are_found() -> Result<()> {
    let mut crew = Crew::hire(PROCESSES, child)?;
    for (planted, checker) in [
        (Planted::NoLock, "C1"),
        (Planted::Deaf, "C1"),
        (Planted::Unfenced, "C3"),
        (Planted::Liar, "C4"),
        (Planted::Litter, "C5"),
    ] {
        let mut found = false;
        // A void trial is not checked for leftover keys.
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
        let several = || quorum::Plan::draw(SEED, number, PROCESSES);
        assert_eq!(several().to_string(), several().to_string());
        assert!(several().replay().ends_with(&format!("--quorum --seed {SEED} --trial {number}")));
    }
    assert!((0..50).any(|number| shown(SEED, number) != shown(SEED + 1, number)));
}
