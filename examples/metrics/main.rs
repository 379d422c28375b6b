//! Metrics of contended locks, as Prometheus reads them.
//!
//! ```sh
//! cargo run --release --package leasehold-metrics --bin metrics              # for a minute; then `curl http://127.0.0.1:9184/metrics`
//! cargo run --release --package leasehold-metrics --bin metrics -- --seconds 5
//! ```
//!
//! Two services contend for ten orders and two GPUs, and one of them goes through 10,000 carts, each a lock of its own. Now and then an
//! operator deletes the key of an order, so that a lock is lost. The recorder renders the text, and a listener of the
//! standard library serves it: nothing here is asynchronous. [`observer`] is the part to copy.
//!
//! The example uses a private server. At its end it reads its own metrics, and fails if they do not tell what happened.

#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{scope, sleep, spawn};
use std::time::{Duration, Instant};

use leasehold::observe::MetricsObserver;
use leasehold::redis::cmd;
use leasehold::{Lease, LockClient, LockOptions};
use leasehold_support::Server;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CARTS: usize = 10_000;
const BUCKETS: [f64; 8] = [0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0];

/// The class of `orders:42` is `orders`: however many orders there are, they have one label.
fn observer() -> MetricsObserver {
    MetricsObserver::new().class(|name| match name.split(|byte| *byte == b':').next() {
        Some(b"orders") => "orders",
        Some(b"carts") => "carts",
        _ => "rest",
    })
}

/// Answers every request with the metrics, until the process ends.
fn serve(listener: &TcpListener, handle: &PrometheusHandle) {
    for stream in listener.incoming().filter_map(std::result::Result::ok) {
        // A reader that is gone, or stuck, is no matter.
        let _ = respond(stream, &handle.render());
    }
}

fn respond(mut stream: TcpStream, text: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    let _ = stream.read(&mut [0; 1024])?;
    let length = text.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{text}"
    )
}

/// What one thread of a service does until the end.
fn work(client: &LockClient, number: usize, end: Instant) -> Result<()> {
    let options = LockOptions::new().lease(Lease::renewed(Duration::from_secs(1)));
    let gpus = client.semaphore("gpus", 2)?;
    for round in number.. {
        if Instant::now() >= end {
            break;
        }
        let order = client.mutex_with(format!("orders:{}", round % 10), options)?;
        match order.try_lock_for(Duration::from_millis(20)) {
            Ok(Some(guard)) => {
                sleep(Duration::from_millis(2));
                // Whether it was lost is what the metrics tell.
                drop(guard);
            }
            Ok(None) => {}
            // A busy server may be late, which the metrics tell, too.
            Err(error) if error.is_transient() => continue,
            Err(error) => return Err(error.into()),
        }
        drop(gpus.try_acquire()?);
    }
    Ok(())
}

fn contend(server: &Server, seconds: f64) -> Result<()> {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let client =
        |label| LockClient::builder(server.url()).label(label).observer(observer()).build();
    let services = [client("billing")?, client("shop")?];
    scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|number| {
                scope.spawn({
                    let client = &services[number % 2];
                    move || work(client, number, end)
                })
            })
            .collect();
        for cart in 0..CARTS {
            services[1].mutex(format!("carts:{cart}"))?.lock()?.release()?;
            if cart % 500 == 0 {
                let taken = services[0].mutex("orders:deleted")?.lock()?;
                cmd("DEL").arg("orders:deleted").query::<()>(&mut server.connection())?;
                drop(taken.check());
            }
        }
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a thread panicked")?)
    })
}

/// Reads the metrics as Prometheus does, and checks that they tell what happened.
fn scrape(address: &str) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let value = |begin: &str| {
        let lines = text.lines().filter(|line| line.starts_with(begin));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    for line in text.lines().filter(|line| !line.contains("_bucket{") && !line.starts_with('#')) {
        println!("{line}");
    }
    let classes = text.matches("leasehold_held{class=").count();
    let expected = [
        (
            "carts that were locked",
            value("leasehold_acquired_total{class=\"carts\"") == CARTS as f64,
        ),
        (
            "waits for the other service",
            value("leasehold_blocked_seconds_count{class=\"orders\"") > 0.0,
        ),
        ("its name", text.contains("blocker=\"billing\"") && text.contains("blocker=\"shop\"")),
        ("holds", value("leasehold_hold_seconds_count{class=\"orders\"") > 0.0),
        ("losses", value("leasehold_lost_total{class=\"orders\"") >= 20.0),
        ("permits that were busy", value("leasehold_busy_total{class=\"rest\"") > 0.0),
        ("gauges at zero", value("leasehold_held{") == 0.0 && value("leasehold_waiting{") == 0.0),
        ("few series", classes == 3 && text.lines().count() < 1_000),
    ];
    let missing = expected.iter().filter(|(_, is_seen)| !is_seen).map(|(what, _)| *what);
    let missing: Vec<&str> = missing.collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("not told: {}", missing.join(", ")).into())
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds = match &arguments[..] {
        [] => 60.0,
        [option, seconds] if option == "--seconds" => seconds.parse()?,
        _ => return Err("the only option is --seconds S".into()),
    };
    let builder = PrometheusBuilder::new();
    let builder =
        builder.set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)?;
    let handle = builder.install_recorder()?;
    let listener =
        TcpListener::bind("127.0.0.1:9184").or_else(|_| TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?.to_string();
    println!("http://{address}/metrics");
    spawn(move || serve(&listener, &handle));
    let server = Server::start()?;
    contend(&server, seconds)?;
    // Losses are told by threads of their own.
    let begin = Instant::now();
    loop {
        match scrape(&address) {
            Err(error) if begin.elapsed() > Duration::from_secs(10) => return Err(error),
            Err(_) => sleep(Duration::from_millis(200)),
            Ok(()) => return Ok(()),
        }
    }
}
