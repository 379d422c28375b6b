//! One lock, many languages: this library beside the real Redisson and the real redis-py, on one server.
//!
//! ```sh
//! cargo run --release --package leasehold-interop
//! ```
//!
//! Redisson's plain lock and `ReentrantLock` are one lock; so are a `SET NX PX` client and `Mutex`. The program fails if
//! two holders overlap, if one side gets too little, or if the death of a holder stops the other for long. It needs Java
//! with Maven and Python with pip; a language that is missing is skipped. `LEASEHOLD_TURNS` shortens it.

#![allow(clippy::print_stdout, reason = "it prints what it measured")]

mod scenario;

use leasehold_support::{Server, or_skip, skip};

use leasehold_interop::Result;
use leasehold_interop::language::{self, Java, Python};
use leasehold_interop::worker;
use scenario::Scene;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, url, kind, lease] = &arguments[..] {
        return match role.as_str() {
            "worker" => worker::run(url, kind, lease),
            _ => Err(format!("unknown role {role}").into()),
        };
    }
    let Some(server) = or_skip(Server::builder().tcp().start()) else { return Ok(()) };
    let turns = match std::env::var("LEASEHOLD_TURNS") {
        Ok(turns) => turns.parse()?,
        Err(_) => 100_000,
    };
    let command = language::command()?;
    match Java::build()? {
        Some(java) => {
            let scene = Scene::new(&server, "reentrant", |url| java.start(url));
            scene.exclusion(turns, 8)?;
            scene.share(turns / 20)?;
            scene.wakes()?;
            scene.reentry()?;
            scene.names(&command)?;
            scene.death()?;
        }
        None => skip("no Redisson: there is no Java with Maven"),
    }
    match Python::build()? {
        Some(python) => {
            let scene = Scene::new(&server, "mutex", |url| python.start(url));
            scene.exclusion(turns / 20, 4)?;
            scene.names(&command)?;
            scene.death()?;
        }
        None => skip("no redis-py: there is no Python"),
    }
    Ok(())
}
