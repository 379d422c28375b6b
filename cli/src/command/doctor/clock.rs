//! The time of a round trip, the difference between the server's clock and this machine's, and the differences between
//! the clocks of all servers that may have a lock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold::{LockClient, redis};

use super::check::Check;
use super::finding::Finding;
use super::node;
use super::probe::Probe;
use crate::failure::Failure;
use crate::report::span::short;

const SAMPLES: usize = 11;
/// From here on a lock is slow for most uses.
const SLOW: Duration = Duration::from_millis(50);
/// From here on people see it.
const FAR: f64 = 1.0;

/// The default of `max_clock_skew` with Sentinel and in a cluster.
pub(super) const USUAL_SKEW: Duration = Duration::from_millis(500);

/// One question for the time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    took: Duration,
    /// The server's clock less this machine's, in seconds. It is exact to half of what the question took.
    offset: f64,
}

pub(super) fn check(probe: &Probe<'_>) -> Vec<Finding> {
    match samples(probe) {
        Ok(samples) => vec![round_trip(&samples), offset(samples[0])],
        Err(why) => {
            vec![Finding::unknown(Check::RoundTrip, &why), Finding::unknown(Check::Clock, why)]
        }
    }
}

/// The samples, the shortest first: its offset is the most exact.
fn samples(probe: &Probe<'_>) -> Result<Vec<Sample>, String> {
    let mut samples: Vec<Sample> = (0..SAMPLES).map(|_| sample(probe)).collect::<Result<_, _>>()?;
    samples.sort_by_key(|sample| sample.took);
    Ok(samples)
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
        return Finding::fine(Check::RoundTrip, seen);
    }
    Finding::warning(Check::RoundTrip, seen)
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
        return Finding::fine(Check::Clock, seen);
    }
    Finding::warning(Check::Clock, seen)
        .so("periods begin by the server's clock. If it is set while locks are held, leases end early or late \
             there, and tokens may repeat")
        .mend("let NTP set both clocks, slowly (slew)")
}

/// Compares the clocks of all servers that may have a lock: the masters and the replicas. `open` makes a client of one
/// of them.
pub(super) fn compare(
    first: &Probe<'_>,
    is_cluster: bool,
    open: impl Fn((String, u16)) -> Result<LockClient, Failure>,
    bound: Duration,
) -> Vec<Finding> {
    const CHECK: Check = Check::Clocks;
    let others = match node::others(first, is_cluster) {
        Ok(others) => others,
        Err(why) => return vec![Finding::unknown(CHECK, why)],
    };
    let (mut known, mut findings) = (Vec::new(), Vec::new());
    let mut ask = |server: String, probe: Result<Probe<'_>, String>| match probe
        .and_then(|probe| samples(&probe))
    {
        Ok(samples) => known.push((server, samples[0])),
        Err(why) => {
            findings.push(Finding { server: Some(server), ..Finding::unknown(CHECK, why) });
        }
    };
    if !is_cluster {
        ask("the server that was named".to_owned(), Ok(first.clone()));
    }
    for address in others {
        let server = format!("{}:{}", crate::name::Shown(address.0.as_bytes()), address.1);
        match open(address) {
            Ok(client) => ask(server, Ok(Probe::new(&client, first.name.clone()))),
            Err(failure) => ask(server, Err(failure.to_string())),
        }
    }
    findings.splice(0..0, apart(CHECK, &known, bound));
    findings
}

/// Compares the two clocks that are the farthest apart. `None` if fewer than two are known.
fn apart(check: Check, known: &[(String, Sample)], bound: Duration) -> Option<Finding> {
    let order = |one: &&(String, Sample), other: &&(String, Sample)| {
        one.1.offset.total_cmp(&other.1.offset)
    };
    let (behind, ahead) = (known.iter().min_by(order)?, known.iter().max_by(order)?);
    if known.len() < 2 {
        return None;
    }
    let distance = ahead.1.offset - behind.1.offset;
    let error = (ahead.1.took + behind.1.took).as_secs_f64() / 2.0;
    let seen = format!(
        "those of {} servers differ by {distance:.6} s at most, give or take {error:.6} s; max_clock_skew is {}",
        known.len(),
        short(bound)
    );
    if distance - error <= bound.as_secs_f64() {
        return Some(Finding::fine(check, seen));
    }
    let so = format!(
        "a lock that moves from {} to {}, by a fail-over or with its slot, may end there while its holder still \
         relies on it: two holders at a time",
        behind.0, ahead.0
    );
    let mend = "let NTP set all clocks, slowly (slew), or set max_clock_skew to more than that";
    Some(Finding::warning(check, seen).so(so).mend(mend))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn at(offset: f64) -> (String, Sample) {
        (format!("{offset}"), Sample { took: Duration::from_millis(20), offset })
    }

    #[test]
    fn clocks_that_are_surely_farther_apart_than_allowed_are_a_warning() {
        let judge = |known: &[(String, Sample)]| apart(Check::Clocks, known, USUAL_SKEW);
        assert!(judge(&[]).is_none() && judge(&[at(9.0)]).is_none());
        // Each offset is exact to 10 ms.
        for (clocks, level) in [
            ([0.0, 0.4, 0.1], Level::Fine),
            ([-0.3, 0.0, 0.2], Level::Fine),
            ([0.0, 0.519, 0.0], Level::Fine),
            ([-0.3, 0.3, 0.0], Level::Warning),
            ([9.0, 9.1, 8.0], Level::Warning),
        ] {
            let finding = judge(&clocks.map(at)).unwrap();
            assert_eq!(finding.level, level, "{clocks:?}: {finding}");
        }
        let finding = judge(&[9.0, 9.1, 8.0].map(at)).unwrap();
        assert!(finding.consequence.contains("from 8 to 9.1,"), "{finding}");
    }
}
