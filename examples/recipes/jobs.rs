//! A table of jobs for many workers: each claims a few that nobody works on, and passes over those that are taken.
//!
//! ```sh
//! cargo run --package leasehold-recipes --bin jobs
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::sync::Mutex;
use std::thread;

use leasehold::{LockClient, LockOptions};
use leasehold_recipes::{Result, Server};

const JOBS: usize = 200;
const WORKERS: usize = 8;
/// The table: for each job the token under which it was done. A real one is in a database.
type Table = Mutex<[Option<u64>; JOBS]>;

fn work(client: &LockClient, worker: usize, table: &Table) -> Result<usize> {
    let job = |id: &usize| client.mutex(format!("job:{id}"));
    let mut done = 0;
    loop {
        // Each worker begins elsewhere, so that they do not all try the same locks first.
        let mut open: Vec<usize> =
            (0..JOBS).filter(|&id| table.lock().unwrap()[id].is_none()).collect();
        if open.is_empty() {
            return Ok(done);
        }
        let first = worker * open.len() / WORKERS;
        open.rotate_left(first);
        let locks = open.iter().map(job).collect::<leasehold::Result<Vec<_>>>()?;
        let claimed = client.claim(&locks, 5)?;
        for lease in &claimed {
            let id: usize = std::str::from_utf8(&lease.name()["job:".len()..])?.parse()?;
            // Once more under the lease: somebody may have done it since the look above.
            let row = &mut table.lock().unwrap()[id];
            done += usize::from(row.is_none());
            row.get_or_insert(lease.fencing_token().get());
        }
        client.release_all(claimed)?;
    }
}

fn main() -> Result<()> {
    let server = Server::start()?;
    let clients = [LockClient::open(server.url())?, LockClient::open(server.url())?];
    let table = &Mutex::new([None; JOBS]);
    let done = thread::scope(|scope| -> Result<usize> {
        let workers = (0..WORKERS).zip(clients.iter().cycle());
        let workers: Vec<_> = workers
            .map(|(worker, client)| scope.spawn(move || work(client, worker, table)))
            .collect();
        workers.into_iter().try_fold(0, |sum, it| Ok(sum + it.join().map_err(|_| "a panic")??))
    })?;
    // Behind a report that takes long at most four threads may stand: the others are told at once.
    let report = clients[0].mutex_with("report", LockOptions::new().max_waiters(4))?;
    report.with(|_guard| println!("{done} jobs, each done once"))?;
    if done == JOBS { Ok(()) } else { Err("a job was done twice".into()) }
}
