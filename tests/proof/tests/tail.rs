//! A lease of 3 s with a tail of 27 s on a real server: its holder is killed, or is stopped, or the server is, with somebody
//! who waits for the lock and without.
//!
//! ```text
//! LEASEHOLD_RUNS=200 cargo test -p leasehold-proof --test tail -- --nocapture dead
//! LEASEHOLD_STOPS=1,5,20,28,31 cargo test -p leasehold-proof --test tail -- --nocapture silent
//! ```
#![allow(clippy::print_stdout, reason = "it tells what was tried")]

use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use leasehold::{Guard, Lease, LockClient, LockOptions, LossCause};
use leasehold_support::child::{hear, role, tell};
use leasehold_support::history::now;
use leasehold_support::lag::Spent;
use leasehold_support::{Child, Server, lag, stat};

const DEAD: &str = "waiter_has_the_lock_of_a_dead_holder_when_its_lease_is_over";
const SILENT: &str = "silent_holder_comes_back_unless_somebody_waits";
const LEASE: Duration = Duration::from_secs(3);
const TAIL: Duration = Duration::from_secs(27);
/// How late a waiter may be.
const LATE: Duration = Duration::from_millis(200);
const SOON: Duration = Duration::from_secs(40);
/// So many pairs at a time.
const AT_ONCE: usize = 10;

fn var(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set"))
}

fn take() -> Guard {
    let options = LockOptions::new().lease(Lease::renewed(LEASE).recoverable_for(TAIL));
    let client = LockClient::builder(var("LEASEHOLD_URL")).give_up_after(SOON).build().unwrap();
    client.mutex_with(var("LEASEHOLD_NAME"), options).unwrap().lock().unwrap()
}

/// Tells what becomes of its hold, until it is told to end.
fn hold() {
    let guard = take();
    tell(&format!("held {}", guard.fencing_token()));
    thread::spawn(|| {
        while hear().is_some() {}
        std::process::exit(0);
    });
    let (mut told, mut until) = (String::new(), 0);
    loop {
        let state = match guard.loss() {
            Some(loss) if loss.cause() == LossCause::Taken => "taken".to_owned(),
            Some(loss) => format!("lost {loss}"),
            None if guard.is_valid() => format!("valid {}", guard.fencing_token()),
            None => "silent".to_owned(),
        };
        if state != told {
            tell(&state);
            told = state;
        }
        // The earlier reading of the two clocks is that of the recorded one.
        let end = now() + u64::try_from(guard.remaining().as_nanos()).unwrap();
        if end > until + 50_000_000 {
            tell(&format!("until {end}"));
            until = end;
        }
        sleep(Duration::from_millis(2));
    }
}

/// Waits for the lock, and tells when it has it.
fn wait() {
    let guard = take();
    tell(&format!("got {} {}", now(), guard.fencing_token()));
    while hear().is_some() {}
    drop(guard);
}

fn plays() -> bool {
    match role().as_deref() {
        Some("holder") => hold(),
        Some(_) => wait(),
        None => return false,
    }
    true
}

fn start(what: &str, test: &str, server: &Server, name: &str) -> Child {
    let child = Child::role(what).test(test);
    child.env("LEASEHOLD_URL", server.url()).env("LEASEHOLD_NAME", name).start().unwrap()
}

/// A process that waits for the lock, and is in its queue.
fn start_waiter(test: &str, server: &Server, name: &str) -> Child {
    let waiter = start("waiter", test, server, name);
    let (mut connection, begin) = (server.connection(), Instant::now());
    let queue = format!("{{{name}}}:queue");
    while redis::cmd("ZCARD").arg(&queue).query::<u32>(&mut connection).unwrap() == 0 {
        assert!(begin.elapsed() < SOON, "it does not wait");
        sleep(Duration::from_millis(1));
    }
    waiter
}

