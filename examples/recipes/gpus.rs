//! Four GPUs for many jobs: a permit's slot is the number of the GPU, and no other living permit has it.
//!
//! ```sh
//! cargo run --package leasehold-recipes --bin gpus
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::{LockClient, Semaphore};
use leasehold_recipes::{Result, Server};

const GPUS: u32 = 4;

/// Trains a model on a GPU that nobody else has.
fn train(gpus: &Semaphore, jobs: &[AtomicU32; GPUS as usize]) -> Result<u32> {
    let permit = gpus.acquire()?;
    let gpu = &jobs[permit.slot() as usize];
    // Elsewhere: CUDA_VISIBLE_DEVICES is the number of the slot.
    if gpu.fetch_add(1, Ordering::Relaxed) > 0 {
        return Err(format!("GPU {} is shared", permit.slot()).into());
    }
    thread::sleep(Duration::from_millis(5));
    gpu.fetch_sub(1, Ordering::Relaxed);
    let used = permit.slot();
    permit.release()?;
    Ok(used)
}

fn main() -> Result<()> {
    let server = Server::start()?;
    let clients = [LockClient::open(server.url())?, LockClient::open(server.url())?];
    let pools = [clients[0].semaphore("gpu", GPUS)?, clients[1].semaphore("gpu", GPUS)?];
    let jobs = &Default::default();
    let mut used = [0; GPUS as usize];
    thread::scope(|scope| -> Result<()> {
        let models = pools.iter().cycle().take(60);
        let models: Vec<_> = models.map(|pool| scope.spawn(move || train(pool, jobs))).collect();
        for model in models {
            used[model.join().map_err(|_| "a job panicked")?? as usize] += 1;
        }
        Ok(())
    })?;
    println!("models trained on each GPU: {used:?}");
    if used.iter().sum::<u32>() == 60 { Ok(()) } else { Err("a model is missing".into()) }
}
