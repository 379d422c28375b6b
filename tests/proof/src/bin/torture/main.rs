//! Torture: processes contend for locks while faults happen, all of it is recorded, and checkers
//! judge it.
//!
//! ```sh
//! cargo run --release --package leasehold-proof --bin torture -- --seconds 600 --seed 1
//! ```
//!
//! | argument | means |
//! | --- | --- |
//! | `--seconds S` | for how long, default 60 |
//! | `--seed N` | which faults, default 1; the same seed has the same schedule of faults |
//! | `--trial T` | only this trial of the seed, again and again: to replay a violation |
//! | `--processes P` | how many processes, default 3, at least 3 |
//! | `--planted B` | no faults, but one process has bug B on purpose (1 to 5), which must be found |
//! | `--quorum` | over five servers, a majority of which decides |
//! | `--soak` | looks at threads, descriptors and memory of the processes, which must not grow |
//!
//! A trial lasts a second or two: each process has threads that lock, write to a resource that
//! checks fencing tokens, and release, through a proxy of its own; one or two faults happen and are
//! healed. In half of the trials most leases have tails, and one more fault outlasts a lease, so that
//! holders are silent, and come back or lose the lock. With `--quorum` there is a proxy for each process
//! and server, and up to three faults happen: servers are killed, restart empty, stand still, and are
//! cut off from some processes. Then the histories of all processes are merged and checked. A trial in
//! which the machine stood still is void and counts for nothing. It fails if there was a violation.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to people")]

mod lab;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use lab::crew::Crew;
use lab::health::Health;
use lab::plan::{Plan, Planted, Shown};
use lab::tally::{Tally, complaint};
use lab::trial::Report;
use lab::{Result, holder, quorum, trial};
use leasehold_support::child;