fn span(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

fn number(text: &str) -> u64 {
    text.split(' ').next().unwrap().parse().unwrap()
}

/// How late a waiter had the lock of a dead holder.
struct Late {
    /// After the end of the lease, by the clock of the machine.
    whole: Duration,
    /// Less the time in which the machine withheld a processor.
    spent: Duration,
}

fn kill_one(server: &Server, name: &str) -> Late {
    let mut holder = start("holder", DEAD, server, name);
    holder.expect_line("held", SOON);
    let mut until = number(&holder.expect_line("until", SOON));
    let mut waiter = start_waiter(DEAD, server, name);
    sleep(Duration::from_millis(fastrand::u64(1_000..2_500)));
    holder.kill9();
    let asked = now();
    let left: i64 = redis::cmd("PTTL").arg(name).query(&mut server.connection()).unwrap();
    let key = Duration::from_millis(u64::try_from(left).unwrap());
    let ends = asked + u64::try_from(key.saturating_sub(TAIL).as_nanos()).unwrap();
    while let Some(line) = holder.hear_line("until", Duration::from_millis(50)) {
        until = number(&line);
    }
    let got = number(&waiter.expect_line("got", SOON));
    assert!(
        got >= until,
        "{name}: it has the lock {:?} before the holder's validity ends",
        span(until - got)
    );
    // Its key would have been there for another 27 s.
    assert!(span(got - asked) < key, "{name}: it has the lock only when its key is gone");
    let moment = |at: u64| Instant::now().checked_sub(span(now().saturating_sub(at))).unwrap();
    let spent = moment(got).spent_since(moment(ends));
    Late { whole: span(got.saturating_sub(ends)), spent }
}

#[test]
fn waiter_has_the_lock_of_a_dead_holder_when_its_lease_is_over() {
    if plays() {
        return;
    }
    lag::watch();
    let runs: usize = std::env::var("LEASEHOLD_RUNS").map_or(5, |runs| runs.parse().unwrap());
    let server = Server::start().unwrap();
    let mut lates = Vec::new();
    while lates.len() < runs {
        let begun = lates.len();
        thread::scope(|scope| {
            let run = |number| {
                let server = &server;
                scope.spawn(move || kill_one(server, &format!("lock-{number}")))
            };
            let threads: Vec<_> = (begun..runs.min(begun + AT_ONCE)).map(run).collect();
            lates.extend(threads.into_iter().map(|thread| thread.join().expect("a run")));
        });
    }
    let figures = |of: fn(&Late) -> Duration| {
        let millis: Vec<f64> = lates.iter().map(|late| of(late).as_secs_f64() * 1e3).collect();
        (stat::median(&millis), millis.iter().copied().fold(0.0, f64::max))
    };
    let ((median, most), (spent, most_spent)) = (figures(|it| it.whole), figures(|it| it.spent));
    println!(
        "{runs} kills: the waiter has the lock {median:.1} ms after the end of the lease (median), {most:.1} ms (most); \
         without the time in which the machine withheld a processor {spent:.1} ms and {most_spent:.1} ms"
    );
    // One run may meet a machine that stands still. Most do not.
    assert!(spent <= LATE.as_secs_f64() * 1e3, "{spent} ms late");
}

/// Whose process stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    Server,
    Holder,
}

fn stop_one(stopped: Stopped, seconds: u64, waits: bool) {
    let server = Server::start().unwrap();
    let mut holder = start("holder", SILENT, &server, "lock");
    let token = holder.expect_line("held", SOON);
    let mut waiter = waits.then(|| start_waiter(SILENT, &server, "lock"));
    holder.expect_line(&format!("valid {token}"), SOON);
    match stopped {
        Stopped::Server => server.pause(),
        Stopped::Holder => holder.stop(),
    }
    sleep(Duration::from_secs(seconds));
    match stopped {
        Stopped::Server => server.resume(),
        Stopped::Holder => holder.cont(),
    }
    let what = format!(
        "{stopped:?} stopped for {seconds} s, {}",
        if waits { "a waiter" } else { "nobody waits" }
    );
    // One that was stopped itself may learn of its silence and of what follows at once.
    if stopped == Stopped::Server && seconds > LEASE.as_secs() {
        holder.expect_line("silent", SOON);
    }
    if waits && seconds > LEASE.as_secs() {
        let got = waiter.as_mut().expect("it waits").expect_line("got", SOON);
        // After its tail it knows by itself that the lock is lost, and not to whom.
        let told = if seconds > (LEASE + TAIL).as_secs() { "lost" } else { "taken" };
        holder.expect_line(told, SOON);
        let later = got.split(' ').nth(1).unwrap();
        assert!(later.parse::<u64>().unwrap() > token.parse().unwrap(), "{what}");
        println!("{what}: the waiter has it, and the holder is told");
    } else if seconds > (LEASE + TAIL).as_secs() {
        println!("{what}: lost {}", holder.expect_line("lost", SOON));
    } else if seconds > LEASE.as_secs() {
        holder.expect_line(&format!("valid {token}"), SOON);
        println!("{what}: valid again, with the same token");
    } else {
        sleep(LEASE);
        let told = holder.output();
        assert!(
            !told.contains("silent") && !told.contains("lost") && !told.contains("taken"),
            "{what}: {told}"
        );
        println!("{what}: it was valid all the time");
    }
}

#[test]
fn silent_holder_comes_back_unless_somebody_waits() {
    if plays() {
        return;
    }
    let stops = std::env::var("LEASEHOLD_STOPS").unwrap_or_else(|_| "1,5".to_owned());
    let stops: Vec<u64> = stops.split(',').map(|seconds| seconds.parse().unwrap()).collect();
    thread::scope(|scope| {
        for &seconds in &stops {
            for stopped in [Stopped::Server, Stopped::Holder] {
                for waits in [false, true] {
                    scope.spawn(move || stop_one(stopped, seconds, waits));
                }
            }
        }
    });
}
