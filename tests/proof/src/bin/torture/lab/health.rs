//! Threads, descriptors and memory of the processes, over time.

use std::fs;
use std::time::{Duration, Instant};

/// What a process has at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) seconds: f64,
    pub(crate) threads: f64,
    pub(crate) descriptors: f64,
    /// Resident memory, KiB.
    pub(crate) memory: f64,
}

/// A figure's name, the figure, and by what share and by how much it may differ.
type Figure = (&'static str, fn(&Sample) -> f64, f64, f64);

/// The samples of one process.
#[derive(Debug)]
pub(crate) struct Health {
    pub(crate) pid: u32,
    begin: Instant,
    samples: Vec<Sample>,
}

/// What one figure did from the first third of the samples to the last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Course {
    pub(crate) first: f64,
    pub(crate) last: f64,
    pub(crate) per_minute: f64,
}

impl Health {
    pub(crate) fn new(pid: u32) -> Health {
        Health { pid, begin: Instant::now(), samples: Vec::new() }
    }

    /// Looks at the process, unless it is gone.
    pub(crate) fn sample(&mut self) {
        let seconds = self.begin.elapsed().as_secs_f64();
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid));
        let files = fs::read_dir(format!("/proc/{}/fd", self.pid));
        let (Ok(status), Ok(files)) = (status, files) else { return };
        let field = |name: &str| {
            let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
            rest.split_whitespace().next()?.parse::<f64>().ok()
        };
        let (Some(threads), Some(memory)) = (field("Threads:"), field("VmRSS:")) else { return };
        self.samples.push(Sample { seconds, threads, descriptors: files.count() as f64, memory });
    }

    /// Whether it is time to look again.
    pub(crate) fn is_due(&self, pause: Duration) -> bool {
        let seconds = self.begin.elapsed().as_secs_f64();
        self.samples.last().is_none_or(|last| seconds - last.seconds >= pause.as_secs_f64())
    }

    /// The course of a figure; the first tenth of the samples is for warming up.
    pub(crate) fn course(&self, figure: impl Fn(&Sample) -> f64) -> Option<Course> {
        let warm = &self.samples[self.samples.len() / 10..];
        if warm.len() < 6 {
            return None;
        }
        let third = warm.len() / 3;
        let middle = |samples: &[Sample]| {
            let mut values: Vec<f64> = samples.iter().map(&figure).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Some(Course {
            first: middle(&warm[..third]),
            last: middle(&warm[warm.len() - third..]),
            per_minute: slope(warm, &figure) * 60.0,
        })
    }

    /// The lines to print, and whether all of it is flat; memory may differ by this share.
    pub(crate) fn verdict(&self, who: &str, share: f64) -> (Vec<String>, bool) {
        let figures: [Figure; 3] = [
            ("threads", |sample| sample.threads, 0.0, 2.0),
            ("descriptors", |sample| sample.descriptors, 0.0, 4.0),
            // What an allocator keeps differs from time to time.
            ("memory, KiB", |sample| sample.memory, share, 1024.0),
        ];
        let (mut lines, mut flat) = (Vec::new(), true);
        for (name, figure, share, most) in figures {
            let Some(course) = self.course(figure) else { continue };
            let Course { first, last, per_minute } = course;
            let fine = last - first <= most.max(first * share);
            flat &= fine;
            let note = if fine { "flat" } else { "GROWS" };
            lines.push(format!(
                "{who:12} {name:12} first {first:9.0}  last {last:9.0}  {per_minute:+9.2} a minute  {note}"
            ));
        }
        (lines, flat)
    }
}

/// The slope of the line that fits best, a second.
fn slope(samples: &[Sample], figure: impl Fn(&Sample) -> f64) -> f64 {
    let count = samples.len() as f64;
    let mean = |value: &dyn Fn(&Sample) -> f64| samples.iter().map(value).sum::<f64>() / count;
    let (time, height) = (mean(&|sample| sample.seconds), mean(&|sample| figure(sample)));
    let (mut over, mut under) = (0.0, 0.0);
    for sample in samples {
        let span = sample.seconds - time;
        over += span * (figure(sample) - height);
        under += span * span;
    }
    if under > 0.0 { over / under } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(memory: impl Fn(f64) -> f64) -> Health {
        let samples = (0..60).map(|second| {
            let seconds = f64::from(second);
            Sample { seconds, threads: 5.0, descriptors: 9.0, memory: memory(seconds) }
        });
        Health { samples: samples.collect(), ..Health::new(1) }
    }

    #[test]
    fn growing_series_is_not_flat() {
        assert!(health(|_| 9000.0).verdict("x", 0.1).1);
        assert!(health(|second| 9000.0 + second % 7.0).verdict("x", 0.1).1);
        let (lines, flat) = health(|second| 9000.0 + 50.0 * second).verdict("x", 0.1);
        assert!(!flat && lines[2].contains("+3000.00"), "{lines:?}");
    }

    #[test]
    fn own_process_can_be_measured() {
        let mut health = Health::new(std::process::id());
        health.sample();
        assert!(health.samples[0].threads >= 1.0 && health.samples[0].memory > 100.0);
    }
}
