//! What a semaphore is for: twelve processes share four GPUs, each by its number.
//!
//! ```sh
//! cargo run --bin gpus
//! ```
//!
//! Each process trains a few models. For each it waits for a permit, and works on the GPU of the permit's slot, which no
//! other living permit has. One of the processes is killed while it has a GPU: the others get that GPU again when
//! the dead one's lease is over. [`train`] is the part to copy.
//!
//! A GPU is a folder here. It has a file while a job works on it, so that a second job would be found, and a file with
//! the highest token that it has seen, by which it refuses a late job. The example uses a private server, and fails if
//! a GPU is shared.

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;
use std::fs::{File, create_dir, read_to_string, remove_file, write};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio, id};
use std::thread::sleep;
use std::time::Duration;

use leasehold::{Lease, LockClient, LockOptions, Permit};
use leasehold_support::Server;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const PROCESSES: usize = 12;
const GPUS: u32 = 4;
const JOBS: u32 = 4;
/// Short, so that the GPU of the process that is killed is soon free again.
const LEASE: Duration = Duration::from_secs(3);

/// One process: trains its models, each on a GPU of its own.
fn train(url: &str, machine: &Path, is_killed: bool) -> Result<()> {
    let client = LockClient::open(url)?;
    let options = LockOptions::new().lease(Lease::renewed(LEASE));
    let gpus = client.semaphore_with("gpu", GPUS, options)?;
    for job in 0..JOBS {
        let permit = gpus.acquire()?;
        println!("process {} trains model {job} on GPU {}", id(), permit.slot());
        use_gpu(machine, &permit, is_killed)?;
        permit.release()?;
    }
    Ok(())
}

/// Works on the GPU of this permit, and refuses to if a later holder was here.
fn use_gpu(machine: &Path, permit: &Permit, is_killed: bool) -> Result<()> {
    let gpu = machine.join(permit.slot().to_string());
    let (busy, fence) = (gpu.join("busy"), gpu.join("fence"));
    let token = permit.fencing_token().get();
    let highest = read_to_string(&fence).map_or(Ok(0), |text| text.parse::<u64>())?;
    if token < highest {
        return Err(format!("GPU {} had a later job", permit.slot()).into());
    }
    write(&fence, token.to_string())?;
    // What a process that was killed has left is no job: the file names its process.
    let left = read_to_string(&busy).unwrap_or_default();
    if !left.is_empty() && Path::new("/proc").join(&left).exists() {
        return Err(format!("GPU {} is shared with process {left}", permit.slot()).into());
    }
    write(&busy, id().to_string())?;
    if is_killed {
        sleep(LEASE * 100);
    }
    sleep(Duration::from_millis(40));
    Ok(remove_file(&busy)?)
}

fn start(url: &str, machine: &Path, role: &str) -> Result<Child> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(program);
    command.arg(role).arg(url).arg(machine).stdout(Stdio::piped());
    Ok(command.spawn()?)
}

/// Starts the processes, kills one, and counts what the others have done.
fn share() -> Result<()> {
    let server = Server::start()?;
    let machine = server.directory().join("machine");
    create_dir(&machine)?;
    for gpu in 0..GPUS {
        create_dir(machine.join(gpu.to_string()))?;
    }
    let url = server.url();
    let mut victim = start(&url, &machine, "victim")?;
    while !(0..GPUS).any(|gpu| File::open(machine.join(format!("{gpu}/busy"))).is_ok()) {
        sleep(Duration::from_millis(5));
    }
    let others = (1..PROCESSES).map(|_| start(&url, &machine, "works"));
    let others = others.collect::<Result<Vec<_>>>()?;
    victim.kill()?;
    victim.wait()?;
    println!("process {} is killed while it has a GPU", victim.id());

    let mut used = [0; GPUS as usize];
    for mut child in others {
        let mut text = String::new();
        child.stdout.take().ok_or("no output")?.read_to_string(&mut text)?;
        print!("{text}");
        for (gpu, jobs) in used.iter_mut().enumerate() {
            *jobs += text.matches(&format!(" on GPU {gpu}\n")).count();
        }
        if !child.wait()?.success() {
            return Err("a process failed".into());
        }
    }
    let free = LockClient::open(&url)?.semaphore("gpu", GPUS)?;
    let all = free.acquire_many(GPUS)?;
    println!("jobs on each GPU: {used:?}; all {:?} are free again", all.slots());
    let jobs = used.iter().sum::<usize>();
    let expected = (PROCESSES - 1) * JOBS as usize;
    if jobs == expected { Ok(()) } else { Err(format!("{jobs} jobs of {expected}").into()) }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [role, url, machine] => train(url, Path::new(machine), role == "victim"),
        _ => share(),
    }
}
