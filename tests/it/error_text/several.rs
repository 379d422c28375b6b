//! Sentinels, a cluster, a quorum.

use std::time::Duration;

use leasehold::{Error, LockClient, QuorumClient};
use leasehold_support::{Action, Cluster, Fault, Group, Proxy, Server};

use super::given_up;
use super::row::{Row, row};
use crate::common::{SOON, ms, open_at, patient};

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = sentinels();
    rows.extend(cluster());
    rows.extend(quorum());
    rows
}

fn sentinels() -> Vec<Row> {
    let group = Group::start(0, Duration::from_secs(30)).unwrap();
    let urls = group.sentinel_urls();
    let build = |url: &str, sentinels: &[String]| {
        let builder = LockClient::builder(url).sentinels(sentinels).connect_now(true);
        builder.connect_timeout(SOON).build().unwrap_err()
    };
    let down = ["redis://127.0.0.1:1", "redis://127.0.0.1:2"].map(str::to_owned);
    vec![
        row(
            "the address of a sentinel as that of Redis",
            "use .sentinels(…)",
            patient(LockClient::builder(&urls[0])).connect_now(true).build().unwrap_err(),
        ),
        row(
            "an address where the master's name should be",
            "write the name",
            build(&urls[0], &urls),
        ),
        row("a wrong name of the master", "correct it", build("redis://yourmaster", &urls)),
        row("no sentinel is running", "start them", build("redis://mymaster", &down)),
        row("the only sentinel hangs", "look at it", silent(&group)),
        row(
            "sentinels that have an old password of the master",
            "correct it at the sentinels",
            considered_down(&group),
        ),
    ]
}

fn silent(group: &Group) -> Error {
    let proxy = Proxy::to_addr(group.sentinels[0].addr()).unwrap();
    proxy.black_hole();
    given_up(|| {
        let builder = LockClient::builder("redis://mymaster").sentinels([proxy.url()]);
        builder.connect_timeout(ms(300)).connect_now(true).build().unwrap_err()
    })
}

/// The sentinels agree that the master is down.
fn considered_down(group: &Group) -> Error {
    let proxy = Proxy::to_addr(group.sentinels[0].addr()).unwrap();
    let port = group.servers[0].addr().port().to_string();
    let fields =
        ["ip", "127.0.0.1", "port", &port, "flags", "s_down,o_down,master", "config-epoch", "0"];
    let fields: String =
        fields.iter().map(|field| format!("${}\r\n{field}\r\n", field.len())).collect();
    let reply = format!("*8\r\n{fields}");
    proxy.add(Fault::reply("config-epoch", Action::Garbage(reply.into())).sticky());
    let builder = LockClient::builder("redis://mymaster").sentinels([proxy.url()]);
    builder.connect_timeout(SOON).connect_now(true).build().unwrap_err()
}

fn cluster() -> Vec<Row> {
    let alone = Server::builder().tcp().start().unwrap();
    let error = LockClient::builder(alone.tcp_url()).cluster([""; 0]).connect_now(true);
    let mut rows = vec![row(
        "`.cluster(…)` for a server that is alone",
        "leave it out",
        error.build().unwrap_err(),
    )];
    let cluster = Cluster::start(3, 0).unwrap();
    let plain = open_at(&cluster.urls()[0]);
    // A name of its own: the table shows it.
    let there = cluster.name_at(1, "orders");
    let error = plain.mutex(&there).unwrap().lock().unwrap_err();
    rows.push(named("a node of a cluster without `.cluster(…)`", "add it", error, &there));
    let client = patient(LockClient::builder(&cluster.urls()[0]).cluster(&cluster.urls()[1..]))
        .build()
        .unwrap();
    let guard = client.mutex(&there).unwrap().lock().unwrap();
    let elsewhere = cluster.name_at(2, "sales");
    let error = guard.transaction(|pipe| _ = pipe.cmd("INCR").arg(&elsewhere)).unwrap_err();
    rows.push(named(
        "a key of another slot in a transaction",
        "use the lock's hash tag",
        error,
        &there,
    ));
    rows
}

fn named(did: &'static str, to_do: &'static str, error: leasehold::Error, name: &str) -> Row {
    row(did, to_do, error).replacing(name, "NAME")
}

fn quorum() -> Vec<Row> {
    let servers: Vec<Server> = (0..3).map(|_| Server::builder().tcp().start().unwrap()).collect();
    let urls: Vec<String> = servers.iter().map(Server::tcp_url).collect();
    let builder = || QuorumClient::builder(&urls).keeps_data(true).node_timeout(SOON);
    let guard = builder().build().unwrap().mutex("orders:42").unwrap().lock().unwrap();
    let error = guard.transaction(|pipe| _ = pipe.cmd("INCR").arg("sales")).unwrap_err();
    let mut rows = vec![row("a transaction in a quorum", "check the fencing token there", error)];
    drop(guard);
    let same = [servers[0].tcp_url(), servers[0].unix_url(), servers[1].tcp_url()];
    let error =
        QuorumClient::builder(same).node_timeout(SOON).connect_now(true).build().unwrap_err();
    rows.push(row("two addresses of one server in a quorum", "name each server once", error));
    servers[1].kill();
    servers[2].kill();
    let error = builder().connect_now(true).build().unwrap_err();
    rows.push(row("too few servers of a quorum are up", "start them", error));
    rows
}
