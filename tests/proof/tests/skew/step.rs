//! A server's clock is set, or another server takes its place whose clock differs by more than is allowed for: for how long
//! do two hold a lock, how many leases are asked about, and by how many commands?
//!
//! The client is quiet: nothing but its renewals tells the time, of some of its locks. The cost is counted with leases that
//! are not due for a renewal, and one lock that is taken and released.

use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use leasehold::LockClient;
use leasehold_support::{Server, WallClock};

use crate::arena::{Arena, Failover, Promotion};
use crate::hold::{Form, Held, Kind};

/// Renewed every three seconds.
const LEASE: Duration = Duration::from_secs(9);
/// Not renewed while its cost is counted.
const LONG: Duration = Duration::from_secs(90);
const FORMS: [Form; 2] = [Form::Fixed, Form::Renewed];
const LOCKS: u64 = 8;
const SOON: Duration = Duration::from_secs(30);
/// Twice what is allowed for where there are several servers.
const APART: Duration = Duration::from_millis(1_000);

struct Lock {
    kind: Kind,
    form: Form,
    name: String,
    held: Held,
}

fn take_all(client: &LockClient, prefix: &str, lease: Duration) -> Vec<Lock> {
    let mut locks = Vec::new();
    for form in FORMS {
        for kind in Kind::ALL {
            let name = format!("{prefix}{kind:?}-{form:?}");
            let held = kind.take(client, &name, form.options(lease)).expect("an answer");
            locks.push(Lock { kind, form, name, held: held.expect("it is free") });
        }
    }
    locks
}

/// For how long two held a lock of each form, at the most: from when another client that asks all the time got it until its
/// holder knew.
fn overlap(locks: &[Lock], rival: &LockClient) -> [Duration; 2] {
    let (mut most, mut had) = ([Duration::ZERO; 2], Vec::new());
    let begin = Instant::now();
    let mut open: Vec<&Lock> = locks.iter().collect();
    while begin.elapsed() < LEASE + Duration::from_secs(1) {
        open.retain(|lock| {
            let taken = lock.kind.take(rival, &lock.name, Form::Renewed.options(LEASE));
            let Ok(Some(held)) = taken else { return true };
            had.push((*lock, Instant::now(), held));
            false
        });
        for (lock, since, _held) in &had {
            if !lock.held.watch.remaining().is_zero() {
                let place = usize::from(lock.form == Form::Renewed);
                most[place] = most[place].max(since.elapsed());
            }
        }
        sleep(Duration::from_millis(1));
    }
    most
}

/// How many scripts the server was asked to run.
fn commands(server: &Server) -> u64 {
    let info = redis::cmd("INFO").arg("commandstats").query::<String>(&mut server.connection());
    let info = info.expect("an answer");
    let calls = |name: &str| {
        let line =
            info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.map_or(0, |rest| {
            rest.split(',').next().expect("a number").parse::<u64>().expect("one")
        })
    };
    calls("evalsha") + calls("eval")
}

/// How many commands follow a fault that the reply to a lock shows, that one and its release among them. The leases are
/// asked about by scripts.
fn cost(server: &Server, before: u64) -> u64 {
    let begin = Instant::now();
    while commands(server) < before + LOCKS {
        assert!(begin.elapsed() < SOON, "not all were asked about: {}", commands(server) - before);
        sleep(Duration::from_millis(5));
    }
    sleep(Duration::from_millis(200));
    commands(server) - before
}

fn turn(client: &LockClient, name: &str) {
    let begin = Instant::now();
    // A server that is promoted refuses for a moment.
    while let Err(error) = client.mutex(name).and_then(|lock| lock.lock()?.release()) {
        assert!(begin.elapsed() < SOON, "{error}");
    }
}

fn held(locks: &[Lock]) -> usize {
    locks.iter().filter(|lock| !lock.held.watch.remaining().is_zero()).count()
}

/// One server, and a client of it.
fn stage() -> (WallClock, Server, LockClient) {
    let clock = WallClock::new().expect("a clock");
    let server = Server::builder().envs(clock.variables()).start().expect("a server");
    let client = LockClient::open(server.url()).expect("a client");
    // The server knows all scripts from now on, so that each is sent once.
    let warm = take_all(&client, "warm-", Duration::from_secs(1));
    sleep(Duration::from_millis(700));
    drop(warm);
    (clock, server, client)
}

