//! A value of one's own under a lock, for those who come from `std::sync::Mutex<T>`: the lock has no value inside.
//!
//! ```sh
//! cargo run --package leasehold-recipes --bin value
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use leasehold::{LockClient, Mutex, redis};
use leasehold_recipes::{Result, Server};

/// A number that all processes share. It is in Redis, and could be in any database.
struct Shared {
    lock: Mutex,
    redis: redis::Client,
}

impl Shared {
    fn open(url: &str) -> Result<Shared> {
        Ok(Shared {
            lock: LockClient::open(url)?.mutex("visits:lock")?,
            redis: redis::Client::open(url)?,
        })
    }

    fn get(&self) -> Result<u64> {
        let value: Option<u64> =
            redis::cmd("GET").arg("visits").query(&mut self.redis.get_connection()?)?;
        Ok(value.unwrap_or(0))
    }

    /// Changes the number under the lock, and returns it.
    fn update(&self, change: impl FnOnce(u64) -> u64) -> Result<u64> {
        // A lock may fail, so `?` takes the place of `unwrap`. Keep the guard: `let _ = …` would release it at once.
        let guard = self.lock.lock()?;
        // Read again under each hold: another process may have written since the last one.
        let value = change(self.get()?);
        // Nothing is written if the lock was lost since.
        guard.transaction(|pipe| _ = pipe.cmd("SET").arg("visits").arg(value))?;
        guard.release()?;
        Ok(value)
    }
}

fn main() -> Result<()> {
    let server = Server::start()?;
    let processes = [Shared::open(&server.url())?, Shared::open(&server.url())?];
    // There is no poisoning: the guard is dropped in the panic, and the value is what was written last.
    let panicked = catch_unwind(AssertUnwindSafe(|| processes[0].update(|_| panic!("half-way"))));
    println!("a thread panicked under the lock: {}", panicked.is_err());

    thread::scope(|scope| -> Result<()> {
        let threads = processes.iter().cycle().take(8);
        let count = |shared: &Shared| -> Result<()> {
            (0..25).try_for_each(|_| shared.update(|visits| visits + 1).map(drop))
        };
        let threads: Vec<_> = threads.map(|shared| scope.spawn(move || count(shared))).collect();
        threads.into_iter().try_for_each(|it| it.join().map_err(|_| "a thread panicked")?)
    })?;
    let visits = processes[0].get()?;
    println!("8 threads of 2 processes counted 25 visits each: {visits}");
    if panicked.is_err() && visits == 200 { Ok(()) } else { Err("a visit is missing".into()) }
}
