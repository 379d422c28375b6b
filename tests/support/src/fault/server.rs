//! Faults of a server's process and of its connections.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue};

use crate::Server;
use crate::fault::{Active, Fired, Injector, Site};
use crate::signal;

/// Longer than any state that a test puts a server into.
const LONG: Duration = Duration::from_secs(20);

/// It is stopped (SIGSTOP) until it is healed.
#[derive(Debug, Clone, Copy)]
pub struct Stopped;

impl Injector for Stopped {
    fn name(&self) -> String {
        "server-stopped".to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let server = site.server;
        server.pause();
        let seen = u64::from(signal::state(server.pid()) == Some('T'));
        let count = move || Fired { injected: 1, witnessed: seen, witness: "the process state" };
        Active::new(self.name(), count, || server.resume())
    }
}

/// It is killed (SIGKILL); healed, it starts again with its persisted data.
#[derive(Debug, Clone, Copy)]
pub struct Killed;

impl Injector for Killed {
    fn name(&self) -> String {
        "server-killed".to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let (server, pid) = (site.server, site.server.pid());
        server.kill();
        let dead = move || matches!(signal::state(pid), None | Some('Z' | 'X'));
        let count =
            move || Fired { injected: 1, witnessed: dead().into(), witness: "the process state" };
        Active::new(self.name(), count, || server.restart())
    }
}

/// It is killed, and the end of its append-only file is cut off, as by a crash of the machine; it
/// starts again at once. It must have been started with `--appendonly yes`.
#[derive(Debug, Clone, Copy)]
pub struct TailCut {
    /// How many bytes are missing.
    pub bytes: u64,
}

impl Injector for TailCut {
    fn name(&self) -> String {
        "tail-cut".to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let server = site.server;
        server.kill();
        let path = append_only_file(server).expect("a server that appends");
        let file = OpenOptions::new().write(true).open(path).expect("its file");
        let length = file.metadata().expect("its length").len();
        file.set_len(length.saturating_sub(self.bytes)).expect("a shorter file");
        let before = server.log().len();
        server.restart();
        let witnessed = move || {
            let log = server.log();
            let news = log.get(before..).unwrap_or_default().to_lowercase();
            u64::from(["truncat", "short read", "unexpected end"].iter().any(|t| news.contains(t)))
        };
        let injected = u64::from(length > self.bytes);
        let count = move || Fired { injected, witnessed: witnessed(), witness: "the server's log" };
        Active::new(self.name(), count, || ())
    }
}

fn append_only_file(server: &Server) -> Option<PathBuf> {
    let folder = std::fs::read_dir(server.directory().join("appendonlydir")).ok()?;
    folder.filter_map(|entry| Some(entry.ok()?.path())).find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(".incr.aof"))
    })
}

/// Another client's script does not end until the fault is healed (`BUSY`).
#[derive(Debug, Clone, Copy)]
pub struct Busy;

impl Injector for Busy {
    fn name(&self) -> String {
        "busy".to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let server = site.server;
        let before = error_count(server, "errorstat_BUSY");
        ask::<()>(server, &["CONFIG", "SET", "lua-time-limit", "5"]);
        let mut healer = server.connection();
        let mut stuck = server.connection();
        let _ = stuck.set_read_timeout(Some(LONG));
        let script = thread::spawn(move || {
            let _ = redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut stuck);
        });
        let probes = await_error(server, "BUSY");
        let count = move || Fired {
            injected: 1,
            // The request that waited for it was refused too.
            witnessed: (error_count(server, "errorstat_BUSY") - before).saturating_sub(probes),
            witness: "errorstat_BUSY",
        };
        let heal = move || {
            let _ = redis::cmd("SCRIPT").arg("KILL").query::<()>(&mut healer);
            let _ = script.join();
        };
        Active::new(self.name(), count, heal)
    }
}

/// It loads its data, which takes about this long; it has the same data afterwards.
#[derive(Debug, Clone, Copy)]
pub struct Loading(
    /// How long.
    pub Duration,
);