/// What was seen of one fault.
#[derive(Debug)]
struct Row {
    /// For how long two held a lock, fixed or renewed.
    both: [Duration; 2],
    cost: u64,
    /// How many locks are held after they were asked about.
    held: usize,
}

fn show(what: &str, Row { both: [fixed, renewed], cost, held }: &Row) {
    println!("| {what} | {fixed:.1?} | {renewed:.1?} | {LOCKS} | {cost} | {held} |");
}

const HEAD: &str =
    "| what | two valid: fixed | two valid: renewed | locks | commands | still held |";

/// A machine that stands still makes a measurement longer, so a row that is too long is measured again.
const ATTEMPTS: u32 = 5;

#[test]
fn clock_of_one_server_is_set() {
    println!("{HEAD}");
    let rows: Vec<_> = [300, -300, 5_000, -5_000, 600_000, -600_000]
        .map(|millis: i64| (millis, thread::spawn(move || of_a_step(millis))))
        .into_iter()
        .collect();
    for (millis, thread) in rows {
        let mut row = thread.join().expect("a row");
        for _ in 1..ATTEMPTS {
            if is_expected(millis, &row) {
                break;
            }
            row = of_a_step(millis);
        }
        show(&format!("set by {millis} ms"), &row);
        assert!(is_expected(millis, &row), "{millis}: {row:?}");
    }
}

fn is_expected(millis: i64, row: &Row) -> bool {
    // A lease that was not renewed since ends earlier there by as much, but no later than the next renewal tells.
    let most = match millis {
        ..=0 => Duration::ZERO,
        _ => Duration::from_millis(millis.unsigned_abs()).min(LEASE / 3 + LEASE / 9),
    };
    // A fixed lease that is still there when it is asked about may end after that.
    let most_of_fixed = if millis == 5_000 { Duration::from_secs(5) } else { most };
    let cost = if millis > LONG.as_millis() as i64 { 0 } else { LOCKS as usize };
    row.both[0] <= most_of_fixed && row.both[1] <= most && row.held == cost
}

fn of_a_step(millis: i64) -> Row {
    let (clock, server, client) = stage();
    let locks = take_all(&client, "cost-", LONG);
    turn(&client, "turn");
    let before = commands(&server);
    clock.set(millis * 1_000).expect("a clock");
    turn(&client, "another");
    let cost = cost(&server, before);
    let held = held(&locks);

    let (clock, server, client) = stage();
    let rival = LockClient::open(server.url()).expect("a client");
    let locks = take_all(&client, "both-", LEASE);
    clock.set(millis * 1_000).expect("a clock");
    Row { both: overlap(&locks, &rival), cost, held }
}

/// Another server takes the place of the first.
fn of_another<A: Arena>() {
    let mut arena = A::start().expect("it can");
    println!("{HEAD}");
    for _ in 0..ATTEMPTS {
        let Some(row) = moved(&mut arena) else { continue };
        if row.both.iter().any(|both| *both >= APART) || row.held < LOCKS as usize {
            continue;
        }
        show(&format!("{}: ahead by {APART:?}", A::NAME), &row);
        return;
    }
    panic!("the machine was too slow, or the clock was not looked at");
}

/// `None` if the lock did not come to the other server in time.
fn moved<A: Arena>(arena: &mut A) -> Option<Row> {
    let prefix = arena.prepare(APART);
    let client = arena.holder();
    let locks = take_all(&client, &prefix, LONG);
    let turned = format!("{prefix}turn");
    turn(&client, &turned);
    if !arena.bring() {
        return None;
    }
    let before = commands(arena.target());
    turn(&client, &turned);
    let cost = cost(arena.target(), before);
    let held = held(&locks);
    drop(locks);

    let prefix = arena.prepare(APART);
    let client = arena.holder();
    let locks = take_all(&client, &prefix, LEASE);
    arena.bring().then(|| Row { both: overlap(&locks, &arena.rival()), cost, held })
}

#[test]
fn master_whose_clock_differs_by_twice_the_bound() {
    of_another::<Promotion>();
}

#[test]
fn node_whose_clock_differs_by_twice_the_bound() {
    of_another::<Failover>();
}
