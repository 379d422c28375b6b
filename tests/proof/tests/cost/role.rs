//! The process in which an operation runs.

use std::io::{self, Read};

use leasehold_support::child::tell;

use crate::ALLOCATOR;
use crate::operation;

pub(crate) const ROLE: &str = "cost";
/// Where it is told the server, and its operation by number.
pub(crate) const URL: &str = "LEASEHOLD_COST_URL";
pub(crate) const NUMBER: &str = "LEASEHOLD_COST_OPERATION";

/// The orders of the observer. Each is a line, and is over when `done` was told and the process is calm.
pub(crate) mod order {
    /// Opens the clients, and makes what they need. Until then there is no thread but that of the operation.
    pub(crate) const BEGIN: u8 = b'b';
    /// Makes everything ready for the next repetition.
    pub(crate) const PREPARE: u8 = b'p';
    /// Does the operation.
    pub(crate) const RUN: u8 = b'r';
    /// Tells how many allocations there were since the operation began.
    pub(crate) const TELL: u8 = b't';
}

/// Plays the operation that the environment names.
pub(crate) fn play() {
    let variable = |name| std::env::var(name).expect("the observer tells it");
    let number: usize = variable(NUMBER).parse().expect("a number");
    tell(&format!("thread {}", nix::unistd::gettid()));
    // Threads from before would not be traced.
    assert_eq!(next_order(), Some(order::BEGIN));
    let operation = operation::all().nth(number).expect("one of the list");
    (operation.play)(&variable(URL));
}

/// Has begun, and does what the observer orders, until that is gone.
pub(crate) fn serve(mut prepare: impl FnMut(), mut operation: impl FnMut()) {
    let mut begun = 0;
    tell("done");
    while let Some(order) = next_order() {
        match order {
            order::PREPARE => prepare(),
            order::RUN => {
                begun = allocations();
                operation();
            }
            order::TELL => {
                let count = allocations() - begun;
                tell(&format!("allocations {count}"));
            }
            order => panic!("no order: {order}"),
        }
        tell("done");
    }
}

/// The next order. It is read without an allocation.
fn next_order() -> Option<u8> {
    let mut line = [0; 2];
    io::stdin().lock().read_exact(&mut line).ok()?;
    Some(line[0])
}

fn allocations() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}
