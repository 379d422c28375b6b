//! Waiting in Redis's queue, process by process. A client of its own stands for a process; where a
//! process must die or stop, it is a real one.
//!
//! | module | what it is about |
//! | --- | --- |
//! | `order` | who is served when, and how a wait ends |
//! | `dead` | waiters that were killed, stopped or forgotten, and servers without memory |
//! | `late` | requests and answers that are lost, late or out of place |
//! | `grant` | what is handed over, and what tells of it |
//! | `script` | the scripts alone, with more waiters than any crowd |
//! | `replica` | the same, with a waiter that listens at a replica |

mod dead;
mod grant;
mod late;
mod order;
mod replica;
mod script;

use std::time::Duration;

use crate::common::queue::waiting;
use crate::common::{ask, ms, open_at, renewed, until};
use leasehold_support::child::{hear, role, tell};
use leasehold_support::{Child, Server};

/// Rule 8: a waiter shows itself this often, …
const HEARTBEAT: Duration = ms(1_000);
/// … and may claim a lock for this long (2 heartbeats + the command time-out).
const CLAIM: Duration = ms(3_000);
/// What came with a message, and was not found by the next heartbeat.
const AT_ONCE: Duration = ms(700);

fn members(server: &Server, name: &str) -> Vec<String> {
    ask(server, &["ZRANGE", &format!("{{{name}}}:queue"), "0", "-1"])
}

fn owner(server: &Server, name: &str) -> String {
    ask::<Option<String>>(server, &["GET", name]).unwrap_or_default()
}

/// Waits until so many stand in the queue.
#[track_caller]
fn until_waiting(server: &Server, name: &str, count: usize) {
    until("they queue up", || waiting(server, name) == count);
}

/// A lock that a foreign library or a shell holds.
fn foreign_hold(server: &Server, name: &str, ttl: u64) {
    ask::<()>(server, &["SET", name, "foreign", "NX", "PX", &ttl.to_string()]);
}

/// A process that waits for a lock and tells when it has it.
fn waiter_process(server: &Server, name: &str) -> Child {
    let builder =
        Child::role("waiter").test("queue::roles").env("URL", server.url()).env("NAME", name);
    builder.start().unwrap()
}

/// What the children of this file run; nothing in the process that people started.
#[test]
fn roles() {
    let Some(role) = role() else { return };
    let (url, name) = (std::env::var("URL").unwrap(), std::env::var("NAME").unwrap());
    let client = open_at(url);
    match role.as_str() {
        "waiter" => {
            let guard = client.mutex(name).unwrap().lock().unwrap();
            tell(&format!("has {}", guard.fencing_token().get()));
            hear();
            guard.release().unwrap();
        }
        "holder" => {
            let guard = client.mutex_with(name, renewed(5_000)).unwrap().lock().unwrap();
            tell("has");
            hear();
            drop(guard);
        }
        other => panic!("unknown role {other}"),
    }
}
