//! Several locks at once, over a real server.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{
    SOON, ask, behind_proxy, exists, heavy, ms, open, open_at, patient, server, until, warm,
};
use leasehold::{LockClient, MultiGuard, Part};
use leasehold_support::child::{role, tell};
use leasehold_support::fault::Operation;
use leasehold_support::lag::Spent as _;
use leasehold_support::{Action, Child, Direction, Fault, Server};

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("x{number}")).collect()
}

fn parts(client: &LockClient, names: &[String]) -> Vec<Part> {
    names.iter().map(|name| Part::from(&client.mutex(name).unwrap())).collect()
}

fn lock_all(client: &LockClient, names: &[String]) -> MultiGuard {
    client.lock_all(parts(client, names)).unwrap()
}

/// All requests arrive while no reply has: there is one round trip, and not one for each lock.
#[test]
fn locks_and_releases_travel_in_one_round_trip_each() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let names = names(7);
    lock_all(&client, &names).release().unwrap();
    let held = |operation| proxy.add(Fault::reply("", Action::Hold).at(operation));
    thread::scope(|scope| {
        server.reset_stats();
        let replies = held(Operation::Acquire);
        let taken = scope.spawn(|| lock_all(&client, &names).into_guards().len());
        assert!(replies.wait_fired(SOON));
        until("all requests arrive", || server.command_calls(&["evalsha"]) == 7);
        assert!(names.iter().all(|name| exists(&server, name)));
        assert!(!taken.is_finished());
        replies.release();
        // Each guard of its own releases by itself.
        assert_eq!(taken.join().unwrap(), 7);
    });
    until("they are released", || !names.iter().any(|name| exists(&server, name)));

    let guard = lock_all(&client, &names);
    server.reset_stats();
    let replies = held(Operation::Release);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            assert!(replies.wait_fired(SOON));
            until("all releases arrive", || server.command_calls(&["evalsha"]) == 7);
            replies.release();
        });
        guard.release().unwrap();
        watch.join().unwrap();
    });
    assert!(!names.iter().any(|name| exists(&server, name)));
}

/// The connection breaks when half of the replies have come: the others are asked for again, under the same
/// values, and nothing is taken twice.
#[test]
fn broken_pipeline_goes_on_with_what_has_no_reply() {
    let (server, proxy) = behind_proxy();
    let client = open_at(proxy.url());
    let names = names(5);
    lock_all(&client, &names).release().unwrap();
    server.reset_stats();
    let cut = proxy.add(Fault::reply("", Action::Cut).at(Operation::Acquire).nth(3));
    // One attempt: what the first pipeline took must not be in the way of the second.
    let guard = client.try_lock_all(parts(&client, &names)).unwrap().expect("nobody else has them");
    assert_eq!(cut.fired(), 1);
    // Those that were granted before the connection broke may be asked about since (rule 61).
    let scripts = server.command_calls(&["evalsha"]);
    assert!((5 + 3..=5 + 3 + 2).contains(&scripts), "{scripts} scripts");
    for (name, token) in guard.fencing_tokens() {
        let fence = format!("{{{}}}:fence", String::from_utf8_lossy(name));
        assert_eq!(ask::<u64>(&server, &["GET", &fence]), token.get());
    }
    guard.check().unwrap();
    // The same in the release: the locks whose replies were lost are gone, and it is not known why.
    let cut = proxy.add(Fault::reply("", Action::Cut).at(Operation::Release).nth(3));
    let error = guard.release().unwrap_err();
    assert_eq!(cut.fired(), 1);
    assert!(error.is_unknown_outcome(), "{error:?}");
    assert!(!names.iter().any(|name| exists(&server, name)));
    assert!(proxy.tally(Direction::Request, Operation::Release).seen >= 5 + 3);
}

/// One script that the server does not know, or all of them, cost one more round trip.
#[test]
fn unknown_scripts_are_sent_whole() {
    let server = server();
    let client = open(&server);
    let names = names(3);
    lock_all(&client, &names).release().unwrap();
    ask::<()>(&server, &["SCRIPT", "FLUSH"]);
    let guard = lock_all(&client, &names);
    assert!(guard.is_valid() && guard.remaining() > ms(29_000));
    guard.release().unwrap();
}

/// The child process: five philosophers.
#[test]
fn roles() {
    if role().as_deref() == Some("philosophers") {
        let var = |name: &str| std::env::var(name).unwrap();
        let rounds: u64 = var("ROUNDS").parse().unwrap();
        let forks: usize = var("FORKS").parse().unwrap();
        let client = open_at(var("URL"));
        let slowest = thread::scope(|scope| {
            let dine = |number| {
                let client = client.clone();
                let url = var("URL");
                scope.spawn(move || dine(&client, &url, number, rounds, forks))
            };
            let philosophers: Vec<_> = (0..5).map(dine).collect();
            philosophers.into_iter().map(|it| it.join().unwrap()).max().unwrap()
        });
        tell(&format!("slowest {}", slowest.as_millis()));
    }
}