impl Injector for Loading {
    fn name(&self) -> String {
        "loading".to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let server = site.server;
        let before = error_count(server, "errorstat_LOADING");
        let keys = u128::from(200_u64);
        let each = (self.0.as_micros() / keys).to_string();
        for (setting, value) in
            [("key-load-delay", each.as_str()), ("loading-process-events-interval-bytes", "1024")]
        {
            ask::<()>(server, &["CONFIG", "SET", setting, value]);
        }
        ask::<()>(server, &["DEBUG", "POPULATE", "200", "ballast", "100"]);
        let mut reload = server.connection();
        let _ = reload.set_read_timeout(Some(LONG));
        let load = thread::spawn(move || {
            let _ = redis::cmd("DEBUG").arg("RELOAD").query::<()>(&mut reload);
        });
        let probes = await_error(server, "LOADING");
        let count = move || Fired {
            injected: 1,
            witnessed: (error_count(server, "errorstat_LOADING") - before).saturating_sub(probes),
            witness: "errorstat_LOADING",
        };
        let heal = move || {
            let _ = load.join();
            ask::<()>(server, &["CONFIG", "SET", "key-load-delay", "0"]);
            let script = "for i = 0, 199 do redis.call('DEL', 'ballast:' .. i) end";
            ask::<()>(server, &["EVAL", script, "0"]);
        };
        Active::new(self.name(), count, heal)
    }
}

/// It forgets its scripts again and again (`NOSCRIPT`), until it is healed.
#[derive(Debug, Clone, Copy)]
pub struct Forgetful;

impl Injector for Forgetful {
    fn name(&self) -> String {
        "no-script".to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let server = site.server;
        let before = error_count(server, "errorstat_NOSCRIPT");
        let over = Arc::new(AtomicBool::new(false));
        let flushes = Arc::new(AtomicU64::new(0));
        let (end, counted) = (Arc::clone(&over), Arc::clone(&flushes));
        let mut connection = server.connection();
        ask::<()>(server, &["SCRIPT", "FLUSH"]);
        let storm = thread::spawn(move || {
            while !end.load(Ordering::SeqCst) {
                let flushed = redis::cmd("SCRIPT").arg("FLUSH").query::<()>(&mut connection);
                counted.fetch_add(u64::from(flushed.is_ok()), Ordering::SeqCst);
                thread::sleep(Duration::from_millis(1));
            }
        });
        let count = move || Fired {
            injected: flushes.load(Ordering::SeqCst).min(1),
            witnessed: error_count(server, "errorstat_NOSCRIPT") - before,
            witness: "errorstat_NOSCRIPT",
        };
        let heal = move || {
            over.store(true, Ordering::SeqCst);
            let _ = storm.join();
        };
        Active::new(self.name(), count, heal)
    }
}

/// It cannot save its data, and therefore refuses to be written to (`MISCONF`).
#[derive(Debug, Clone, Copy)]
pub struct DiskFailure;

impl Injector for DiskFailure {
    fn name(&self) -> String {
        "disk-failure".to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let server = site.server;
        let before = error_count(server, "errorstat_MISCONF");
        // A folder in the place of the file.
        let obstacle = server.directory().join("dump.rdb");
        std::fs::create_dir_all(obstacle.join("full")).expect("a folder");
        ask::<()>(server, &["CONFIG", "SET", "save", "3600 1"]);
        ask::<redis::Value>(server, &["BGSAVE"]);
        let end = Instant::now() + LONG;
        while !ask::<String>(server, &["INFO", "persistence"]).contains("bgsave_status:err") {
            assert!(Instant::now() < end, "the server saved its data");
            thread::sleep(Duration::from_millis(2));
        }
        let count = move || Fired {
            injected: 1,
            witnessed: error_count(server, "errorstat_MISCONF") - before,
            witness: "errorstat_MISCONF",
        };
        let heal = move || {
            ask::<()>(server, &["CONFIG", "SET", "save", ""]);
            let _ = std::fs::remove_dir_all(obstacle);
        };
        Active::new(self.name(), count, heal)
    }
}

/// It takes no more connections; those that there are stay.
#[derive(Debug, Clone, Copy)]
pub struct MaxClients;

impl Injector for MaxClients {
    fn name(&self) -> String {
        "max-clients".to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let server = site.server;
        let refused = |stats: &str| field(stats, "rejected_connections");
        let before = refused(&ask::<String>(server, &["INFO", "stats"]));
        let mut healer = server.connection();
        let usual: Vec<String> = ask(server, &["CONFIG", "GET", "maxclients"]);
        let set = |healer: &mut Connection, most: &str| {
            redis::cmd("CONFIG").arg("SET").arg("maxclients").arg(most).query::<()>(healer)
        };
        // The connection that heals it is enough. The number of others is not known: the server may
        // not have noticed yet that some have closed.
        set(&mut healer, "1").expect("a limit");
        let count = move || Fired {
            injected: 1,
            witnessed: refused(&ask::<String>(server, &["INFO", "stats"])) - before,
            witness: "INFO rejected_connections",
        };
        let heal = move || {
            let usual = usual.last().map_or("10000", String::as_str);
            let _ = set(&mut healer, usual);
        };
        Active::new(self.name(), count, heal)
    }
}

