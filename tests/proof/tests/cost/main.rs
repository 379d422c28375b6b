//! What operations cost, counted and not timed: commands, system calls, wake-ups and allocations.
//!
//! ```sh
//! cargo test --package leasehold-proof --test cost -- --nocapture
//! LEASEHOLD_REMAKE=1 cargo test --package leasehold-proof --test cost
//! ```
//!
//! The first compares the counts with `table.md`, and prints them with their system calls. The second makes the table
//! anew; its diff shows reviewers what became dearer or cheaper.
//!
//! | column | what is counted |
//! | --- | --- |
//! | sent | commands that clients send, by `INFO commandstats` |
//! | run | all commands that the server runs, those of scripts among them |
//! | system calls | those of the client's process, without those of its allocator and for the time |
//! | wake-ups | how often a thread of the client's process goes on that slept: another thread has woken it, or a clock, or a message; not the reply to its command |
//! | allocations | allocations and reallocations of the client's process |
//!
//! # Why a busy machine counts the same
//!
//! Each operation runs in a process of its own, beside a server of its own, again and again. Before and after each
//! repetition the process is *calm*: all its threads sleep, and the server has nothing more to say to them. So what
//! the operation leaves for other threads counts, too. In between only one thread runs at a time, until it sleeps
//! (`tracer`), so that threads meet in one order. A repetition in which a clock rang, say that of a heartbeat, counts
//! more than the others: of each column the least counts. Where a span of time is what is measured, a busy machine
//! counts less, and the table has what is usual, as the most that is allowed.
//!
//! Where the system forbids to trace, system calls and wake-ups are skipped.
//!
//! What a lock keeps while it is held is counted in `kept`.

#![allow(clippy::print_stdout, reason = "people read what system calls an operation makes")]

mod calm;
mod count;
mod gauge;
mod kept;
mod observer;
mod operation;
mod register;
mod role;
mod system_call;
mod table;
mod tracer;

use std::alloc::System;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;

use leasehold_support::{child, skip};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use count::Count;
use operation::{OPERATIONS, PLAIN, PLANTED};
use table::Table;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// How many operations are counted at the same time. Most of them wait for the server, or for a lease.
const AT_ONCE: usize = 4;

#[test]
fn commands_are_those_of_the_table() {
    compare(&[0, 1]);
}

/// The tracer lets one thread run at a time. Without it a long reply may come in pieces, which are put together.
#[test]
fn system_calls_wake_ups_and_allocations_are_those_of_the_table() {
    if let Some(why) = counts().iter().find_map(|count| count.untraced.as_ref()) {
        skip(format!("the system forbids to trace a process: {why}"));
        return;
    }
    compare(&count::TRACED);
}

/// The counts see a single one more.
#[test]
fn one_more_of_each_is_counted() {
    let plain = OPERATIONS.iter().position(|operation| operation.name == PLAIN);
    let plain = &counts()[plain.expect("one of the list")];
    for (column, planted) in &PLANTED {
        let more = plain.columns[*column] + 1;
        let has_more = |count: &Count| count.columns[*column] == more;
        let count = observer::count(planted, Some(&has_more));
        assert!(!count.has(*column) || has_more(&count), "{}: {count}", planted.name);
    }
}

/// Compares these columns with the table.
fn compare(columns: &[usize]) {
    // First: it may make the table anew.
    let counts = counts();
    if let Err(differences) = Table::read().compare(counts, columns) {
        panic!(
            "operations cost something else than tests/proof/tests/cost/table.md says: find out why, or \
             LEASEHOLD_REMAKE=1 cargo test --package leasehold-proof --test cost\n{differences}"
        );
    }
}

/// What each operation costs, in the order of the list. All tests share it.
fn counts() -> &'static [Count] {
    static COUNTS: OnceLock<Vec<Count>> = OnceLock::new();
    COUNTS.get_or_init(|| {
        let remakes = std::env::var_os("LEASEHOLD_REMAKE").is_some();
        let kept = (!remakes).then(Table::read);
        let counts = count_all(kept.as_ref());
        for (operation, count) in OPERATIONS.iter().zip(&counts) {
            println!("{}: {count}", operation.name);
        }
        if remakes {
            let is_whole = counts.iter().all(|count| count.untraced.is_none());
            assert!(is_whole, "the table is not made where the system forbids to trace");
            Table::of(&counts).write();
        }
        counts
    })
}

/// Counts each operation, in the order of the list.
fn count_all(kept: Option<&Table>) -> Vec<Count> {
    let next = AtomicUsize::new(0);
    let counts = Mutex::new(vec![None; OPERATIONS.len()]);
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(operation) = OPERATIONS.get(number) else { return };
                    let row = kept.and_then(|kept| kept.row(operation.name));
                    let meets =
                        row.map(|row| move |count: &Count| observer::meets(count, operation, row));
                    let count = observer::count(operation, meets.as_ref().map(|it| it as _));
                    counts.lock().expect("no panic")[number] = Some(count);
                }
            });
        }
    });
    let counts = counts.into_inner().expect("no panic");
    counts.into_iter().map(|count| count.expect("each was counted")).collect()
}

/// The process of one operation.
#[test]
fn plays_an_operation() {
    if child::role().as_deref() == Some(role::ROLE) {
        role::play();
    }
}