/// One philosopher, who takes two or three forks in any order. Returns how long the slowest call took.
fn dine(client: &LockClient, url: &str, number: u64, rounds: u64, forks: usize) -> Duration {
    let mut random = fastrand::Rng::with_seed(u64::from(std::process::id()) * 5 + number);
    let mut redis = redis::Client::open(url).unwrap().get_connection().unwrap();
    let mut slowest = Duration::ZERO;
    for _ in 0..rounds {
        let mut chosen = BTreeSet::new();
        let count = random.usize(2..=3);
        while chosen.len() < count {
            chosen.insert(random.usize(0..forks));
        }
        let mut chosen: Vec<usize> = chosen.into_iter().collect();
        random.shuffle(&mut chosen);
        let parts = chosen.iter().map(|fork| match fork % 3 {
            2 => Part::from(&client.reentrant(format!("fork{fork}")).unwrap()),
            _ => Part::from(&client.mutex(format!("fork{fork}")).unwrap()),
        });
        let begin = Instant::now();
        let guard = client.lock_all(parts.collect::<Vec<_>>()).unwrap();
        let took = begin.spent();
        assert!(took < SOON, "{took:?} for {chosen:?}");
        slowest = slowest.max(took);
        // Nobody else eats with one of them.
        let plates: Vec<String> = chosen.iter().map(|fork| format!("plate{fork}")).collect();
        let mut set = redis::cmd("MSETNX");
        plates.iter().for_each(|plate| _ = set.arg(plate).arg(number));
        assert_eq!(set.query::<u32>(&mut redis).unwrap(), 1, "two have one of {chosen:?}");
        let gone: usize = redis::cmd("DEL").arg(&plates).query(&mut redis).unwrap();
        assert_eq!(gone, count);
        assert!(guard.is_valid(), "{:?}", guard.loss());
        guard.release().unwrap();
    }
    slowest
}

/// Fifteen philosophers in three processes.
fn dinner(server: &Server, rounds: u64, forks: usize) {
    let seat = |_| {
        let child = Child::role("philosophers").test("lock_all::roles").env("URL", server.url());
        child.env("ROUNDS", rounds.to_string()).env("FORKS", forks.to_string()).start().unwrap()
    };
    let mut children: Vec<Child> = (0..3).map(seat).collect();
    let begin = Instant::now();
    let slowest = children.iter_mut().map(|child| {
        child
            .expect_line("slowest ", SOON * 60)
            .trim_start_matches("slowest ")
            .parse::<u64>()
            .unwrap()
    });
    let slowest = slowest.max().unwrap();
    let took = begin.elapsed();
    let _ =
        writeln!(io::stdout(), "{forks} forks: the slowest call took {slowest} ms, all {took:?}");
    drop(children);
    let locked = || (0..forks).any(|fork| exists(server, &format!("fork{fork}")));
    until("all forks are free", || !locked());
}

#[test]
fn philosophers_of_three_processes_all_eat() {
    let _turn = heavy();
    let server = server();
    warm(&server);
    dinner(&server, 40, 5);
}

/// 20,000 rounds on each table.
#[test]
#[ignore = "takes minutes"]
fn philosophers_dine_for_long() {
    let _turn = heavy();
    let server = server();
    warm(&server);
    for forks in [5, 15] {
        dinner(&server, 20_000 / 15 + 1, forks);
    }
}

/// How many bytes the server has received.
fn received(server: &Server) -> u64 {
    let info: String = ask(server, &["INFO", "stats"]);
    let line = info.lines().find_map(|line| line.strip_prefix("total_net_input_bytes:"));
    line.expect("a count").trim().parse().expect("a number")
}

/// After a restart, or a `SCRIPT FLUSH`, no script is known.
#[test]
fn many_locks_bring_a_forgotten_script_along_once() {
    let _turn = heavy();
    let server = server();
    let client = patient(LockClient::builder(server.url())).announce(false).build().unwrap();
    let names = names(10_000);
    let bytes = || {
        let before = received(&server);
        let guard = lock_all(&client, &names);
        let taken = received(&server);
        guard.release().unwrap();
        (taken - before, received(&server) - taken)
    };
    bytes();
    let warm = bytes();
    ask::<()>(&server, &["SCRIPT", "FLUSH"]);
    let cold = bytes();
    writeln!(
        io::stderr(),
        "bytes of a lock_all and its release: {warm:?}, without scripts {cold:?}"
    )
    .unwrap();
    assert!(cold.0 <= warm.0 * 2 && cold.1 <= warm.1 * 2, "{warm:?} {cold:?}");
}
