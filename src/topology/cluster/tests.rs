//! Which calls wait for a refresh of the map.

use std::net::TcpListener;
use std::time::Duration;

use super::NodeSettings;
use super::directory::Directory;
use crate::base::sync::Arc;
use crate::base::thread::Threads;
use crate::base::time::{BootClock, Clock as _};
use crate::topology::cluster::address::Address;
use crate::wire::endpoint;
use crate::wire::manager::Timeouts;
use crate::wire::pool::PoolSettings;
use crate::wire::transport::Lane;

/// No machine pauses for so long.
const LONG: Duration = Duration::from_secs(600);

fn settings() -> NodeSettings {
    NodeSettings {
        pool: PoolSettings::default(),
        timeouts: Timeouts::both(LONG),
        quarantine: None,
        threads: Threads::of_a_new_client(),
    }
}

fn address(url: &str) -> Address {
    Address::of(&endpoint::parse(url).unwrap()).unwrap()
}

/// A forwarded port of one node may be the port that another announces.
#[test]
fn seed_does_not_stand_for_a_node_that_is_reached_elsewhere() {
    let seed = address("redis://127.0.0.1:7001");
    for (step, shown) in
        [(0, "127.0.0.1:7001"), (1, "127.0.0.1:7002 (announced as 127.0.0.1:7001)")]
    {
        let info = endpoint::parse("redis://127.0.0.1:7001").unwrap();
        let info = info.set_mapper(Arc::new(move |host, port| (host.to_owned(), port + step)));
        let seeds = vec![seed.clone()];
        let directory = Directory::new(seeds, info, settings(), Arc::new(BootClock));
        let node = directory.set_nodes(&[(0, &seed)]);
        assert_eq!(endpoint::address(node.info()), shown);
    }
}

/// The first node accepts connections and never replies. No request is sent to the second one here.
#[test]
fn call_to_a_live_node_does_not_wait_for_a_dead_one() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = address(&format!("redis://{}", silent.local_addr().unwrap()));
    let healthy = address("redis://127.0.0.1:1");
    let info = endpoint::parse("redis://127.0.0.1:1").unwrap();
    let directory = Arc::new(Directory::new(vec![], info, settings(), Arc::new(BootClock)));
    let failed = directory.set_nodes(&[(0, &dead), (1, &healthy)]);
    let before = directory.suspect(&failed);
    let deadline = BootClock.now().after(LONG * 4);
    // Callers, the worker, and calls that any node can serve.
    assert_eq!(*directory.master_of(1, Lane::Callers, deadline).unwrap().address(), healthy);
    assert_eq!(*directory.master_of(0, Lane::Worker, deadline).unwrap().address(), dead);
    assert_eq!(*directory.masters(deadline).unwrap()[0].address(), healthy);
    // A thread refreshes the map meanwhile, as the silent node sees, and has got no reply.
    let listening = silent.accept().unwrap();
    assert_eq!(directory.suspect(&failed), before);
    // A call without a usable node waits for the refresh. The silent node ends it here.
    drop((silent, listening));
    directory.ask(before, deadline).unwrap_err();
    assert!(directory.suspect(&failed) > before);
}
