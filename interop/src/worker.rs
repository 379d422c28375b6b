//! This library's side: the process that [`peer`](crate::peer) talks to.

use std::fmt::Display;
use std::io::{BufRead as _, Write as _, stdin, stdout};
use std::time::{Duration, Instant};

use leasehold::{Guard, Lease, LockClient, LockOptions, Mutex, ReentrantLock};
use redis::Script;
use rustix::time::{ClockId, clock_gettime};

use crate::peer::Result;

/// The two kinds that other libraries can share.
#[derive(Debug)]
enum Lock {
    Mutex(Mutex),
    Reentrant(ReentrantLock),
}

impl Lock {
    fn lock(&self) -> leasehold::Result<Guard> {
        match self {
            Lock::Mutex(mutex) => mutex.lock(),
            Lock::Reentrant(lock) => lock.lock(),
        }
    }

    fn holders(&self) -> leasehold::Result<String> {
        let inspection = match self {
            Lock::Mutex(mutex) => mutex.inspect()?,
            Lock::Reentrant(lock) => lock.inspect()?,
        };
        Ok(inspection.to_string().replace('\n', "; "))
    }
}

#[derive(Debug)]
struct Worker {
    client: LockClient,
    kind: String,
    url: String,
    lease: Duration,
}

/// Reads commands until the input ends.
///
/// # Errors
///
/// When a command is not understood, or a lock fails.
pub fn run(url: &str, kind: &str, lease_millis: &str) -> Result<()> {
    let lease = Duration::from_millis(lease_millis.parse()?);
    let client = LockClient::open(url)?;
    let worker = Worker { client, kind: kind.to_owned(), url: url.to_owned(), lease };
    let mut held = Vec::new();
    for line in stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let reply = worker.reply(&words, &mut held)?;
        let mut output = stdout().lock();
        writeln!(output, "{reply}")?;
        output.flush()?;
    }
    Ok(())
}

impl Worker {
    fn lock(&self, name: &str) -> Result<Lock> {
        let options = LockOptions::new().lease(Lease::renewed(self.lease));
        Ok(match self.kind.as_str() {
            "mutex" => Lock::Mutex(self.client.mutex_with(name, options)?),
            _ => Lock::Reentrant(self.client.reentrant_with(name, options)?),
        })
    }

    fn reply(&self, words: &[&str], held: &mut Vec<Guard>) -> Result<String> {
        Ok(match words {
            ["lock", name] => {
                held.push(self.lock(name)?.lock()?);
                line("locked", now())
            }
            ["unlock", _] => {
                let before = now();
                held.pop().ok_or("nothing is held")?.release()?;
                line("unlocked", before)
            }
            ["count", name] => line("count", self.lock(name)?.holders()?),
            ["contend", name, threads, target, micros] => {
                let hold = Duration::from_micros(micros.parse()?);
                let had = self.contend(name, threads.parse()?, target.parse()?, hold)?;
                line("done", had)
            }
            ["bench", name, threads, millis, micros] => {
                let [millis, micros] = [millis.parse()?, micros.parse()?];
                let (time, hold) = (Duration::from_millis(millis), Duration::from_micros(micros));
                let done = measure(name, threads.parse()?, time, hold, |name| {
                    let lock = self.lock(name)?;
                    Ok(move || Ok(lock.lock()?))
                })?;
                line("done", done)
            }
            _ => return Err(format!("unknown: {words:?}").into()),
        })
    }

    fn contend(&self, name: &str, threads: usize, target: u64, hold: Duration) -> Result<u64> {
        std::thread::scope(|scope| {
            let turns = |thread| move || self.turns(name, thread, target, hold);
            let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(turns(thread))).collect();
            threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).sum()
        })
    }

    fn turns(&self, name: &str, thread: usize, target: u64, hold: Duration) -> Result<u64> {
        let mut redis = redis::Client::open(self.url.as_str())?.get_connection()?;
        let (enter, leave) =
            (script(include_str!("../enter.lua")), script(include_str!("../leave.lua")));
        let me = format!("{}:{thread}", std::process::id());
        let inside = format!("inside:{name}");
        let lock = self.lock(name)?;
        let (mut had, mut turn) = (0, 0);
        while turn < target {
            let guard = lock.lock()?;
            turn = enter.key(&inside).key("dead").arg(&me).invoke::<u64>(&mut redis)?;
            if !hold.is_zero() {
                std::thread::sleep(hold);
            }
            leave.key(&inside).key("dead").arg(&me).invoke::<()>(&mut redis)?;
            guard.release()?;
            had += 1;
        }
        Ok(had)
    }
}

/// Lets threads lock for a time. Returns how often they did, and the median and the 99th percentile of the
/// nanoseconds from call to lock, as the reply to `bench` has them.
///
/// # Errors
///
/// When a lock fails.
pub fn measure<L, G>(
    name: &str,
    threads: usize,
    time: Duration,
    hold: Duration,
    open: impl Fn(&str) -> Result<L> + Sync,
) -> Result<String>
where
    L: FnMut() -> Result<G>,
{
    let one = |thread: usize| -> Result<Vec<u64>> {
        let own = if name.ends_with(':') { format!("{name}{thread}") } else { name.to_owned() };
        let mut lock = open(&own)?;
        let (begun, mut waits) = (Instant::now(), Vec::new());
        while begun.elapsed() < time {
            let call = Instant::now();
            let guard = lock()?;
            waits.push(call.elapsed().as_nanos() as u64);
            if !hold.is_zero() {
                std::thread::sleep(hold);
            }
            drop(guard);
        }
        Ok(waits)
    };
    let one = &one;
    let mut waits = std::thread::scope(|scope| -> Result<Vec<u64>> {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| "a thread panicked")??);
        }
        Ok(all)
    })?;
    waits.sort_unstable();
    let at = |share: usize| waits.get(waits.len() * share / 100).copied().unwrap_or(0);
    Ok(format!("{} {} {}", waits.len(), at(50), at(99)))
}

fn script(code: &str) -> Script {
    Script::new(code)
}

fn line(word: &str, value: impl Display) -> String {
    format!("{word} {value}")
}

/// The clock of Java's `System.nanoTime` and of Python's `time.monotonic_ns`.
fn now() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
