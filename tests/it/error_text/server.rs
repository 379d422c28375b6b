//! One server that is not there, is not right, or refuses.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use leasehold::{Error, LockClient, LockOptions};

use leasehold_support::fault::Operation;
use leasehold_support::{Action, Fault, Proxy, Server, or_skip};

use super::row::{Row, row};
use super::{given_up, meant};
use crate::common::{SOON, ask, ms, open_at, patient, renewed, until};

/// How long a server may take to speak that will not.
const HASTE: std::time::Duration = ms(300);

fn start() -> Server {
    Server::builder().tcp().start().expect("a server")
}

fn open(url: impl AsRef<str>) -> Error {
    patient(LockClient::builder(url)).connect_now(true).build().unwrap_err()
}

fn lock(client: &LockClient) -> Error {
    client.mutex("orders:42").unwrap().try_lock().unwrap_err()
}

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = connecting();
    rows.extend(users());
    rows.extend(silence());
    rows.extend(states());
    rows
}

/// The error of a request that is under way when the server ends. A connection that was idle for long is looked at first,
/// and found dead: then nothing was under way.
fn stopped() -> Error {
    let provoke = || {
        let server = start();
        let builder = patient(LockClient::builder(server.tcp_url())).give_up_after(ms(100));
        let client = builder.build().unwrap();
        client.mutex("orders:42").unwrap().lock().unwrap().release().unwrap();
        server.kill();
        lock(&client)
    };
    meant(Error::is_unknown_outcome, provoke)
}

fn connecting() -> Vec<Row> {
    let server = start();
    let mut rows = vec![
        row(
            "the wrong port, or Redis is not running",
            "start Redis or correct the URL",
            open("redis://127.0.0.1:1"),
        ),
        row("a host that is not known", "correct the host", open("redis://no..host:6379")),
        row(
            "the path of a socket that is not there",
            "correct the path",
            open("unix:///no/such/redis.sock"),
        ),
        row(
            "a database that the server does not have",
            "choose a lower one",
            open(format!("{}/99", server.tcp_url())),
        ),
    ];
    rows.push(row("Redis stops in the middle", "start it again", stopped()));
    let strange = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = strange.local_addr().unwrap();
    thread::scope(|scope| {
        // As a server does that speaks TLS: an alert, and the end.
        scope.spawn(|| {
            let (mut stream, _) = strange.accept().unwrap();
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(&[0x15, 3, 3, 0, 2, 2, 70]);
        });
        rows.push(row(
            "`redis://` to a port with TLS",
            "use rediss://",
            open(format!("redis://{address}")),
        ));
    });
    #[cfg(feature = "tls")]
    {
        let server = start();
        let url = format!("rediss://{}", server.addr());
        rows.push(row(
            "`rediss://` to a port without TLS",
            "use redis://",
            LockClient::open(url).unwrap_err(),
        ));
    }
    rows
}

fn users() -> Vec<Row> {
    let server = start();
    let address = server.addr();
    let user = |name: &str, rules: &[&str]| {
        ask::<()>(&server, &[&["ACL", "SETUSER", name, "on", ">word"], rules].concat());
        format!("redis://{name}:word@{address}")
    };
    let scriptless = user("scriptless", &["~*", "&*", "+@all", "-eval", "-evalsha"]);
    let keyless = user("keyless", &["~other", "&*", "+@all"]);
    let deaf = user("deaf", &["~*", "&*", "+@all", "-subscribe"]);
    let holder = open_at(server.tcp_url());
    let _guard = holder.mutex("orders:42").unwrap().lock().unwrap();
    let keyless = open_at(keyless);
    let deaf = open_at(deaf);
    let waiting = deaf.mutex("orders:42").unwrap().try_lock_for(SOON).unwrap_err();
    ask::<()>(&server, &["CONFIG", "SET", "requirepass", "secret"]);
    vec![
        row(
            "no password where one is needed",
            "write it into the URL",
            open(format!("redis://{address}")),
        ),
        row("a wrong password", "correct it", open(format!("redis://:wrong@{address}"))),
        row("an unknown user", "correct it", open(format!("redis://nobody:word@{address}"))),
        row("a user who may not run scripts", "allow EVAL and EVALSHA", open(scriptless)),
        row("a user who may not use the key", "allow the keys", lock(&keyless)),
        row("a user who may not subscribe waits", "allow SUBSCRIBE, or spin", waiting),
    ]
}

