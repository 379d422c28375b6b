//! What observers are told over real servers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{PATIENCE, patient, until};
use leasehold::observe::{Acquired, Exchange, How, Reconnected, Released, Waiting};
use leasehold::{LockClient, Observer, QuorumClient};
use leasehold_support::Server;

#[derive(Default)]
struct Counts {
    /// Of calls, holds, ends and exchanges.
    events: [AtomicU32; 4],
    reconnected: Mutex<Vec<String>>,
}

impl Counts {
    fn add(&self, event: usize) {
        self.events[event].fetch_add(1, Ordering::SeqCst);
    }

    fn events(&self) -> [u32; 4] {
        self.events.each_ref().map(|count| count.load(Ordering::SeqCst))
    }

    fn servers(&self) -> Vec<String> {
        self.reconnected.lock().unwrap().clone()
    }
}

impl Observer for Counts {
    fn waiting(&self, _: &Waiting<'_>) {
        self.add(0);
    }

    fn acquired(&self, event: &Acquired<'_>) {
        assert_eq!((event.kind, event.how, event.name), ("mutex", How::Free, &b"a"[..]));
        self.add(1);
    }

    fn released(&self, _: &Released<'_>) {
        self.add(2);
    }

    fn exchange(&self, _: &Exchange) {
        self.add(3);
    }

    fn reconnected(&self, event: &Reconnected<'_>) {
        self.reconnected.lock().unwrap().push(event.server.to_owned());
    }
}

#[test]
fn connection_after_a_restart_is_told_once() {
    let server = Server::builder().tcp().start().unwrap();
    let counts = Arc::new(Counts::default());
    let builder = patient(LockClient::builder(server.tcp_url())).observer(Arc::clone(&counts));
    let client = builder.build().unwrap();
    let lock = client.mutex("a").unwrap();
    lock.lock().unwrap().release().unwrap();
    assert_eq!(counts.events(), [1, 1, 1, 2]);
    server.restart();
    lock.lock().unwrap().release().unwrap();
    until("it is told", || !counts.servers().is_empty());
    lock.lock().unwrap().release().unwrap();
    assert_eq!(counts.servers(), [server.addr().to_string()]);
}

#[test]
fn round_of_a_quorum_is_one_exchange() {
    let servers = [(); 3].map(|()| Server::start().unwrap());
    let counts = Arc::new(Counts::default());
    let builder = QuorumClient::builder(servers.iter().map(Server::url))
        .keeps_data(true)
        .node_timeout(PATIENCE);
    let client = builder.observer(Arc::clone(&counts)).build().unwrap();
    client.mutex("a").unwrap().lock().unwrap().release().unwrap();
    assert_eq!(counts.events(), [1, 1, 1, 2]);
    assert!(counts.servers().is_empty());
}
