//! This library beside others, on one server and in one run.
//!
//! ```sh
//! cargo run --release --package leasehold-peers
//! ```
//!
//! Every library runs each row in turn, three times over. A figure is the median of its three. *By raw* is the rate in the
//! table divided by that of the raw lock: `SET NX PX` and a compare-and-delete script on a bare connection, which renews
//! nothing, has no tokens and no order. A library whose language is not here is skipped. `LEASEHOLD_SECONDS` is how long a
//! row is measured.

#![allow(clippy::print_stdout, reason = "a bench tells people its figures")]

mod peer;

use std::collections::BTreeMap;

use comfy_table::{Table, presets::ASCII_MARKDOWN};
use leasehold_interop::language::{self, Java, Python};
use leasehold_interop::{Peer, Result, worker};
use leasehold_support::stat::{jain, median};
use leasehold_support::{Server, or_skip, skip};
use redis::Commands as _;

use peer::Go;

const ROUNDS: usize = 3;
/// How long a library does the same before it is measured.
const WARM_MILLIS: u64 = 2_000;

/// What is measured: processes × threads, a name for all or for each thread, and how long each holds.
struct Row {
    title: &'static str,
    processes: usize,
    threads: usize,
    name: &'static str,
    hold_micros: u64,
}

const ROWS: [Row; 6] = [
    Row { title: "alone", processes: 1, threads: 1, name: "alone", hold_micros: 0 },
    Row { title: "8 names", processes: 1, threads: 8, name: "own:", hold_micros: 0 },
    Row { title: "32 names", processes: 1, threads: 32, name: "own:", hold_micros: 0 },
    Row { title: "2 × 4, hold 0", processes: 2, threads: 4, name: "one", hold_micros: 0 },
    Row { title: "2 × 4, hold 1 ms", processes: 2, threads: 4, name: "one", hold_micros: 1_000 },
    Row { title: "8 × 1, hold 1 ms", processes: 8, threads: 1, name: "one", hold_micros: 1_000 },
];

/// What one library did in one round of a row.
#[derive(Clone, Copy)]
struct Round {
    rate: f64,
    median: f64,
    p99: f64,
    /// Jain's index over the processes.
    fair: f64,
}

type Start<'a> = Box<dyn Fn(&str) -> Result<Peer> + 'a>;

/// Nothing if a call did not return.
fn measure(
    start: &Start<'_>,
    library: &str,
    url: &str,
    row: &Row,
    millis: u64,
) -> Result<Option<Round>> {
    let mut peers: Vec<Peer> = (0..row.processes).map(|_| start(url)).collect::<Result<_>>()?;
    // Each library has keys of its own: what it leaves is no other's.
    let (name, threads, micros) = (row.name, row.threads, row.hold_micros);
    let mut all = |key: &str, millis| -> Result<Vec<String>> {
        for peer in &mut peers {
            peer.say(&format!("bench {key}:{library}:{name} {threads} {millis} {micros}"))?;
        }
        peers.iter().map(|peer| peer.hear("")).collect()
    };
    // Connected, and compiled where that happens while a program runs: by the same row for a while.
    all("warm", WARM_MILLIS)?;
    let mut counts = Vec::new();
    let (mut middle, mut late) = (0.0, 0.0_f64);
    let replies = all("peer", millis)?;
    if replies.iter().any(|reply| reply == "stuck") {
        return Ok(None);
    }
    for reply in replies {
        let reply = reply.strip_prefix("done ").ok_or_else(|| format!("{library}: {reply}"))?;
        let figures: Vec<f64> =
            reply.split(' ').map(|figure| Ok(figure.parse()?)).collect::<Result<_>>()?;
        let [count, median, p99] = figures[..] else { return Err(reply.into()) };
        counts.push(count);
        middle += median / row.processes as f64;
        late = late.max(p99);
    }
    let rate = counts.iter().sum::<f64>() * 1_000.0 / millis as f64;
    Ok(Some(Round { rate, median: middle / 1e3, p99: late / 1e3, fair: jain(&counts) }))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [role, url, kind, lease] if role == "worker" => return worker::run(url, kind, lease),
        [role, library, url] if role == "peer" => return peer::serve(library, url),
        _ => {}
    }
    let Some(server) = or_skip(Server::builder().tcp().start()) else { return Ok(()) };
    let url = server.tcp_url();
    let mut redis = redis::Client::open(url.as_str())?.get_connection()?;
    let seconds = match std::env::var("LEASEHOLD_SECONDS") {
        Ok(seconds) => seconds.parse()?,
        Err(_) => 3,
    };

    let (java, python, go) = (Java::build()?, Python::build()?, Go::build()?);
    let mut libraries: Vec<(&'static str, Start<'_>)> = vec![
        ("raw", Box::new(|url| peer::start("raw", url))),
        ("leasehold", Box::new(|url| language::rust(url, "mutex"))),
        ("rslock", Box::new(|url| peer::start("rslock", url))),
        ("redlock", Box::new(|url| peer::start("redlock", url))),
    ];
    match &java {
        Some(java) => libraries.push(("Redisson", Box::new(|url| java.start(url)))),
        None => skip("no Redisson: there is no Java with Maven"),
    }
    match &go {
        Some(go) => {
            libraries.push(("redsync", Box::new(|url| go.start("redsync", url))));
            libraries.push(("rueidislock", Box::new(|url| go.start("rueidislock", url))));
        }
        None => skip("no redsync, no rueidislock: there is no Go"),
    }
    match &python {
        Some(python) => libraries.push(("redis-py", Box::new(|url| python.start(url)))),
        None => skip("no redis-py: there is no Python"),
    }

    println!(
        "{}, {} s a row, {ROUNDS} rounds; rates by raw, times in µs",
        server.version(),
        seconds
    );
    for row in &ROWS {
        let mut rounds: BTreeMap<&str, Vec<Round>> = BTreeMap::new();
        // How many rounds are left out, and how many keys of the lock were there then.
        let mut stuck: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for _ in 0..ROUNDS {
            for (library, start) in &libraries {
                let all = rounds.entry(library).or_default();
                let Some(round) = measure(start, library, &url, row, seconds * 1_000)? else {
                    let left: Vec<String> = redis.keys(format!("*peer:{library}:*"))?;
                    let (rounds, keys) = stuck.entry(library).or_default();
                    (*rounds, *keys) = (*rounds + 1, *keys + left.len());
                    continue;
                };
                all.push(round);
            }
        }
        let mut table = Table::new();
        table.load_preset(ASCII_MARKDOWN);
        table.set_header([row.title, "locks/s", "by raw", "median", "p99", "Jain"]);
        let of = |library: &str, figure: fn(&Round) -> f64| {
            median(&rounds[library].iter().map(figure).collect::<Vec<_>>())
        };
        for (library, _) in &libraries {
            if rounds[library].is_empty() {
                table.add_row([library, "-", "-", "-", "-", "-"]);
                continue;
            }
            let rate = |library| of(library, |round| round.rate);
            table.add_row([
                (*library).to_owned(),
                format!("{:.0}", rate(library)),
                format!("{:.2}", rate(library) / rate("raw")),
                format!("{:.0}", of(library, |round| round.median)),
                format!("{:.0}", of(library, |round| round.p99)),
                format!("{:.2}", of(library, |round| round.fair)),
            ]);
        }
        println!("\n{table}");
        for (library, (left_out, keys)) in stuck {
            println!(
                "{library}: {left_out} of {ROUNDS} rounds are left out, as a call had not returned 10 s after the \
                 end; keys of the lock in Redis then: {keys}"
            );
        }
    }
    Ok(())
}