fn silence() -> Vec<Row> {
    let hole = TcpListener::bind("127.0.0.1:0").unwrap();
    let black = format!("redis://{}", hole.local_addr().unwrap());
    let black = || {
        let builder = LockClient::builder(&*black).connect_now(true).connect_timeout(HASTE);
        builder.command_timeout(HASTE).build().unwrap_err()
    };
    let mut rows = vec![row(
        "Redis hangs when a client connects",
        "look at Redis and the network",
        given_up(black),
    )];
    let server = start();
    let proxy = Proxy::start(&server).unwrap();
    let builder = LockClient::builder(proxy.url()).max_size(1).max_wait(HASTE);
    let client = builder.command_timeout(ms(1_000)).give_up_after(ms(100)).build().unwrap();
    let working = LockClient::builder(server.tcp_url()).command_timeout(HASTE).build().unwrap();
    let mut held = None;
    until("it is held", || {
        held = working.mutex("orders:1").unwrap().try_lock().ok().flatten();
        held.is_some()
    });
    let held = held.unwrap();
    until("it is connected", || client.mutex("x").unwrap().is_locked().is_ok());
    // The second may come when the first has ended.
    let (first, second) = loop {
        let hang = proxy.add(Fault::request("orders:42", Action::Hold));
        let (first, second) = thread::scope(|scope| {
            let first = scope.spawn(|| lock(&client));
            assert!(hang.wait_fired(SOON), "the first has the connection");
            let second = client.mutex("orders:2").unwrap().is_locked();
            (first.join().unwrap(), second)
        });
        if let Err(second) = second {
            break (first, second);
        }
        hang.release();
    };
    server.pause();
    rows.push(row(
        "Redis hangs when a lock is taken",
        "look at Redis; the lock may be held",
        first,
    ));
    rows.push(row(
        "Redis hangs, and another call has the only connection",
        "look at Redis",
        second,
    ));
    let transaction = held.transaction(|pipe| _ = pipe.cmd("INCR").arg("sales")).unwrap_err();
    rows.push(row("Redis hangs before a transaction", "look at Redis", transaction));
    server.resume();
    drop(held);
    let server = start();
    let builder = LockClient::builder(server.tcp_url()).max_size(1).max_wait(ms(100));
    let client = builder.command_timeout(SOON).give_up_after(ms(50)).build().unwrap();
    until("it is connected", || client.mutex("x").unwrap().is_locked().is_ok());
    let slow = client.mutex_with("slow", renewed(30_000).min_replicas(1, ms(2_000))).unwrap();
    thread::scope(|scope| {
        let slow = scope.spawn(move || slow.try_lock().map(drop).unwrap_err());
        until("its connection waits", || {
            ask::<String>(&server, &["INFO", "clients"]).contains("blocked_clients:1")
        });
        rows.push(row("more callers than connections", "raise max_size", lock(&client)));
        let error = slow.join().unwrap();
        rows.push(row("`min_replicas(1, 2 s)` without a replica", "look at the replicas", error));
    });
    rows
}

