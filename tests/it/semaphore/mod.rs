//! Semaphores on a real server: limits, slots, order, resize.
//!
//! | module | what its tests are about |
//! | --- | --- |
//! | `fault` | faults of the network |
//! | `hold` | what a permit is while it is held, and how it is lost |
//! | `limit` | what is asked for, declared and in force |
//! | `order` | who gets permits, and who waits |
//! | `pass` | permits that pass between threads of a process, and what all that costs |
//! | `process` | several processes |

mod fault;
mod hold;
mod limit;
mod order;
mod pass;
mod process;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use leasehold::redis::{Pipeline, Value};
use leasehold::{Permit, Semaphore};

use crate::common::{open, until};
use leasehold_support::Server;

const SECOND: Duration = Duration::from_secs(1);

/// Waits until so many processes stand in the line.
#[track_caller]
fn in_line(gpus: &Semaphore, count: usize) {
    until("they stand in the line", || gpus.inspect().unwrap().waiting() == Some(count));
}

fn take(gpus: &Semaphore, count: usize) -> Vec<Permit> {
    (0..count).map(|_| gpus.acquire().unwrap()).collect()
}

#[test]
fn permits_have_the_lowest_free_slots() {
    let server = Server::start().unwrap();
    let client = open(&server);
    let gpus = client.semaphore("gpu", 3).unwrap();
    let permits: Vec<Permit> = (0..3).map(|_| gpus.acquire().unwrap()).collect();
    assert_eq!(permits.iter().map(Permit::slot).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(gpus.try_acquire().unwrap().is_none());
    assert_eq!(gpus.last_blocker().unwrap().pid(), Some(std::process::id()));
    assert_eq!((gpus.available().unwrap(), gpus.limit().unwrap()), (0, 3));
    let mut permits = permits.into_iter();
    let (_first, second, _third) = (permits.next(), permits.next().unwrap(), permits.next());
    second.release().unwrap();
    assert_eq!(gpus.try_acquire().unwrap().unwrap().slot(), 1);
}

#[test]
fn waiter_gets_the_permit_of_a_released_one() {
    let server = Server::start().unwrap();
    let (here, there) = (open(&server), open(&server));
    let held = here.semaphore("gpu", 1).unwrap().acquire().unwrap();
    let waits = thread::spawn(move || {
        let permit = there.semaphore("gpu", 1).unwrap().acquire().unwrap();
        (permit.slot(), permit.fencing_token())
    });
    let gpus = here.semaphore("gpu", 1).unwrap();
    in_line(&gpus, 1);
    let token = held.fencing_token();
    held.release().unwrap();
    let (slot, later) = waits.join().unwrap();
    assert!(slot == 0 && later > token);
}

#[test]
fn another_limit_is_an_error_that_names_both() {
    let server = Server::start().unwrap();
    let client = open(&server);
    let _held = client.semaphore("gpu", 4).unwrap().acquire().unwrap();
    let other = client.semaphore("gpu", 3).unwrap();
    let error = other.try_acquire().unwrap_err();
    assert!(error.is_config(), "{error}");
    let text = error.to_string();
    assert!(text.contains("4 permits") && text.contains("3 permits"), "{text}");
    assert!(other.resize(9).unwrap_err().is_config());
}

#[test]
fn resize_grants_waiters_and_refuses_those_above_it() {
    let server = Server::start().unwrap();
    let (client, other) = (open(&server), open(&server));
    let gpus = client.semaphore("gpu", 4).unwrap();
    let held: Vec<Permit> = (0..4).map(|_| gpus.acquire().unwrap()).collect();
    let (sender, outcomes) = mpsc::channel();
    let wait = thread::spawn(move || {
        let gpus = other.semaphore("gpu", 4).unwrap();
        sender.send(gpus.acquire_many(3).map(|permit| permit.slots().to_vec())).unwrap();
    });
    in_line(&gpus, 1);
    gpus.resize(2).unwrap();
    let error = outcomes.recv_timeout(5 * SECOND).unwrap().unwrap_err();
    assert!(error.is_config() && error.to_string().contains("limit in force"), "{error}");
    wait.join().unwrap();
    assert_eq!((gpus.limit().unwrap(), gpus.available().unwrap()), (2, 0));
    gpus.resize(5).unwrap();
    assert_eq!(gpus.try_acquire().unwrap().unwrap().slot(), 4);
    drop(held);
}

#[test]
fn permits_pass_between_threads_without_commands() {
    let server = Server::start().unwrap();
    let client = open(&server);
    let gpus = client.semaphore("gpu", 2).unwrap();
    let held: Vec<Permit> = (0..2).map(|_| gpus.acquire().unwrap()).collect();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let gpus = gpus.clone();
            thread::spawn(move || {
                for _ in 0..20 {
                    drop(gpus.acquire().unwrap());
                }
            })
        })
        .collect();
    while held[0].waiters() < 8 {
        thread::yield_now();
    }
    server.reset_stats();
    drop(held);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let sent = server.command_calls(&["evalsha", "eval"]);
    // Without that each permit takes two. How many are passed on depends on when the message comes that one of them waits.
    assert!(sent < 160, "{sent} requests for 160 permits");
    assert_eq!(gpus.available().unwrap(), 2);
}

#[test]
fn transaction_applies_while_held_and_not_after() {
    let server = Server::start().unwrap();
    let client = open(&server);
    let gpus = client.semaphore("gpu", 2).unwrap();
    let (permit, _other) = (gpus.acquire().unwrap(), gpus.acquire().unwrap());
    let replies = permit
        .transaction(|pipe| {
            pipe.cmd("SET").arg("stock").arg(41).cmd("INCR").arg("stock").cmd("PING");
            pipe.cmd("RPUSH").arg("stock").arg("x");
        })
        .unwrap();
    assert_eq!(replies[..3], [Value::Okay, Value::Int(42), Value::SimpleString("PONG".into())]);
    assert!(matches!(replies[3], Value::ServerError(_)), "{replies:?}");
    for odd in [&["NOSUCH", "x"][..], &["SET", "stock"], &["NOSUCH"], &["GET"], &["CONFIG"]] {
        let add = |pipe: &mut Pipeline| {
            pipe.cmd("DEL").arg("stock").cmd(odd[0]).arg(&odd[1..]);
        };
        assert!(permit.transaction(add).unwrap_err().is_refused());
    }
    let holders = gpus.holders().unwrap();
    let mine = holders.iter().find(|holder| holder.slots() == permit.slots()).unwrap();
    assert!(gpus.force_release(mine).unwrap() && !gpus.force_release(mine).unwrap());
    let error = permit.transaction(|pipe| _ = pipe.cmd("DEL").arg("stock")).unwrap_err();
    assert!(error.is_lost() && permit.check().unwrap_err().is_lost());
    let stock: u64 =
        leasehold::redis::cmd("GET").arg("stock").query(&mut server.connection()).unwrap();
    assert_eq!(stock, 42);
}
