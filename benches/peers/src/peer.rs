//! The libraries in Rust and Go, and the raw limit: how a worker of each is started, and how it locks.

use std::io::{BufRead as _, Write as _, stdin, stdout};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use leasehold_interop::language::{LEASE_MILLIS, exists, output, run};
use leasehold_interop::worker::measure;
use leasehold_interop::{Peer, Result};
use redis::{Connection, Script};
use redlock::RedLock;
use rslock::LockManager;

/// What the documentation of Redis says: compare, then delete.
const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
/// How long the raw lock sleeps while another has it.
const RAW_PAUSE: Duration = Duration::from_millis(1);

/// A worker in Rust: this program, with the name of a library as its role.
pub(crate) fn start(library: &'static str, url: &str) -> Result<Peer> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["peer", library, url]);
    Peer::start(library, command)
}

/// The worker in Go, once it is built.
#[derive(Debug)]
pub(crate) struct Go {
    program: std::path::PathBuf,
}

impl Go {
    /// `None` where there is no Go.
    pub(crate) fn build() -> Result<Option<Go>> {
        let has_go = Command::new("go").arg("version").output().is_ok_and(|it| it.status.success());
        if !has_go && !exists("go") {
            return Ok(None);
        }
        let program = output()?.join("go-peers");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("go");
        let mut build = Command::new("go");
        build.args(["build", "-mod=readonly", "-o"]).arg(&program).arg(".").current_dir(source);
        run(&mut build)?;
        Ok(Some(Go { program }))
    }

    pub(crate) fn start(&self, library: &'static str, url: &str) -> Result<Peer> {
        let address = url.trim_start_matches("redis://").trim_end_matches('/');
        let mut command = Command::new(&self.program);
        command.args([library, address, &LEASE_MILLIS.to_string()]);
        Peer::start(library, command)
    }
}

/// A worker's loop.
pub(crate) fn serve(library: &str, url: &str) -> Result<()> {
    for line in stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let ["bench", name, threads, millis, micros] = words[..] else {
            return Err(format!("unknown: {line}").into());
        };
        let threads = threads.parse()?;
        let (time, hold) =
            (Duration::from_millis(millis.parse()?), Duration::from_micros(micros.parse()?));
        let done = match library {
            "raw" => measure(name, threads, time, hold, |name| raw(url, name))?,
            "redlock" => measure(name, threads, time, hold, |name| redlock(url, name))?,
            "rslock" => rslock(url, name, threads, time, hold)?,
            _ => return Err(format!("unknown library: {library}").into()),
        };
        let mut output = stdout().lock();
        writeln!(output, "done {done}")?;
        output.flush()?;
    }
    Ok(())
}

/// `SET NX PX` and a compare-and-delete script on a connection of the thread's own.
struct RawGuard {
    redis: std::rc::Rc<std::cell::RefCell<Connection>>,
    release: Script,
    name: String,
    value: String,
}

impl Drop for RawGuard {
    fn drop(&mut self) {
        let mut redis = self.redis.borrow_mut();
        let deleted = self.release.key(&self.name).arg(&self.value).invoke::<u64>(&mut *redis);
        assert_eq!(deleted.ok(), Some(1), "the raw lock was lost");
    }
}

fn raw(url: &str, name: &str) -> Result<impl FnMut() -> Result<RawGuard> + use<>> {
    let redis = redis::Client::open(url)?.get_connection()?;
    let redis = std::rc::Rc::new(std::cell::RefCell::new(redis));
    let (release, name) = (Script::new(RELEASE), name.to_owned());
    Ok(move || {
        let value = uuid::Uuid::new_v4().to_string();
        loop {
            let mut set = redis::cmd("SET");
            set.arg(&name).arg(&value).arg("NX").arg("PX").arg(LEASE_MILLIS);
            if set.query::<Option<String>>(&mut *redis.borrow_mut())?.is_some() {
                break;
            }
            sleep(RAW_PAUSE);
        }
        let (redis, release) = (std::rc::Rc::clone(&redis), release.clone());
        Ok(RawGuard { redis, release, name: name.clone(), value })
    })
}

fn redlock(
    url: &str,
    name: &str,
) -> Result<impl FnMut() -> Result<redlock::RedLockGuard<'static>> + use<>> {
    // Its guards borrow it. A thread has one until the program ends.
    let locks: &'static RedLock = Box::leak(Box::new(RedLock::new(vec![url])));
    let name = name.as_bytes().to_vec();
    Ok(move || Ok(locks.acquire(&name, LEASE_MILLIS as usize)?))
}

/// Its threads are tasks on a runtime of its own.
fn rslock(url: &str, name: &str, threads: usize, time: Duration, hold: Duration) -> Result<String> {
    let locks = LockManager::new(vec![url]);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut waits: Vec<u64> = runtime.block_on(async {
        let tasks: Vec<_> = (0..threads)
            .map(|thread| {
                let locks = locks.clone();
                let own =
                    if name.ends_with(':') { format!("{name}{thread}") } else { name.to_owned() };
                tokio::spawn(async move {
                    let (begun, mut waits) = (tokio::time::Instant::now(), Vec::new());
                    while begun.elapsed() < time {
                        let call = tokio::time::Instant::now();
                        let lease = Duration::from_millis(LEASE_MILLIS);
                        let guard = locks.acquire(own.as_bytes(), lease).await;
                        let guard = guard.map_err(|error| error.to_string())?;
                        waits.push(call.elapsed().as_nanos() as u64);
                        if !hold.is_zero() {
                            tokio::time::sleep(hold).await;
                        }
                        guard.release().await;
                    }
                    Ok::<_, String>(waits)
                })
            })
            .collect();
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.map_err(|error| error.to_string())??);
        }
        Ok::<_, String>(all)
    })?;
    waits.sort_unstable();
    let at = |share: usize| waits.get(waits.len() * share / 100).copied().unwrap_or(0);
    Ok(format!("{} {} {}", waits.len(), at(50), at(99)))
}
