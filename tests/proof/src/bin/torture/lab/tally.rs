//! The sums over all trials.

use std::collections::BTreeMap;
use std::fmt::Write;

use leasehold_support::history::Overrun;

use super::plan::Shown;
use super::trial::Report;

/// How often a fault was planned and took effect.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    trials: u64,
    proven: u64,
    fired: u64,
}

/// Sums over trials.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) trials: u64,
    pub(crate) voids: u64,
    pub(crate) holds: usize,
    pub(crate) contended: usize,
    pub(crate) violations: usize,
    /// How often a hold was silent, and how often it came back.
    pub(crate) silences: (usize, usize),
    /// Trials with two faults.
    pairs: u64,
    calls: usize,
    raw_overlaps: usize,
    worst: Option<Overrun>,
    lag: u64,
    kinds: BTreeMap<String, Count>,
}

impl Tally {
    /// Adds a trial. Only of one that is not void the holds count as checked.
    pub(crate) fn add(&mut self, report: &Report) {
        self.trials += 1;
        self.violations += report.violations.len();
        self.lag = self.lag.max(report.lag);
        if report.void {
            self.voids += 1;
            return;
        }
        self.pairs += u64::from(report.fired.len() > 1);
        self.holds += report.holds;
        self.contended += report.contended;
        let ((silent, back), (more, more_back)) = (self.silences, report.silences);
        self.silences = (silent + more, back + more_back);
        self.calls += report.calls;
        self.raw_overlaps += report.raw_overlaps;
        if report.overrun.as_ref().map(|overrun| overrun.by)
            > self.worst.as_ref().map(|worst| worst.by)
        {
            self.worst.clone_from(&report.overrun);
        }
        for (name, fired) in &report.fired {
            let count = self.kinds.entry(name.clone()).or_default();
            count.trials += 1;
            count.proven += u64::from(fired.is_proven());
            count.fired += fired.injected;
        }
    }

    /// How many kinds of fault took effect, proven by a witness.
    pub(crate) fn proven(&self) -> usize {
        self.kinds.values().filter(|count| count.proven > 0).count()
    }

    /// The share of holds that were contended, in percent.
    pub(crate) fn contended_percent(&self) -> f64 {
        100.0 * self.contended as f64 / self.holds.max(1) as f64
    }

    /// The table and the sums.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |line: std::fmt::Arguments<'_>| {
            text.write_fmt(line).and_then(|()| text.write_char('\n')).expect("a string takes any");
        };
        line(format_args!("{:32} {:>7} {:>7} {:>8}", "fault", "trials", "proven", "fired"));
        for (name, Count { trials, proven, fired }) in &self.kinds {
            line(format_args!("{name:32} {trials:7} {proven:7} {fired:8}"));
        }
        let Tally { trials, voids, holds, violations, pairs, calls, raw_overlaps, .. } = self;
        let (kinds, proven) = (self.kinds.len(), self.proven());
        let void_percent = 100.0 * *voids as f64 / (*trials).max(1) as f64;
        line(format_args!("trials          {trials}, of which {pairs} with two faults"));
        line(format_args!("kinds of fault  {kinds}, of which {proven} proven to have fired"));
        line(format_args!("holds checked   {holds} of {calls} calls"));
        line(format_args!("contended       {:.1} %", self.contended_percent()));
        let (silent, back) = self.silences;
        line(format_args!("silent          {silent}, of which {back} came back"));
        line(format_args!("raw overlaps    {raw_overlaps}, which the tokens fenced off"));
        line(format_args!("worst lag       {:.1} ms", self.lag as f64 / 1e6));
        if let Some(Overrun { by, text }) = &self.worst {
            line(format_args!("worst overrun   {:.1} ms: {text}", *by as f64 / 1e6));
        }
        line(format_args!("voids           {voids} ({void_percent:.2} %)"));
        line(format_args!("violations      {violations}"));
        text
    }
}

/// The report of a trial with violations.
pub(crate) fn complaint(plan: &dyn Shown, report: &Report) -> String {
    let mut text = format!(
        "VIOLATION; replay with cargo run --release --package leasehold-proof --bin torture --{}\n  {plan}\n",
        plan.replay()
    );
    for violation in report.violations.iter().take(10) {
        writeln!(text, "  {violation}").expect("a string takes any");
    }
    text
}