fn states() -> Vec<Row> {
    let mut rows = Vec::new();
    let (_master, replica) = Server::start_with_replica().unwrap();
    let client = |server: &Server| {
        patient(LockClient::builder(server.tcp_url())).give_up_after(ms(50)).build().unwrap()
    };
    rows.push(row("the address of a replica", "use that of the master", lock(&client(&replica))));
    let server = start();
    let proxy = Proxy::start(&server).unwrap();
    let between = open_at(proxy.url());
    let garbage = Action::Garbage(b"*1\r\n:7\r\n".to_vec());
    proxy.add(Fault::reply("", garbage).at(Operation::Inspect));
    rows.push(row(
        "something between the client and Redis replies with something else",
        "connect past it",
        between.mutex("orders:42").unwrap().inspect().unwrap_err(),
    ));
    for (did, action) in [
        ("a proxy that ends connections with a command that it does not know", Action::Cut),
        (
            "a proxy that refuses a command that it does not know",
            Action::Garbage(b"-ERR unknown command\r\n".to_vec()),
        ),
    ] {
        let server = start();
        let proxy = Proxy::start(&server).unwrap();
        for word in ["CLIENT", "TIME"] {
            proxy.add(Fault::request(word, action.clone()).sticky());
        }
        rows.push(row(did, "connect past it", open(proxy.url())));
    }
    let renamed = ["--rename-command", "EVALSHA", "RUNSHA"];
    let renamed = renamed.into_iter().fold(Server::builder().tcp(), |it, word| it.arg(word));
    let renamed = renamed.start().unwrap();
    let error = lock(&client(&renamed));
    // The server repeats the words of the command.
    assert!(!format!("{error} {error:?}").contains("with args"), "{error:?}");
    rows.push(row(
        "a command that the server has under another name",
        "give it its name back",
        error,
    ));
    let server = start();
    let one = client(&server);
    ask::<()>(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    rows.push(row("Redis is out of memory", "raise maxmemory", lock(&one)));
    ask::<()>(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    rows.extend(disks());
    // Behind the script it would be refused as well.
    ask::<()>(&server, &["CONFIG", "SET", "busy-reply-threshold", "1"]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut spin = redis::cmd("EVAL");
            spin.arg("while true do end").arg(0).query::<()>(&mut server.connection()).unwrap_err();
        });
        until("it is busy", || {
            let ping = redis::cmd("PING").exec(&mut server.connection());
            ping.is_err_and(|error| error.code() == Some("BUSY"))
        });
        rows.push(row("a script of another runs without end", "end it", lock(&one)));
        ask::<()>(&server, &["SCRIPT", "KILL"]);
    });
    rows.push(row("Redis is starting and loads its data", "wait", loading(&server, &one)));
    let full = Server::builder().tcp().arg("--maxclients").arg("2").start().unwrap();
    let mut taken = [full.connection(), full.connection()];
    until("it takes no more", || {
        for connection in &mut taken {
            if redis::cmd("PING").exec(connection).is_err() {
                *connection = full.connection();
            }
        }
        taken.iter_mut().all(|connection| redis::cmd("PING").exec(connection).is_ok())
    });
    rows.push(row("more clients than maxclients", "raise it", open(full.tcp_url())));
    rows.push(row("a server of version 6.2", "use Redis 7.0 or later, or Valkey", too_old()));
    rows
}

fn disks() -> [Row; 2] {
    let synced = |server: &Server| {
        let client = open_at(server.tcp_url());
        let disks = LockOptions::new().min_fsyncs(true, 0, ms(500));
        client.mutex_with("orders:42", disks).unwrap().try_lock().unwrap_err()
    };
    let (did, to_do) = ("`min_fsyncs` where the server has no append-only file", "turn it on");
    let no_file = match or_skip(Server::builder().tcp().since(7, 2).start()) {
        Some(server) => row(did, to_do, synced(&server)),
        None => Row::skipped(did),
    };
    // The usual server, if it is that old. A later one is made to look like it.
    let usual = start();
    let word = ["COMMAND", "INFO", "WAITAOF"];
    let is_old = ask::<Vec<redis::Value>>(&usual, &word) == [redis::Value::Nil];
    let renamed = || Server::builder().tcp().arg("--rename-command").arg("WAITAOF").arg("");
    let old = if is_old { usual } else { renamed().start().expect("a server") };
    [no_file, row("`min_fsyncs` before Redis 7.2", "upgrade", synced(&old))]
}

fn too_old() -> Error {
    let server = start();
    let proxy = Proxy::start(&server).unwrap();
    let hello = "*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n6.2.14\r\n";
    proxy.add(Fault::request("HELLO", Action::Garbage(hello.into())).sticky());
    proxy.add(Fault::request("REDIS_VERSION_NUM", Action::Garbage(":0\r\n".into())).sticky());
    open(proxy.url())
}

fn loading(server: &Server, client: &LockClient) -> Error {
    for setting in [["key-load-delay", "2000"], ["loading-process-events-interval-bytes", "1024"]] {
        ask::<()>(server, &["CONFIG", "SET", setting[0], setting[1]]);
    }
    ask::<()>(server, &["DEBUG", "POPULATE", "1000", "key", "100"]);
    thread::scope(|scope| {
        let mut reload = server.connection();
        reload.set_read_timeout(Some(SOON)).unwrap();
        scope.spawn(move || redis::cmd("DEBUG").arg("RELOAD").query::<()>(&mut reload).unwrap());
        until("the server is loading", || {
            let answer =
                redis::cmd("GET").arg("x").query::<Option<String>>(&mut server.connection());
            answer.is_err_and(|error| error.code() == Some("LOADING"))
        });
        lock(client)
    })
}
