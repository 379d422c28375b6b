//! Credentials that a program provides at each connection, and a password that is rotated under it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::common::process::in_own_process;
use crate::common::{SOON, ask, ms, names, renewed, until};
use leasehold::{Credentials, LockClient, LockClientBuilder, QuorumClient};
use leasehold_support::{Cluster, Group, Server};

/// A password that rotates, and how often it was asked for.
#[derive(Clone, Default)]
struct Vault {
    password: Arc<Mutex<String>>,
    asked: Arc<AtomicU64>,
}

impl Vault {
    fn of(password: &str) -> Vault {
        let vault = Vault::default();
        vault.put(password);
        vault
    }

    fn put(&self, password: &str) {
        *self.password.lock().unwrap() = password.to_owned();
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// The empty password stands for a vault that is sealed.
    fn get(&self) -> Result<Credentials, Box<dyn std::error::Error + Send + Sync>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let password = self.password.lock().unwrap().clone();
        assert_ne!(password, "panic");
        if password.is_empty() {
            Err("the vault\nis sealed".into())
        } else {
            Ok(Credentials::new("locks", password))
        }
    }

    fn builder(&self, url: &str) -> LockClientBuilder {
        let vault = self.clone();
        LockClient::builder(url).credentials(move || vault.get())
    }
}

fn tcp(password: &str) -> Server {
    let server = Server::builder().tcp().start().expect("a server");
    set_password(&server, password);
    server
}

/// Makes this the only password of the user, and closes its connections.
fn set_password(server: &Server, password: &str) {
    let password = format!(">{password}");
    ask::<()>(server, &["ACL", "SETUSER", "locks", "reset", "on", &password, "~*", "&*", "+@all"]);
    ask::<()>(server, &["CLIENT", "KILL", "USER", "locks"]);
}

#[test]
fn lease_survives_a_rotation_of_the_password() {
    let (server, vault) = (tcp("first"), Vault::of("first"));
    let client = vault.builder(&server.tcp_url()).build().unwrap();
    let guard = client.mutex_with("x", renewed(6_000)).unwrap().lock().unwrap();
    let asked = vault.asked();
    vault.put("second");
    set_password(&server, "second");
    // Between two renewals it passes this moment downwards, and with a renewal upwards.
    let middle = ms(5_000);
    until("time passes", || guard.remaining() < middle);
    until("it is renewed", || guard.remaining() > middle);
    assert!(vault.asked() > asked);
    guard.check().unwrap();
    guard.release().unwrap();
    assert_eq!(server.error_count("WRONGPASS"), 0);
}

/// The server knows the new password before the program does: refused credentials are asked for anew, by each
/// renewal and each call.
#[test]
fn refused_credentials_do_not_lock_a_rotated_client_out() {
    let (server, vault) = (tcp("first"), Vault::of("first"));
    let client = vault.builder(&server.tcp_url()).build().unwrap();
    let other = LockClient::open(server.url()).unwrap();
    let guard = client.mutex_with("x", renewed(9_000)).unwrap().lock().unwrap();
    // It listens, too.
    let held = other.mutex("y").unwrap().lock().unwrap();
    assert!(client.mutex("y").unwrap().try_lock_for(ms(300)).unwrap().is_none());

    set_password(&server, "second");
    let left = guard.remaining();
    until("a renewal is refused", || server.error_count("WRONGPASS") > 0);
    let lock = client.mutex("z").unwrap();
    // The first call may find a connection that was closed.
    until("a call is refused", || lock.try_lock().is_err_and(|error| error.is_denied()));
    vault.put("second");
    until("it is renewed", || guard.remaining() > left);
    guard.check().unwrap();

    // It listens again, and is handed the lock.
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| client.mutex("y").unwrap().lock().unwrap().release());
        until("it waits", || ask::<u32>(&server, &["ZCARD", "{y}:queue"]) == 1);
        held.release().unwrap();
        waits.join().unwrap().unwrap();
    });
    until("it listens again", || {
        ask::<String>(&server, &["CLIENT", "LIST", "TYPE", "PUBSUB"]).contains("user=locks")
    });
    guard.release().unwrap();
}

