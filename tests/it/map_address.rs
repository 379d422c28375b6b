//! Servers that announce addresses which lead nowhere for clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{SOON, ask, ms, names, until, within};
use leasehold::{LockClient, LockClientBuilder};
use leasehold_support::{Cluster, Group, Proxy, Server};

const NEVER: std::time::Duration = ms(600_000);
/// By the rules of names, nobody knows it.
const ANNOUNCED: &str = "node.invalid";

/// Each server's own port is announced, and a forwarded one is used; also after a fail-over.
#[test]
fn master_is_reached_at_the_mapped_address_and_errors_name_both() {
    let group = Group::start(1, NEVER).unwrap();
    let forward = |server: &Server| Proxy::to_addr(server.addr()).unwrap();
    let forwards: Arc<Vec<(u16, Proxy)>> = Arc::new(
        group.servers.iter().map(|server| (server.addr().port(), forward(server))).collect(),
    );
    let (calls, counted) = (Arc::new(AtomicU64::new(0)), Arc::clone(&forwards));
    let count = Arc::clone(&calls);
    let client = LockClient::builder("redis://mymaster")
        .sentinels(group.sentinel_urls())
        .map_address(move |host, port| {
            count.fetch_add(1, Ordering::SeqCst);
            let forward = counted.iter().find(|(announced, _)| *announced == port);
            (host.to_owned(), forward.expect("an announced port").1.addr().port())
        })
        .connect_timeout(SOON)
        .command_timeout(SOON)
        .give_up_after(SOON)
        .build()
        .unwrap();
    let lock = client.mutex("x").unwrap();
    lock.lock().unwrap().release().unwrap();
    // All connections of clients lead through the forwarded port.
    assert!(forwards[0].1.accepted() > 0 && calls.load(Ordering::SeqCst) > 0);

    ask::<()>(&group.sentinels[0], &["SENTINEL", "FAILOVER", "mymaster"]);
    within(SOON * 6, "the new master is used", || {
        lock.try_lock().is_ok_and(|guard| guard.is_some()) && forwards[1].1.accepted() > 0
    });

    forwards[0].1.refuse();
    forwards[1].1.refuse();
    forwards.iter().for_each(|(_, forward)| forward.cut());
    let mut text = String::new();
    until("it is refused", || {
        text = lock.try_lock().map_or_else(|error| error.to_string(), |_| String::new());
        text.contains("refused the connection")
    });
    let both = forwards.iter().any(|(announced, forward)| {
        text.contains(&format!("{} (announced as 127.0.0.1:{announced})", forward.addr()))
    });
    assert!(both, "{text}");
}

/// The other addresses are left as they are: sentinels announce each other, too.
#[cfg(feature = "serde")]
#[test]
fn master_is_reached_at_the_address_that_a_file_maps() {
    let group = Group::start(1, NEVER).unwrap();
    let forward = Proxy::to_addr(group.servers[0].addr()).unwrap();
    let file = serde_json::json!({
        "url": "redis://mymaster",
        "sentinels": group.sentinel_urls(),
        "map_address": { group.servers[0].addr().to_string(): forward.addr().to_string(), "[::1]:1": "b:1" },
    });
    let settings: leasehold::ClientSettings = serde_json::from_value(file).unwrap();
    let client = settings.builder().unwrap().build().unwrap();
    client.mutex("x").unwrap().lock().unwrap().release().unwrap();
    assert!(forward.accepted() > 0);
}

/// The name is announced in the map of slots and in redirections.
#[test]
fn nodes_of_a_cluster_are_reached_at_mapped_addresses() {
    let arguments = [
        ["--cluster-announce-hostname", ANNOUNCED],
        ["--cluster-preferred-endpoint-type", "hostname"],
    ];
    let cluster = Cluster::start_with(3, 0, arguments.as_flattened()).unwrap();
    let of = |builder: LockClientBuilder| {
        let urls = cluster.urls();
        builder.cluster(&urls[1..]).connect_timeout(SOON).command_timeout(SOON).give_up_after(SOON)
    };
    // Each node has heard the names of the others.
    until("the names are announced", || {
        cluster.masters().iter().all(|node| {
            let nodes: String = ask(node, &["CLUSTER", "NODES"]);
            nodes.matches(ANNOUNCED).count() == 3
        })
    });
    let map = |host: &str, port: u16| match host {
        ANNOUNCED => ("127.0.0.1".to_owned(), port),
        _ => (host.to_owned(), port),
    };
    let client = of(LockClient::builder(&cluster.urls()[0]).map_address(map)).build().unwrap();
    for node in 0..3 {
        let name = cluster.name_at(node, "x");
        client.mutex(name).unwrap().try_lock().unwrap().expect("free").release().unwrap();
    }
    // A slot moves, and the redirection names the new node by the same name.
    let name = cluster.name_at(0, "moving");
    let guard = client.mutex(&name).unwrap().lock().unwrap();
    cluster.migrate(cluster.slot(&name), 0, 1);
    guard.check().unwrap();
    guard.release().unwrap();

    let gone = &cluster.masters()[2];
    let address = gone.addr();
    gone.kill();
    let lock = client.mutex(cluster.name_at(2, "x")).unwrap();
    let both = format!("{address} (announced as {ANNOUNCED}:{})", address.port());
    until("the error names both", || {
        lock.try_lock().is_err_and(|it| it.to_string().contains(&both))
    });
}

#[test]
fn mapper_for_a_server_that_announces_nothing_is_rejected() {
    let builder = LockClient::builder("redis://localhost");
    let error = builder.map_address(|host, port| (host.to_owned(), port)).build().unwrap_err();
    names(&error, ["map_address", "one server", "sentinels or a cluster"]);
}
