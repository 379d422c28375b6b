//! One process of a trace: `trace URL LABEL hold` or `trace URL LABEL wait`. It writes its spans to standard output when
//! they end, and its events.
//!
//! The holder says `held` on standard error once it has the lock, and goes on when it reads a line.

#![allow(clippy::print_stderr, reason = "the test waits for what this says")]

use std::error::Error;
use std::io::stdin;

use leasehold::LockClient;
use leasehold::observe::TracingObserver;
use tracing_subscriber::fmt::format::FmtSpan;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, label, role] = &arguments[..] else { return Err("URL LABEL hold|wait".into()) };
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
        .with_span_events(FmtSpan::CLOSE)
        .without_time()
        .with_ansi(false)
        .init();
    let client = LockClient::builder(url).label(label).observer(TracingObserver::new()).build()?;
    let lock = client.mutex("orders:42")?;
    let guard = lock.lock()?;
    eprintln!("held");
    if role == "hold" {
        stdin().read_line(&mut String::new())?;
        return Ok(guard.release()?);
    }
    // Somebody deletes the key, which the next look finds out.
    stdin().read_line(&mut String::new())?;
    let lost = guard.check();
    // The loss is told by a thread of its own, which needs this process.
    stdin().read_line(&mut String::new())?;
    if lost.is_err() { Ok(()) } else { Err("the lock is still there".into()) }
}
