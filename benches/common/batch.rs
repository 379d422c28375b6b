//! Interleaved batches, so that what disturbs the machine disturbs all contenders alike.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use leasehold_support::stat::{median, percentile};

/// A median of fewer rounds tells little on a busy machine.
const ROUNDS: usize = 24;
/// No bound on time, however slow the machine: fewer rounds would be no measurement.
const MOST_ROUNDS: usize = 2000;

/// One contender: runs a batch, notes the time of each operation in µs, and answers how long the
/// batch took.
pub(crate) type Contender<'a> = Box<dyn FnMut(&mut Vec<f64>) -> Duration + 'a>;

/// A contender that does the same operation again and again on this thread.
pub(crate) fn repeated<'a>(count: usize, mut operation: impl FnMut() + 'a) -> Contender<'a> {
    Box::new(move |times| {
        let start = Instant::now();
        timed(count, &mut operation, times);
        start.elapsed()
    })
}

/// A contender in which each of some threads does its operation again and again, all at once.
pub(crate) fn parallel<'a, T: Send>(
    count: usize,
    threads: &'a mut [T],
    operation: impl Fn(&mut T) + Sync + 'a,
) -> Contender<'a> {
    Box::new(move |times| {
        let gate = Barrier::new(threads.len());
        let spans: Vec<_> = thread::scope(|scope| {
            let workers: Vec<_> = threads
                .iter_mut()
                .map(|state| {
                    let (gate, operation) = (&gate, &operation);
                    scope.spawn(move || {
                        let mut times = Vec::with_capacity(count);
                        gate.wait();
                        let start = Instant::now();
                        timed(count, &mut || operation(state), &mut times);
                        (start, Instant::now(), times)
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
        });
        let start = spans.iter().map(|span| span.0).min().expect("at least one thread");
        let end = spans.iter().map(|span| span.1).max().expect("at least one thread");
        times.extend(spans.into_iter().flat_map(|span| span.2));
        end - start
    })
}

fn timed(count: usize, operation: &mut impl FnMut(), times: &mut Vec<f64>) {
    for _ in 0..count {
        let start = Instant::now();
        operation();
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
}

/// What the batches of one contender took, one value per round, in µs.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    /// The whole batch, per operation.
    pub(crate) time: Vec<f64>,
    pub(crate) p50: Vec<f64>,
    pub(crate) p99: Vec<f64>,
}

impl Batches {
    fn note(&mut self, span: Duration, times: &[f64]) {
        self.time.push(span.as_secs_f64() * 1e6 / times.len() as f64);
        self.p50.push(median(times));
        self.p99.push(percentile(times, 99.0));
    }

    /// Operations per second.
    pub(crate) fn rate(&self) -> f64 {
        1e6 / median(&self.time)
    }
}

/// The median over all rounds of one contender's value by another's.
pub(crate) fn ratio(values: &[f64], others: &[f64]) -> f64 {
    let ratios: Vec<f64> = values.iter().zip(others).map(|(value, other)| value / other).collect();
    median(&ratios)
}

/// Warms all contenders up, then runs rounds of one batch of each, in an order drawn anew for each
/// round, for about this long.
pub(crate) fn interleave<const N: usize>(
    seconds: f64,
    mut contenders: [Contender<'_>; N],
) -> [Batches; N] {
    let mut times = Vec::new();
    for contender in &mut contenders {
        for _ in 0..2 {
            contender(&mut times);
        }
    }
    let mut batches = [(); N].map(|()| Batches::default());
    let mut order: Vec<usize> = (0..N).collect();
    let start = Instant::now();
    for round in 0..MOST_ROUNDS {
        if round >= ROUNDS && start.elapsed().as_secs_f64() > seconds {
            break;
        }
        fastrand::shuffle(&mut order);
        for &index in &order {
            times.clear();
            let span = contenders[index](&mut times);
            batches[index].note(span, &times);
        }
    }
    batches
}
