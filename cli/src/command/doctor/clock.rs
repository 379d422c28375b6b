//! How long a round trip takes, and how far the server's clock is from this machine's.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold::redis;

use super::finding::Finding;
use super::probe::Probe;
use crate::report::span::short;

const SAMPLES: usize = 11;
/// From here on a lock is slow for most uses.
const SLOW: Duration = Duration::from_millis(50);
/// From here on people see it.
const FAR: f64 = 1.0;

/// One question for the time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    took: Duration,
    /// The server's clock less this machine's, in seconds. It is exact to half of what the question took.
    offset: f64,
}

pub(super) fn check(probe: &Probe<'_>) -> Vec<Finding> {
    let samples: Result<Vec<Sample>, String> = (0..SAMPLES).map(|_| sample(probe)).collect();
    match samples {
        Ok(mut samples) => {
            samples.sort_by_key(|sample| sample.took);
            vec![round_trip(&samples), offset(samples[0])]
        }
        Err(why) => vec![Finding::unknown("round trip", &why), Finding::unknown("clock", why)],
    }
}

#[expect(clippy::disallowed_methods, reason = "the wall clock is what is compared")]
fn sample(probe: &Probe<'_>) -> Result<Sample, String> {
    let before = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
    let start = Instant::now();
    let (seconds, micros): (f64, f64) = probe.get(&redis::cmd("TIME"))?;
    let took = start.elapsed();
    let middle = (before + took / 2).as_secs_f64();
    Ok(Sample { took, offset: seconds + micros / 1e6 - middle })
}

/// `samples` are in order.
fn round_trip(samples: &[Sample]) -> Finding {
    let (median, slowest) = (samples[samples.len() / 2].took, samples[samples.len() - 1].took);
    let seen =
        format!("{median:.1?} is the median of {}, {slowest:.1?} the slowest", samples.len());
    if median < SLOW {
        return Finding::fine("round trip", seen);
    }
    Finding::warning("round trip", seen)
        .so(format!(
            "a lock and its release take {} at least; leases must be ten times as long as a slow reply",
            short(median * 2)
        ))
        .mend("run the holders nearer to the server")
}

fn offset(best: Sample) -> Finding {
    let error = best.took.as_secs_f64() / 2.0;
    let side = if best.offset < 0.0 { "behind" } else { "ahead of" };
    let seen = format!(
        "the server's clock is {:.6} s {side} this machine's, give or take {error:.6} s",
        best.offset.abs()
    );
    if best.offset.abs() - error < FAR {
        return Finding::fine("clock", seen);
    }
    Finding::warning("clock", seen)
        .so("a lease does not depend on it, as each side measures with its own clock. Periods begin by the \
             server's clock. If it is set while locks are held, leases end early or late there, and tokens may repeat")
        .mend("let NTP set both clocks, slowly (slew)")
}
