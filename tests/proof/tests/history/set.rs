//! The workloads of Jepsen's tests of locks: a set that is read, changed and written back under a lock, and one whose
//! write is a transaction under the lock. That which compares tokens is part of every workload.

use std::time::Duration;

use leasehold::redis::Value;
use leasehold::{Guard, Lease, LockOptions};
use leasehold_support::history::now;

use crate::mutex;
use crate::store::Content;
use crate::topology::Topology;
use crate::worker::{LEASE, Worker};

/// How long the server may take.
const REPLY: Duration = Duration::from_millis(300);

pub(crate) fn turn(worker: &mut Worker<'_>, object: &str) {
    let options = LockOptions::new().lease(Lease::renewed(LEASE));
    let lock = worker.client.mutex_with(object, options).expect("valid settings");
    let Some(guard) = mutex::take(worker, &lock, object) else { return };
    let (set, value) = (format!("set:{object}"), worker.value());
    worker.call("add", &set, format_args!(" value={value}"));
    let before = worker.store.read(&set);
    if worker.rng.u8(..4) == 0 {
        worker.pause(5_000);
    }
    // As a careful program does, which cannot know what happens between this and the write.
    if guard.is_valid() {
        if worker.rng.u8(..4) == 0 {
            // A function that takes the lock which its caller has.
            drop(lock.try_lock());
        }
        worker.store.write(&set, &before.with(&value));
        worker.added(now(), &set, &before);
    } else {
        worker.line(now(), "no", "add", &set, format_args!(" lost=yes"));
    }
    worker.change_now(object, guard.fencing_token().get());
    worker.stay(object, &guard);
    worker.release("release", object, guard);
}

pub(crate) fn transaction_turn(worker: &mut Worker<'_>, object: &str) {
    let options = worker.mutex_options();
    let lock = worker.client.mutex_with(object, options).expect("valid settings");
    let Some(guard) = mutex::take(worker, &lock, object) else { return };
    // Of the lock's slot.
    let (set, value) = (format!("transaction:{{{object}}}"), worker.value());
    worker.call("add", &set, format_args!(" value={value}"));
    match read(worker, &guard, &set) {
        None => worker.line(now(), "no", "add", &set, format_args!(" read=no")),
        Some(before) => {
            if worker.rng.u8(..4) == 0 {
                worker.pause(5_000);
            }
            let written = guard.transaction(|pipe| {
                pipe.cmd("SET").arg(&set).arg(before.with(&value)).arg("EX").arg(600);
            });
            let at = now();
            match written {
                Ok(replies) if replies.first() == Some(&Value::Okay) => {
                    worker.added(at, &set, &before);
                }
                Ok(_) => worker.line(at, "no", "add", &set, format_args!(" refused=yes")),
                Err(error) => worker.failed("add", &set, &error),
            }
        }
    }
    worker.change(object, guard.fencing_token().get());
    worker.stay(object, &guard);
    worker.release("release", object, guard);
}

/// Reads a set from the server that has the lock, or returns `None` if that does not reply. Where that is one of several, a
/// transaction finds it.
fn read(worker: &Worker<'_>, guard: &Guard, set: &str) -> Option<Content> {
    let address = worker.address;
    if address.topology == Topology::Server {
        return read_from(&address.urls[0], set);
    }
    let replies = guard.transaction(|pipe| _ = pipe.cmd("GET").arg(set)).ok()?;
    match replies.into_iter().next() {
        Some(Value::Nil) => Some(Content(String::new())),
        Some(Value::BulkString(text)) => String::from_utf8(text).ok().map(Content),
        _ => None,
    }
}

fn read_from(url: &str, set: &str) -> Option<Content> {
    let client = redis::Client::open(url).expect("a URL");
    let mut connection = client.get_connection_with_timeout(REPLY).ok()?;
    connection.set_read_timeout(Some(REPLY)).ok()?;
    connection.set_write_timeout(Some(REPLY)).ok()?;
    let text: Option<String> = redis::cmd("GET").arg(set).query(&mut connection).ok()?;
    Some(Content(text.unwrap_or_default()))
}
