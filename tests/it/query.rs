//! Commands of the user's own, and locks of a name whatever their kind.

use crate::common::{ask, open, open_at, patient, server};
use leasehold::redis::{self, FromRedisValue as _};
use leasehold::{Inspection, LockClient};
use leasehold_support::{Action, Cluster, Fault, Proxy};

fn kinds(client: &LockClient, name: &str) -> Vec<(&'static str, usize)> {
    let lock = |lock: leasehold::ListedLock| (lock.kind(), lock.inspection().holders().len());
    client.locks_named(name).unwrap().into_iter().map(lock).collect()
}

#[test]
fn lock_is_found_by_its_name_whatever_its_kind() {
    let server = server();
    let client = open(&server);
    let _mutex = client.mutex("a").unwrap().lock().unwrap();
    let _reentrant = client.reentrant("b").unwrap().lock().unwrap();
    let permits = client.semaphore("c", 2).unwrap();
    let _permits = [permits.acquire().unwrap(), permits.acquire().unwrap()];
    let _reader = client.rw_lock("d").unwrap().read().unwrap();
    ask::<()>(&server, &["SET", "e", "someone", "PX", "600000"]);
    assert_eq!(kinds(&client, "a"), [("mutex", 1)]);
    assert_eq!(kinds(&client, "b"), [("reentrant lock", 1)]);
    assert_eq!(kinds(&client, "c"), [("semaphore", 2)]);
    assert_eq!(kinds(&client, "d"), [("read-write lock", 1)]);
    assert_eq!(kinds(&client, "e"), [("mutex", 1)]);
    assert_eq!(kinds(&client, "f"), [], "it is free");
    ask::<()>(&server, &["RPUSH", "g", "x"]);
    assert!(client.locks_named("g").unwrap_err().is_wrong_type());
    assert!(client.locks_named("").unwrap_err().is_config());
    // Not the whole, in which the leases' ends are: time passes between the two.
    let outline = |it: &Inspection| {
        let owners = it.holders().iter().map(|holder| holder.owner().to_vec());
        (owners.collect::<Vec<_>>(), it.permits(), it.waiting())
    };
    let seen = client.locks_named("c").unwrap();
    assert_eq!(outline(seen[0].inspection()), outline(&permits.inspect().unwrap()));
}

#[test]
fn user_of_one_kind_finds_its_locks_by_their_names() {
    let server = server();
    let client = open(&server);
    let rule = "on nopass resetchannels ~* +eval +evalsha +time +get +pttl +zrange +zcount +client|setname";
    let words: Vec<&str> =
        ["ACL", "SETUSER", "mutexes"].into_iter().chain(rule.split(' ')).collect();
    ask::<()>(&server, &words);
    let user = open_at(format!("{}?user=mutexes&pass=x", server.unix_url()));
    assert_eq!(kinds(&user, "a"), []);
    let _mutex = client.mutex("a").unwrap().lock().unwrap();
    assert_eq!(kinds(&user, "a"), [("mutex", 1)]);
    // Its kind is none of those that it may see.
    let _reentrant = client.reentrant("b").unwrap().lock().unwrap();
    assert!(user.locks_named("b").unwrap_err().is_denied());
}

#[test]
fn lock_with_a_prefix_is_found_by_its_short_name() {
    let server = server();
    let client = patient(LockClient::builder(server.url())).name_prefix("shop:").build().unwrap();
    let _guard = client.mutex("a").unwrap().lock().unwrap();
    assert_eq!(client.locks_named("a").unwrap()[0].name(), b"a");
    let key = client.query("a", redis::cmd("EXISTS").arg("shop:a")).unwrap();
    assert_eq!(bool::from_redis_value(key).ok(), Some(true));
}

#[test]
fn query_returns_the_reply_or_the_servers_error() {
    let server = server();
    let client = open(&server);
    let info = client.query("a", redis::cmd("INFO").arg("server")).unwrap();
    assert!(String::from_redis_value(info).unwrap().contains("redis_version:"));
    let refused = client.query("a", redis::cmd("INCR").arg("a").arg("b")).unwrap_err();
    assert!(refused.is_refused(), "{refused}");
    ask::<()>(&server, &["ACL", "SETUSER", "default", "-config"]);
    assert!(
        client.query("a", redis::cmd("CONFIG").arg("GET").arg("save")).unwrap_err().is_denied()
    );
}

#[test]
fn query_refuses_commands_that_change_the_connection() {
    let server = server();
    let client = open(&server);
    for name in ["", "select", "MULTI", "Subscribe", "CLIENT", "AUTH"] {
        let error = client.query("a", redis::cmd(name).arg("1")).unwrap_err();
        assert!(error.is_config() && error.to_string().contains("query"), "{error}");
    }
    assert_eq!(server.commands().calls("select"), 0);
}

/// A command may do something, so that it must not be sent again where no reply came.
#[test]
fn query_without_a_reply_is_not_sent_again() {
    let server = server();
    let proxy = Proxy::start(&server).unwrap();
    let client = open_at(proxy.url());
    let append = || client.query("a", redis::cmd("APPEND").arg("log").arg("x"));
    append().unwrap();
    let lost = proxy.add(Fault::request("APPEND", Action::LoseReply));
    let error = append().unwrap_err();
    assert!(error.is_unknown_outcome() && lost.fired() == 1, "{error}");
    assert_eq!(ask::<String>(&server, &["GET", "log"]), "xx");
}

#[test]
fn query_goes_to_the_node_of_the_name() {
    let cluster = Cluster::start(3, 0).expect("a cluster");
    let client = patient(LockClient::builder(&cluster.urls()[0]).cluster(&cluster.urls()[1..]))
        .build()
        .unwrap();
    for home in 0..3 {
        let name = cluster.name_at(home, "n");
        let reply = client.query(&name, redis::cmd("CLUSTER").arg("MYID")).unwrap();
        assert_eq!(String::from_redis_value(reply).unwrap(), cluster.id(home));
    }
}