const SAMPLED_EVERY: Duration = Duration::from_secs(2);
fn main() -> ExitCode {
    let outcome = match child::role().as_deref() {
        None => run(),
        Some(holder::ROLE) => holder::serve().map(|()| true),
        Some(other) => Err(format!("no such role: {other}").into()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("torture: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Arguments {
    seconds: u64,
    seed: u64,
    trial: Option<u64>,
    processes: usize,
    planted: Planted,
    soak: bool,
    quorum: bool,
}

impl Arguments {
    fn read() -> Result<Arguments> {
        let mut read = Arguments {
            seconds: 60,
            seed: 1,
            trial: None,
            processes: 3,
            planted: Planted::Nothing,
            soak: false,
            quorum: false,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut number = || -> Result<u64> {
                let value = words.next().ok_or_else(|| format!("{word} wants a number"))?;
                Ok(value.parse().map_err(|_| format!("{word} wants a number, not {value:?}"))?)
            };
            match word.as_str() {
                "--seconds" => read.seconds = number()?,
                "--seed" => read.seed = number()?,
                "--trial" => read.trial = Some(number()?),
                "--processes" => read.processes = usize::try_from(number()?)?.max(3),
                "--planted" => {
                    let place = usize::try_from(number()?)?;
                    read.planted = *Planted::ALL.get(place).ok_or("there are five bugs")?;
                }
                "--soak" => read.soak = true,
                "--quorum" => read.quorum = true,
                other => return Err(format!("no such argument: {other}").into()),
            }
        }
        Ok(read)
    }
}

/// The processes, their server or servers, and a trial with them.
enum Stage {
    One(Box<Crew>),
    Several(quorum::Crew),
}

impl Stage {
    fn set(arguments: &Arguments) -> Result<Stage> {
        Ok(if arguments.quorum {
            Stage::Several(quorum::Crew::hire(arguments.processes, |child| child)?)
        } else {
            Stage::One(Box::new(Crew::hire(arguments.processes, |child| child)?))
        })
    }

    fn version(&self) -> String {
        match self {
            Stage::One(crew) => crew.server.version().to_owned(),
            Stage::Several(crew) => {
                format!("{} servers, {}", crew.servers.len(), crew.servers[0].version())
            }
        }
    }

    fn pids(&self) -> Vec<u32> {
        match self {
            Stage::One(crew) => crew.members.iter().map(|it| it.child.pid()).collect(),
            Stage::Several(crew) => crew.members.iter().map(|it| it.child.pid()).collect(),
        }
    }

    fn play(&mut self, arguments: &Arguments, trial: u64) -> Result<(Box<dyn Shown>, Report)> {
        let Arguments { seed, processes, planted, .. } = *arguments;
        Ok(match self {
            Stage::One(crew) => {
                let plan = match planted {
                    Planted::Nothing => Plan::draw(seed, trial, processes, true),
                    planted => Plan::planted(seed, trial, planted),
                };
                let report = trial::run(crew, &plan)?;
                (Box::new(plan), report)
            }
            Stage::Several(crew) => {
                let plan = match planted {
                    Planted::Nothing => quorum::Plan::draw(seed, trial, processes),
                    planted => quorum::Plan::planted(seed, trial, planted),
                };
                let report = quorum::run(crew, &plan)?;
                (Box::new(plan), report)
            }
        })
    }
}

fn run() -> Result<bool> {
    let arguments = Arguments::read()?;
    let Arguments { seconds, seed, processes, .. } = arguments;
    let mut stage = Stage::set(&arguments)?;
    let (version, threads) = (stage.version(), holder::THREADS);
    println!("{version}, seed {seed}, {processes} processes of {threads} threads, {seconds} s");
    // The last process is the one that gets killed.
    let mut health: Vec<Health> =
        stage.pids()[..processes - 1].iter().map(|pid| Health::new(*pid)).collect();
    health.push(Health::new(std::process::id()));
    let begin = Instant::now();
    let mut reported = begin;
    // In a file the tally at the end is enough.
    let watched = std::io::stdout().is_terminal();
    let mut tally = Tally::default();
    let mut number = 0;
    while begin.elapsed() < Duration::from_secs(seconds) {
        let (plan, report) = stage.play(&arguments, arguments.trial.unwrap_or(number))?;
        number += 1;
        tally.add(&report);
        let late = report.overrun.as_ref().filter(|overrun| overrun.by > trial::OVERRUN);
        if !report.violations.is_empty() {
            print!("{}", complaint(&*plan, &report));
        }
        if let Some(overrun) = late {
            let (by, text) = (overrun.by as f64 / 1e6, &overrun.text);
            println!("late by {by:.1} ms in{}: {text}; {plan}", plan.replay());
        }
        if report.void {
            let lag = report.lag as f64 / 1e6;
            println!("void: the machine stood still for {lag:.0} ms in{}; {plan}", plan.replay());
        }
        if late.is_some() || !report.violations.is_empty() {
            println!("  the history is in {}", trial::dump(&*plan, &report.history)?.display());
        }
        for health in health.iter_mut().filter(|health| health.is_due(SAMPLED_EVERY)) {
            health.sample();
        }
        if watched && reported.elapsed() > Duration::from_secs(5) {
            reported = Instant::now();
            let Tally { trials, holds, voids, violations, .. } = tally;
            let (time, rate) = (begin.elapsed(), holds as f64 / begin.elapsed().as_secs_f64());
            println!(
                "{:4} s: {trials} trials, {holds} holds ({rate:.0}/s), {:.0} % contended, \
                 {} kinds fired, {voids} void, {violations} violations",
                time.as_secs(),
                tally.contended_percent(),
                tally.proven(),
            );
        }
    }
    print!("{}", tally.text());
    let mut flat = true;
    for (index, health) in health.iter().enumerate() {
        let (lines, fine) = if index + 1 < processes {
            health.verdict(&format!("holder {index}"), 0.1)
        } else {
            // It keeps the room that the longest history took.
            health.verdict("torturer", 0.5)
        };
        lines.iter().for_each(|line| println!("{line}"));
        flat &= fine;
    }
    Ok(tally.violations == 0 && (flat || !arguments.soak))
}
