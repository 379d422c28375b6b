//! A private server starts, stops and never outlives its owner.

#![allow(clippy::print_stderr, reason = "it shows which server it has")]

use std::time::{Duration, Instant};

use leasehold_support::{Monitor, Server, WallClock};

fn ping(server: &Server) -> redis::RedisResult<String> {
    redis::cmd("PING").query(&mut server.connection())
}

#[test]
fn server_answers_on_its_socket_and_its_port() {
    let server = Server::builder().tcp().start().expect("a server");
    eprintln!("{} on {}", server.version(), server.url());
    assert!(server.version().starts_with("valkey ") || server.version().starts_with("redis "));
    for url in [server.url(), server.tcp_url(), server.unix_url()] {
        let client = redis::Client::open(url).expect("a valid URL");
        let mut connection = client.get_connection().expect("a connection");
        let pong: String = redis::cmd("PING").query(&mut connection).expect("an answer");
        assert_eq!(pong, "PONG");
    }
}

#[test]
fn server_is_gone_with_its_folder_after_a_drop() {
    let server = Server::start().expect("a server");
    let (pid, folder) = (server.pid(), server.directory().to_owned());
    assert!(server.socket().exists());
    server.pause();
    drop(server);
    assert!(!folder.exists());
    assert!(!alive(pid));
}

#[test]
fn server_restarts_empty_on_the_same_addresses() {
    let server = Server::builder().tcp().start().expect("a server");
    let set: String =
        redis::cmd("SET").arg("a").arg("b").query(&mut server.connection()).expect("OK");
    assert_eq!(set, "OK");
    assert_eq!(server.keys(), [b"a".to_vec()]);
    let (url, pid) = (server.url(), server.pid());
    server.kill();
    assert!(redis::Client::open(url.clone()).expect("a valid URL").get_connection().is_err());
    server.restart();
    assert_eq!((server.url(), server.keys()), (url, vec![]));
    assert_ne!(server.pid(), pid);
}

#[test]
fn server_is_silent_while_paused() {
    let server = Server::start().expect("a server");
    let mut connection = server.connection();
    connection.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    server.pause();
    let begin = Instant::now();
    let answer: redis::RedisResult<String> = redis::cmd("PING").query(&mut connection);
    assert!(answer.is_err_and(|error| error.is_timeout()));
    assert!(begin.elapsed() >= Duration::from_millis(90));
    server.resume();
    assert_eq!(ping(&server).expect("an answer"), "PONG");
}

#[test]
fn server_counts_commands() {
    let server = Server::start().expect("a server");
    let mut connection = server.connection();
    server.reset_stats();
    let before = server.commands();
    for _ in 0..3 {
        redis::cmd("EVAL")
            .arg("return redis.call('incr', KEYS[1])")
            .arg(1)
            .arg("n")
            .query::<u64>(&mut connection)
            .expect("a number");
    }
    redis::cmd("GET").arg("n").query::<u64>(&mut connection).expect("a number");
    let ran = server.commands().since(&before);
    assert_eq!((ran.calls("eval"), ran.calls("incr"), ran.calls("get")), (3, 3, 1));
    assert_eq!(ran.client_commands(&["get"]), 4);
    assert_eq!(server.command_calls(&["eval", "get"]), 4);
}

#[test]
fn failed_start_shows_the_servers_log() {
    let server = Server::builder().arg("--maxclients").arg("10").start().expect("a server");
    let (_, most): (String, String) = redis::cmd("CONFIG")
        .arg("GET")
        .arg("maxclients")
        .query(&mut server.connection())
        .expect("an answer");
    assert_eq!(most, "10");
    let error = Server::builder().arg("--no-such-thing").arg("1").start().expect_err("refused");
    assert!(error.to_string().contains("no-such-thing"), "{error}");
}

fn alive(pid: u32) -> bool {
    std::process::Command::new("kill")
        .args(["-0", &pid.to_string()])
        .stderr(std::process::Stdio::null())
        .status()
        .expect("kill runs")
        .success()
}

#[test]
fn cluster_nodes_share_slots_and_a_slot_moves_with_keys() {
    let cluster = leasehold_support::Cluster::start(3, 1).expect("a cluster");
    assert_eq!((cluster.masters().len(), cluster.nodes().len()), (3, 6));
    let name = cluster.name_at(1, "x");
    let set = redis::cmd("SET").arg(&name).arg(1).exec(&mut cluster.nodes()[1].connection());
    set.expect("its master takes it");
    cluster.migrate(cluster.slot(&name), 1, 2);
    let get = redis::cmd("GET").arg(&name).query::<u32>(&mut cluster.nodes()[2].connection());
    assert_eq!(get.expect("it is there"), 1);
}

#[test]
fn clock_jump_of_one_server_leaves_others_alone() {
    let clock = WallClock::new().unwrap();
    let (clocked, other) =
        (Server::builder().envs(clock.variables()).start().unwrap(), Server::start().unwrap());
    let seconds = |server: &Server| {
        let time: (i64, i64) = redis::cmd("TIME").query(&mut server.connection()).unwrap();
        time.0
    };
    for ahead in [3_600, -3_600, 0] {
        clock.set(ahead * 1_000_000).unwrap();
        let end = Instant::now() + Duration::from_secs(5);
        while (seconds(&clocked) - seconds(&other) - ahead).abs() > 2 {
            assert!(Instant::now() < end, "not {ahead} s ahead");
        }
    }
}

#[test]
fn monitor_records_commands_and_ends_with_the_server() {
    let server = Server::start().unwrap();
    let monitor = Monitor::start(&server);
    redis::cmd("ECHO").arg("seen").exec(&mut server.connection()).unwrap();
    let until = |condition: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_secs(5);
        while !condition() {
            assert!(Instant::now() < end);
        }
    };
    until(&|| monitor.lines("seen").len() == 1);
    assert!(monitor.is_open() && monitor.lines("unseen").is_empty());
    server.kill();
    until(&|| !monitor.is_open());
}
