//! What the threads of a client are called, as the system shows it. It is alone in its process, where
//! every other client would have threads too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;

use crate::common::process::in_own_process;
use crate::common::queue::waiting;
use crate::common::{SOON, open, patient, renewed, server, until};
use leasehold::{LockClient, QuorumClient};

/// The threads of this process that a client started: what each client has, by its number.
///
/// # Panics
///
/// If a name is cut short, or says nothing of a client.
fn threads() -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let Ok(name) = std::fs::read_to_string(task.unwrap().path().join("comm")) else { continue };
        let Some(rest) = name.trim_end().strip_prefix("lease") else { continue };
        let (role, number) =
            rest.strip_prefix('-').and_then(|rest| rest.split_once('-')).expect(rest);
        number.parse::<u16>().expect("a number");
        found.entry(number.to_owned()).or_default().insert(role.to_owned());
    }
    found
}

fn roles(roles: &[&str]) -> BTreeSet<String> {
    roles.iter().map(|&role| role.to_owned()).collect()
}

#[test]
fn thread_names_fit_and_tell_clients_apart() {
    in_own_process!();
    let server = server();
    let (called, calls) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let ended = std::sync::Mutex::new(ended);
    // Its callback thread lives until it has been seen.
    let one = patient(LockClient::builder(server.url()))
        .on_loss(move |_| {
            called.send(()).unwrap();
            let _ = ended.lock().unwrap().recv();
        })
        .build()
        .unwrap();
    let other = open(&server);
    let kept = one.mutex_with("kept", renewed(30_000)).unwrap().lock().unwrap();
    let held = other.mutex_with("held", renewed(30_000)).unwrap().lock().unwrap();
    // Each waits for the other's lock, and so begins to listen.
    for (client, name) in [(&one, "held"), (&other, "kept")] {
        let lock = client.mutex(name).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| lock.lock().map(drop));
            until("it waits in the queue", || waiting(&server, name) == 1);
            assert_eq!(lock.cancel_waits(), 1);
            assert!(waits.join().unwrap().unwrap_err().is_cancelled());
        });
    }
    other.mutex("kept").unwrap().force_release().unwrap();
    assert!(kept.check().is_err());
    calls.recv_timeout(SOON).unwrap();
    let all = threads();
    end.send(()).unwrap();
    let each: Vec<&BTreeSet<String>> = all.values().collect();
    let (busy, idle) = (roles(&["call", "conn", "wake", "work"]), roles(&["conn", "wake", "work"]));
    assert!(each.len() == 2 && each.contains(&&busy) && each.contains(&&idle), "{all:?}");
    drop((held, kept, one, other));
    // So do the threads that a client has where there are several servers.
    let sentinels = LockClient::builder("redis://master").sentinels(["redis://127.0.0.1:1"]);
    let _third = sentinels.build().unwrap();
    let quorum = QuorumClient::builder([server.url()]).keeps_data(true).build().unwrap();
    let _guard = quorum.mutex("q").unwrap().lock().unwrap();
    let sets = [roles(&["conn", "sent"]), roles(&["conn", "work"])];
    until("the others have ended", || threads().into_values().collect::<Vec<_>>() == sets);
}
