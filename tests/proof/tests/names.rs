//! Names that are used once leave nothing in their client.
//!
//! `LEASEHOLD_NAMES=1000000 cargo test --release --package leasehold-proof --test names -- --nocapture`

#![allow(clippy::print_stderr, reason = "a proof tells people its figures")]

use std::thread;
use std::time::Duration;

use leasehold::{Lease, LockClient, LockOptions, Result};
use leasehold_support::Server;

/// Without another number.
const NAMES: u64 = 40_000;
const THREADS: u64 = 4;
/// What the allocator may keep or lose between two looks. A million forgotten names would take a hundred times that.
const SLACK: u64 = 4 << 20;

/// The memory of this process, counted page by page: `statm` is approximate.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).expect("its form");
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kibibytes * 1_024
}

/// Uses each of these names once, as one kind or another.
fn use_names(client: &LockClient, names: std::ops::Range<u64>) -> Result<()> {
    // The server forgets them soon.
    let brief = LockOptions::new().lease(Lease::fixed(Duration::from_secs(2)));
    for name in names {
        let text = format!("name:{name}");
        match name % 4 {
            0 => client.mutex_with(&text, brief)?.lock()?.release()?,
            1 => client.semaphore_with(&text, 2, brief)?.acquire()?.release()?,
            2 => client.rw_lock_with(&text, brief)?.read()?.release()?,
            _ => client.rw_lock_with(&text, brief)?.write()?.release()?,
        }
    }
    Ok(())
}

fn use_all(client: &LockClient, names: std::ops::Range<u64>) {
    let each = (names.end - names.start) / THREADS;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let begin = names.start + thread * each;
                scope.spawn(move || use_names(client, begin..begin + each))
            })
            .collect();
        threads.into_iter().for_each(|it| it.join().expect("no panic").expect("locks"));
    });
}

#[test]
fn names_that_were_used_once_leave_the_client_as_it_was() {
    let names = std::env::var("LEASEHOLD_NAMES").map_or(NAMES, |it| it.parse().expect("a number"));
    let server = Server::start().expect("a server");
    let client = LockClient::open(server.url()).expect("a client");
    let tenth = names / 10;
    use_all(&client, 0..tenth);
    let before = resident();
    use_all(&client, tenth..names);
    let after = resident();
    eprintln!("resident after {tenth} names: {before}, after {names}: {after} bytes");
    assert!(after < before + SLACK, "{before} {after}");
}
