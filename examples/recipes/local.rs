//! Tasks that share a thread, and await inside their sections: with `reentrant(false)` no task enters the section of another.
//!
//! ```sh
//! cargo run --package leasehold-recipes --bin local
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::cell::Cell;
use std::rc::Rc;

use leasehold::{LockClient, LockOptions, Mutex};
use leasehold_recipes::{Result, Server};
use tokio::task::{LocalSet, spawn_blocking, yield_now};

/// One section, in which others may run. Returns how many were inside with it.
async fn section(lock: Mutex, inside: Rc<Cell<u32>>) -> leasehold::Result<u32> {
    // `lock` would wait for another task of its own thread, and so it is an error here. A try is `None`.
    let guard = loop {
        match lock.try_lock()? {
            Some(guard) => break guard,
            None => yield_now().await,
        }
    };
    inside.set(inside.get() + 1);
    yield_now().await;
    let others = inside.get() - 1;
    inside.set(others);
    guard.release()?;
    Ok(others)
}

/// Ten tasks of one thread. Returns how many others were inside at most.
async fn most_others(lock: &Mutex) -> Result<u32> {
    let (tasks, inside) = (LocalSet::new(), Rc::default());
    let spawn = |_| tasks.spawn_local(section(lock.clone(), Rc::clone(&inside)));
    let sections: Vec<_> = (0..10).map(spawn).collect();
    tasks.await;
    let mut most = 0;
    for section in sections {
        most = most.max(section.await??);
    }
    Ok(most)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let server = Server::start()?;
    let url = server.url();
    let client = spawn_blocking(move || LockClient::open(url)).await??;
    let usual = client.mutex("usual")?;
    let once = client.mutex_with("once", LockOptions::new().reentrant(false))?;
    println!("beside a section, at most: {} others", most_others(&usual).await?);
    let most = most_others(&once).await?;
    println!("the same with reentrant(false): {most} others");
    if most == 0 { Ok(()) } else { Err("two sections were inside".into()) }
}