/// It closes connections, at once (`CLIENT KILL TYPE …`).
#[derive(Debug, Clone, Copy)]
pub struct ClientsKilled {
    /// Which, as in `normal` or `pubsub`.
    pub which: &'static str,
}

impl Injector for ClientsKilled {
    fn name(&self) -> String {
        format!("{}-clients-killed", self.which)
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let server = site.server;
        // On one connection: an earlier one of ours might not be closed yet, and be killed too.
        let mut connection = server.connection();
        let before = client_ids_on(&mut connection);
        let mut kill = redis::cmd("CLIENT");
        let killed = kill.arg("KILL").arg("TYPE").arg(self.which).query::<u64>(&mut connection);
        // A client that connected in between has an unknown number.
        let killed = killed.expect("a number").min(before.len() as u64);
        let count = move || Fired {
            injected: killed,
            witnessed: gone(server, &before),
            witness: "CLIENT LIST",
        };
        Active::new(self.name(), count, || ())
    }
}

/// It holds commands back for this long, or until it is healed (`CLIENT PAUSE … WRITE`).
#[derive(Debug, Clone, Copy)]
pub struct ClientsPaused(
    /// How long.
    pub Duration,
);

impl Injector for ClientsPaused {
    fn name(&self) -> String {
        "clients-paused".to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let server = site.server;
        let span = self.0.as_millis().to_string();
        let before = server.command_calls(&["client|pause"]);
        ask::<()>(server, &["CLIENT", "PAUSE", &span, "WRITE"]);
        let count = move || Fired {
            injected: 1,
            witnessed: server.command_calls(&["client|pause"]) - before,
            witness: "INFO commandstats",
        };
        Active::new(self.name(), count, || ask::<()>(server, &["CLIENT", "UNPAUSE"]))
    }
}

/// Sends a bare command on a connection of its own.
pub(crate) fn ask<T: FromRedisValue>(server: &Server, words: &[&str]) -> T {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| {
        command.arg(*word);
    });
    let answer = command.query(&mut server.connection());
    answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// Returns a number from `INFO`, 0 if it is missing.
pub(crate) fn number(server: &Server, section: &str, name: &str) -> u64 {
    field(&ask::<String>(server, &["INFO", section]), name)
}

/// Returns a number from a section of `INFO`, 0 if it is missing.
pub(crate) fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let digits = line.map(|rest| rest.trim_start_matches("count="));
    digits
        .and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
        .unwrap_or(0)
}

/// Returns how often the server has replied with an error, by its `errorstat_…`.
pub(crate) fn error_count(server: &Server, name: &str) -> u64 {
    number(server, "errorstats", name)
}

/// Returns the numbers of all connections but our own.
pub(crate) fn client_ids(server: &Server) -> Vec<String> {
    client_ids_on(&mut server.connection())
}

fn client_ids_on(connection: &mut redis::Connection) -> Vec<String> {
    let ours: u64 = redis::cmd("CLIENT").arg("ID").query(connection).expect("a number");
    let list: String = redis::cmd("CLIENT").arg("LIST").query(connection).expect("a list");
    let ids = list.lines().filter_map(|line| line.split(' ').next()?.strip_prefix("id="));
    ids.filter(|id| *id != ours.to_string()).map(str::to_owned).collect()
}

/// Returns how many of these connections are no more.
pub(crate) fn gone(server: &Server, before: &[String]) -> u64 {
    let now = client_ids(server);
    before.iter().filter(|id| !now.contains(id)).count() as u64
}

/// Waits until the server replies with this error, and returns how often it did.
fn await_error(server: &Server, code: &str) -> u64 {
    let end = Instant::now() + LONG;
    let mut connection = server.connection();
    while Instant::now() < end {
        let answer = redis::cmd("EXISTS").arg("probe").query::<bool>(&mut connection);
        if answer.is_err_and(|error| error.code() == Some(code)) {
            return 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("the server never answered {code}");
}