#[test]
fn failing_provider_is_an_outage_that_ends_with_it() {
    let (server, vault) = (tcp("first"), Vault::of(""));
    let client = vault.builder(&server.tcp_url()).build().unwrap();
    let lock = client.mutex("x").unwrap();
    for (password, text) in
        [("", "the provider of credentials failed: the vault\\nis sealed"), ("panic", "panicked")]
    {
        vault.put(password);
        // A caller may be told of an attempt that began before.
        let mut texts = Vec::new();
        while texts.len() < 2 || !texts.last().is_some_and(|last: &String| last.contains(text)) {
            let error = lock.try_lock().unwrap_err();
            assert!(error.is_unreachable() && error.is_transient(), "{error:?}");
            texts.push(error.to_string());
            assert!(texts.len() < 20, "{texts:?}");
        }
        let last = texts.pop().expect("some");
        assert!(last.contains("look why"), "{last}");
    }
    // A wait rides it out, as it does an outage of the server.
    std::thread::scope(|scope| {
        let asked = vault.asked();
        let waits = scope.spawn(|| lock.lock().unwrap().release());
        until("it tries", || vault.asked() > asked);
        vault.put("first");
        waits.join().unwrap().unwrap();
    });
}

#[test]
fn every_node_of_a_cluster_is_given_the_credentials() {
    let (cluster, vault) = (Cluster::start(3, 0).unwrap(), Vault::of("first"));
    cluster.masters().iter().for_each(|server| set_password(server, "first"));
    let urls: Vec<String> = cluster.masters().iter().map(Server::tcp_url).collect();
    let client = vault.builder(&urls[0]).cluster(&urls[1..]).build().unwrap();
    let guards: Vec<_> = (0..3)
        .map(|node| client.mutex(cluster.name_at(node, "x")).unwrap().lock().unwrap())
        .collect();
    vault.put("second");
    cluster.masters().iter().for_each(|server| set_password(server, "second"));
    for guard in guards {
        until("its node is reached", || guard.check().is_ok());
        guard.release().unwrap();
    }
}

#[test]
fn every_server_of_a_quorum_is_given_the_credentials() {
    let (servers, vault) = ([tcp("first"), tcp("first"), tcp("first")], Vault::of("first"));
    let given = vault.clone();
    let builder = QuorumClient::builder(servers.iter().map(Server::tcp_url))
        .node_timeout(ms(2_000))
        .keeps_data(true)
        .credentials(move || given.get());
    let client = builder.build().unwrap();
    until("it works", || client.mutex("x").unwrap().try_lock().is_ok_and(|guard| guard.is_some()));
    assert!(vault.asked() >= 3);
}

/// The sentinels have users of their own, which a program that rotates the master's need not know.
#[test]
fn master_is_given_the_credentials_and_sentinels_are_not() {
    let (group, vault) = (Group::start(0, SOON).unwrap(), Vault::of("first"));
    set_password(&group.servers[0], "first");
    let sentinels = group.sentinels.iter().map(Server::tcp_url);
    let client = vault.builder("redis://mymaster").sentinels(sentinels).build().unwrap();
    client.mutex("x").unwrap().lock().unwrap().release().unwrap();
    assert!(vault.asked() > 0);
}

#[test]
fn credentials_beside_a_password_are_rejected() {
    let vault = Vault::of("first");
    let secret = "redis://locks:s3cret@localhost";
    let rejected = ["credentials", "beside a password", "one of the two"];
    names(&vault.builder(secret).build().unwrap_err(), rejected);
    let error = vault.builder(secret).sentinels(["redis://a"]).build().unwrap_err();
    names(&error, rejected);
    let error = vault.builder("redis://localhost").cluster([secret]).build().unwrap_err();
    names(&error, rejected);
    // A sentinel's password is its own.
    vault.builder("redis://mymaster").sentinels([secret]).build().unwrap();
    let builder = QuorumClient::builder([secret]).credentials(move || vault.get());
    names(&builder.build().unwrap_err(), rejected);
}

static LINES: Mutex<String> = Mutex::new(String::new());

struct All;

impl log::Log for All {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        *lines += &format!("{}\n", record.args());
    }

    fn flush(&self) {}
}

#[test]
fn provided_password_is_in_no_log_line_error_or_debug() {
    in_own_process!();
    log::set_logger(&All).expect("no other logger");
    log::set_max_level(log::LevelFilter::Trace);
    let (server, vault) = (tcp("first"), Vault::of("s3cret"));
    let builder = vault.builder(&server.tcp_url());
    let mut shown = format!("{builder:?} {:?}", vault.get().unwrap());
    let client = builder.build().unwrap();
    let lock = client.mutex("x").unwrap();
    until("it is denied", || {
        let error = lock.try_lock().unwrap_err();
        shown += &format!("{error} {error:?} {client:?} {lock:?}");
        error.is_denied()
    });
    until("it is logged", || LINES.lock().unwrap().contains("WRONGPASS"));
    shown += &LINES.lock().unwrap();
    assert!(!shown.contains("s3cret"), "{shown}");
}
