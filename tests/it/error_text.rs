//! What a user reads who does something wrong: every text is provoked for real and compared with
//! `tests/it/error_text/table.md`, which is for reading too. A difference prints the new rows.

mod row;
mod server;
mod setting;
mod several;
mod usage;

use std::sync::mpsc;
use std::thread;

use crate::common::{SOON, ms};
use leasehold::{Error, LockClient, LockOptions};
use leasehold_support::Server;
use row::Row;

const TABLE: &str = include_str!("error_text/table.md");

#[test]
fn error_texts_match_the_table() {
    let rows: Vec<Row> = thread::scope(|scope| {
        let groups = [
            scope.spawn(setting::rows),
            scope.spawn(server::rows),
            scope.spawn(several::rows),
            scope.spawn(usage::rows),
        ];
        groups.into_iter().flat_map(|group| group.join().expect("no error of the test")).collect()
    });
    let known: Vec<&str> = TABLE.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    let provoked = rows.iter().filter(|row| !row.is_skipped()).map(Row::line);
    let new: Vec<String> = provoked.filter(|line| !known.contains(&line.as_str())).collect();
    let is_mine = |line: &&&str| rows.iter().any(|row| row.is_of(line));
    let others: Vec<_> = known.iter().filter(|line| !is_mine(line)).collect();
    // Those of the other state of the feature `tls` are in the table too.
    let stale: Vec<_> = others.iter().filter(|line| !row::is_of_other_build(line)).collect();
    assert!(
        new.is_empty() && stale.is_empty(),
        "new rows:\n{}\nrows that nothing provokes: {stale:#?}",
        new.join("\n")
    );
}

/// The case of the silent server: all callers are told that it is silent, and none to raise `max_size`.
#[test]
fn silent_server_does_not_look_like_a_small_pool() {
    let server = Server::builder().tcp().start().unwrap();
    let client = LockClient::builder(server.tcp_url()).max_size(4).max_wait(ms(300));
    let client = client.command_timeout(SOON).give_up_after(ms(100)).build().unwrap();
    fill(&client, 4);
    server.pause();
    let (sender, receiver) = mpsc::channel();
    let errors: Vec<Error> = thread::scope(|scope| {
        for number in 0..30 {
            let (lock, sender) = (client.mutex(format!("x{number}")).unwrap(), sender.clone());
            scope.spawn(move || sender.send(lock.is_locked()).unwrap());
        }
        // Those on the connections themselves wait until it is over.
        let errors = (0..26).map(|_| receiver.recv_timeout(SOON).unwrap().unwrap_err()).collect();
        server.resume();
        errors
    });
    for error in errors {
        assert!(error.is_unreachable() && !error.is_pool_exhausted(), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("all 4 connections to") && !text.contains("max_size"), "{text}");
        assert!(text.contains(&server.addr().to_string()), "{text}");
    }
}

/// The error of a caller that gives up. The thread that connects for it has as much time, and may come first where the
/// machine has other work.
fn given_up(provoke: impl Fn() -> Error) -> Error {
    meant(|error| error.to_string().starts_with("gave up"), provoke)
}

/// The first error of this kind. On a machine that has other work the call may have been slow, and be told that instead.
fn meant(is_meant: impl Fn(&Error) -> bool, provoke: impl Fn() -> Error) -> Error {
    (0..9).map(|_| provoke()).find(is_meant).unwrap_or_else(provoke)
}

/// Makes so many connections. Commands that wait for replicas do not share one.
fn fill(client: &LockClient, connections: usize) {
    let options = LockOptions::new().min_replicas(1, ms(200));
    thread::scope(|scope| {
        for number in 0..connections {
            let lock = client.mutex_with(format!("fill{number}"), options).unwrap();
            scope.spawn(move || lock.try_lock().map(drop));
        }
    });
}
