//! Who runs next, and when time moves.

use std::time::Duration;

use shuttle::current::TaskId;
use shuttle::scheduler::{Schedule, Scheduler, Task};

use crate::base::sync::time;

/// Where others can run, time moves no further at once: commands are not to be overdue all the time.
const LEAP: Duration = Duration::from_millis(50);

/// Another scheduler for all threads but the first, which keeps the time: it runs when nobody else
/// can, or as often as the scenario's hurry says.
pub(super) struct Timed<S> {
    inner: S,
    hurry: u32,
    dice: fastrand::Rng,
    last: Option<TaskId>,
}

impl<S> Timed<S> {
    pub(super) fn new(inner: S, hurry: u32, seed: u64) -> Timed<S> {
        Timed { inner, hurry, dice: fastrand::Rng::with_seed(seed), last: None }
    }
}

impl<S: Scheduler> Scheduler for Timed<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.last = None;
        self.inner.new_execution()
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let keeper = TaskId::from(0);
        let others = match runnable {
            [first, others @ ..] if first.id() == keeper => {
                if time::is_moving() {
                    return Some(keeper);
                }
                let alone = others.is_empty();
                let mut hurries = || self.hurry > 0 && self.dice.u32(..self.hurry) == 0;
                if alone || (time::is_awaited(LEAP) && hurries()) {
                    time::set_alone(alone);
                    return Some(keeper);
                }
                others
            }
            all => all,
        };
        self.last = self.inner.next_task(others, self.last.or(current), is_yielding);
        self.last
    }

    fn next_u64(&mut self) -> u64 {
        self.inner.next_u64()
    }
}
