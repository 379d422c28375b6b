//! At most five calls of an API at a time, over all machines. A caller waits for 300 ms at most.
//!
//! ```sh
//! cargo run --package leasehold-recipes --bin limit
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::{LockClient, Semaphore};
use leasehold_recipes::{Result, Server};

const AT_A_TIME: u32 = 5;

/// The API, which counts its calls.
#[derive(Default)]
struct Api {
    now: AtomicU32,
    most: AtomicU32,
}

impl Api {
    fn call(&self) {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(20));
        self.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Calls the API. Returns false if five calls were under way for all of the 300 ms.
fn call(limit: &Semaphore, api: &Api) -> leasehold::Result<bool> {
    let Some(permit) = limit.try_acquire_for(Duration::from_millis(300))? else {
        return Ok(false);
    };
    api.call();
    permit.release()?;
    Ok(true)
}

fn main() -> Result<()> {
    let server = Server::start()?;
    // Two machines, with twenty threads each.
    let clients = [LockClient::open(server.url())?, LockClient::open(server.url())?];
    let limits = [
        clients[0].semaphore("weather-api", AT_A_TIME)?,
        clients[1].semaphore("weather-api", AT_A_TIME)?,
    ];
    let api = &Api::default();
    let called = thread::scope(|scope| -> Result<usize> {
        let callers = limits.iter().cycle().take(40);
        let callers: Vec<_> = callers.map(|limit| scope.spawn(move || call(limit, api))).collect();
        callers.into_iter().try_fold(0, |sum, caller| {
            match caller.join().map_err(|_| "a caller panicked")? {
                // On a busy machine Redis may be late, which is no fault of the recipe.
                Err(error) if !error.is_transient() => Err(error.into()),
                outcome => Ok(sum + usize::from(outcome.unwrap_or(false))),
            }
        })
    })?;
    let most = api.most.load(Ordering::Relaxed);
    println!("{called} of 40 calls, at most {most} at a time");

    let all = limits[0].acquire_many(AT_A_TIME)?;
    let too_many = matches!(call(&limits[1], api), Ok(true));
    println!("a sixth call beside five was made: {too_many}");
    all.release()?;
    if most <= AT_A_TIME && !too_many { Ok(()) } else { Err("too many".into()) }
}
