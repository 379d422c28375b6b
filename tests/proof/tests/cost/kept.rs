//! The memory that a held lock keeps, as the allocator of a process counts it that only holds locks.

use leasehold::{LockClient, OwnedLease};
use leasehold_support::child::{self, tell};
use leasehold_support::{Child, Server};

use crate::ALLOCATOR;
use crate::observer::PATIENCE;
use crate::role::URL;

const ROLE: &str = "kept";
/// How many locks the process holds. They share what the tables of the client take that have room for more.
const HELD: usize = 3_500;
/// So many bytes of heap a held lock keeps, or a few less: the nodes of a tree are not always as full.
const MOST: isize = 1_784;
const LESS: isize = 30;

#[test]
fn held_lock_keeps_as_many_bytes_as_it_is_known_to() {
    let server = Server::start().expect("a server");
    let holder = Child::role(ROLE).test("kept::holds_locks").env(URL, server.unix_url());
    let mut holder = holder.start().expect("this program, again");
    let bytes: isize = holder.expect_line("bytes", PATIENCE).parse().expect("a number");
    println!("a held lock keeps {bytes} bytes");
    assert!(
        (MOST - LESS..=MOST).contains(&bytes),
        "a held lock keeps {bytes} bytes instead of {MOST}: find out why, or set MOST in kept.rs"
    );
}

/// The process that holds locks.
#[test]
fn holds_locks() {
    if child::role().as_deref() != Some(ROLE) {
        return;
    }
    let url = std::env::var(URL).expect("the observer tells it");
    // Announcements would leave buffers, if the machine is so slow that there are any.
    let client =
        LockClient::builder(&url).announce(false).connect_now(true).command_timeout(PATIENCE);
    let client = client.build().expect("the server takes clients");
    let hold = |number: usize| {
        let lock = client.mutex(format!("held:{number:05}")).expect("a name");
        lock.lock().expect("it is free").into_owned().expect("it is held once")
    };
    // What the first lock makes for all is not counted.
    drop(hold(HELD));
    let mut held: Vec<OwnedLease> = Vec::with_capacity(HELD);
    let before = in_use();
    held.extend((0..HELD).map(hold));
    let bytes = in_use() - before;
    tell(&format!("bytes {}", bytes / HELD as isize));
}

fn in_use() -> isize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated as isize - stats.bytes_deallocated as isize
}
