//! Has an operation repeated, and counts.

use std::time::{Duration, Instant};

use leasehold_support::{Child, Server};
use nix::unistd::Pid;

use crate::calm::Watcher;
use crate::count::{COLUMNS, Count};
use crate::gauge::{self, Gauge};
use crate::operation::{self, End, Operation};
use crate::role::{self, order};
use crate::tracer::Tracer;

/// The longest that anything takes on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The longest operation that takes time.
const LONGEST: Duration = Duration::from_secs(5);
/// How often to look whether an operation that takes time is over.
const POLL: Duration = Duration::from_micros(500);

/// How often it is repeated at least, without a count to compare with.
const REPETITIONS: usize = 30;
/// How often at most, until it costs what is expected.
const MOST_REPETITIONS: usize = 60;
/// The same for an operation that takes a second.
const LONG_REPETITIONS: usize = 5;
const MOST_LONG_REPETITIONS: usize = 8;

/// Counts what an operation costs, until that is expected if anything is. Without an expectation a span of time has what is
/// usual.
pub(crate) fn count(operation: &Operation, is_expected: Option<&dyn Fn(&Count) -> bool>) -> Count {
    let server = Server::start().expect("a server");
    let mut stage = Stage::new(operation, &server);
    let (least, most) = match operation.end {
        End::Calm => (REPETITIONS, MOST_REPETITIONS),
        End::Scripts(_) | End::Passed(_) => (LONG_REPETITIONS, MOST_LONG_REPETITIONS),
    };
    let most = if is_expected.is_some() { most } else { least };
    // The first one connects, and makes scripts known.
    stage.repeat(operation.end);
    let mut counts = Vec::new();
    for _ in 0..most {
        counts.push(stage.repeat(operation.end));
        if is_expected.is_some_and(|is_expected| is_expected(&Count::least(&counts))) {
            break;
        }
    }
    match (operation.end, is_expected) {
        // The least is less than usual.
        (End::Passed(_), None) => Count::median(&counts),
        _ => Count::least(&counts),
    }
}

/// Whether a count is what the table says.
pub(crate) fn meets(count: &Count, operation: &Operation, expected: [u64; COLUMNS.len()]) -> bool {
    (0..COLUMNS.len()).all(|column| differs(count, operation, expected, column).is_none())
}

/// What a column of a count is, where that is not what the table says.
pub(crate) fn differs(
    count: &Count,
    operation: &Operation,
    expected: [u64; COLUMNS.len()],
    column: usize,
) -> Option<u64> {
    let value = count.columns[column];
    let is_right = match operation.end {
        End::Passed(_) => value <= expected[column],
        End::Calm | End::Scripts(_) => value == expected[column],
    };
    (count.has(column) && !is_right).then_some(value)
}

/// The process of an operation, and who watches it.
struct Stage<'a> {
    // Before the process: it reaps the threads, and the process is gone only then.
    watch: Watch,
    child: Child,
    gauge: Gauge<'a>,
    untraced: Option<String>,
}

enum Watch {
    Traced(Tracer),
    Untraced(Watcher),
}

impl<'a> Stage<'a> {
    fn new(operation: &Operation, server: &'a Server) -> Stage<'a> {
        let number = operation::all().position(|it| it.name == operation.name);
        let number = number.expect("one of the list").to_string();
        let child = Child::role(role::ROLE).test("plays_an_operation");
        let child = child.env(role::URL, server.unix_url()).env(role::NUMBER, number);
        let mut child = child.start().expect("a process");
        let thread = child.expect_line("thread", PATIENCE).parse().expect("a number");
        let process = Pid::from_raw(i32::try_from(child.pid()).expect("a number"));
        let (watch, untraced) = match Tracer::seize(process, Pid::from_raw(thread)) {
            Ok(tracer) => (Watch::Traced(tracer), None),
            Err(why) => (Watch::Untraced(Watcher::new(process, Pid::from_raw(thread))), Some(why)),
        };
        let mut stage = Stage { watch, child, gauge: Gauge::new(server), untraced };
        // Until it waits for an order.
        stage.calm(b' ');
        stage.order(order::BEGIN, End::Calm);
        stage
    }

    /// Has the operation done once more.
    fn repeat(&mut self, end: End) -> Count {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(count) = self.try_repeat(end) {
                return count;
            }
        }
        panic!("the machine stood still each time");
    }

    /// The same. Returns nothing if what is to be counted did not happen, because the machine stood still.
    fn try_repeat(&mut self, end: End) -> Option<Count> {
        self.order(order::PREPARE, End::Calm);
        let before = self.gauge.commands();
        let span = self.order(order::RUN, end)?;
        let traced = match &mut self.watch {
            Watch::Traced(tracer) => tracer.take(),
            Watch::Untraced(_) => Default::default(),
        };
        let mut commands = self.gauge.commands().since(&before);
        commands.calls.retain(|_, calls| *calls > 0);
        let allocations = self.allocations();
        let mut columns = [
            gauge::sent(&commands),
            commands.calls.values().sum(),
            traced.system_calls.values().sum(),
            traced.wake_ups,
            allocations,
        ];
        if let End::Passed(wanted) = end {
            // The span was longer, as it ends with the next look.
            let share = wanted.as_secs_f64() / span.as_secs_f64();
            columns = columns.map(|column| (column as f64 * share).round() as u64);
        }
        Some(Count {
            columns,
            system_calls: traced.system_calls,
            commands: commands.calls,
            untraced: self.untraced.clone(),
        })
    }

    /// How many allocations there were since the operation began.
    fn allocations(&mut self) -> u64 {
        self.child.say(&char::from(order::TELL).to_string());
        if let Watch::Traced(tracer) = &mut self.watch {
            tracer.begin();
            self.calm(order::TELL);
        }
        let count = self.child.expect_line("allocations", PATIENCE);
        self.child.expect_line("done", PATIENCE);
        count.parse().expect("a number")
    }

    /// Gives an order, and waits for its end. Returns how long that took; nothing if it did not end.
    fn order(&mut self, order: u8, end: End) -> Option<Duration> {
        let begun = Instant::now();
        let before = gauge::scripts(&self.gauge.commands());
        self.child.say(&char::from(order).to_string());
        match &mut self.watch {
            Watch::Traced(tracer) => tracer.begin(),
            // It looks calm also before it has begun.
            Watch::Untraced(_) => _ = self.child.expect_line("done", PATIENCE),
        }
        loop {
            self.calm(order);
            let is_over = match end {
                End::Calm => true,
                End::Scripts(least) => gauge::scripts(&self.gauge.commands()) - before >= least,
                End::Passed(span) => begun.elapsed() >= span,
            };
            if is_over {
                return Some(begun.elapsed());
            }
            if begun.elapsed() > LONGEST {
                return None;
            }
            std::thread::sleep(POLL);
        }
    }

    /// Waits until the process is calm.
    fn calm(&mut self, order: u8) {
        let outcome = match &mut self.watch {
            Watch::Traced(tracer) => tracer.until_calm(&mut self.gauge),
            Watch::Untraced(watcher) => watcher.until_calm(&mut self.gauge),
        };
        let order = char::from(order);
        outcome.unwrap_or_else(|why| panic!("after {order:?}: {why}\n{}", self.child.output()));
    }
}
