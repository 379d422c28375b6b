//! A process whose leases have tails and one of the tree before there were tails contend for one lock of one server: both
//! hand it over to the other, and each takes it over when the other was killed, or stands still, or the server does. At no
//! moment do two of them rely on it, as they recorded that on the one clock of the machine.
//!
//! The older tree comes out of the git history and is built with all that it needs, which takes minutes. So this is done only
//! where it is asked for:
//!
//! ```text
//! LEASEHOLD_OLDER=1 cargo test -p leasehold-proof --test older -- --nocapture
//! LEASEHOLD_OLDER=1 LEASEHOLD_SECONDS=600 cargo test -p leasehold-proof --test older -- --nocapture
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | `build` | the older tree, and the program that is built of it |
//! | `holder` | the part of a process, in either tree |
//! | `player` | the processes of a round, and what is done to them |
//! | `belief` | the checker |
#![allow(clippy::print_stdout, reason = "it tells what was tried")]

mod belief;
mod build;
mod holder;
mod player;

use std::path::Path;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use fastrand::Rng;
use leasehold::Lease;
use leasehold_proof::trial::{Plan, rest};
use leasehold_support::Server;
use leasehold_support::child::role;
use leasehold_support::history::now;

use belief::overlaps;
use holder::LEASE;
use player::Age::{Newer, Older};
use player::{Age, Round};

const TEST: &str = "older_and_newer_process_never_overlap";
const TAIL: &str = "LEASEHOLD_TAIL";
/// So long that its holder outlasts the time for which it leaves the lock to those who wait: the older ones cannot take it.
const LONG: u64 = 12_000;
const SHORT: u64 = 700;
/// So many holds each before a hand-over is believed to work.
const HANDED: usize = 20;

/// What is done in a round.
type Story = fn(&mut Round<'_>);

const STORIES: [(&str, [Age; 2], Story); 10] = [
    ("hand-overs", [Older, Newer(LONG)], hand_over),
    ("killed", [Older, Newer(LONG)], kill),
    ("killed", [Newer(SHORT), Older], kill),
    ("killed beside two", [Newer(LONG), Older], kill_beside_two),
    ("stopped until it is taken", [Older, Newer(LONG)], stop_until_taken),
    ("stopped until it is taken", [Newer(SHORT), Older], stop_until_taken),
    ("stopped beyond its lease", [Newer(LONG), Older], stop_beyond_lease),
    ("stopped while it is handed over", [Older, Newer(SHORT)], stop_receiver),
    ("stopped while it is handed over", [Newer(SHORT), Older], stop_receiver),
    ("server stopped", [Newer(LONG), Older], stop_server),
];

fn hand_over(round: &mut Round<'_>) {
    round.until("both have it again and again", |round| {
        (0..2).all(|player| round.holds(player).len() >= HANDED).then_some(())
    });
}

/// Until this player has it that did not, and knows that.
fn until_taken_by(round: &mut Round<'_>, player: usize, since: u64) {
    round.until("the other is to take it", |round| {
        round.holds(player).last().filter(|hold| hold.begin() > since).map(drop)
    });
}

fn kill(round: &mut Round<'_>) {
    round.stop_owner(0);
    let stopped = now();
    round.players[0].child.kill9();
    until_taken_by(round, 1, stopped);
}

/// The other newer one takes it when the lease is over, or gives it to the older one, which was before it in the line.
fn kill_beside_two(round: &mut Round<'_>) {
    round.join(Newer(LONG));
    round.stop_owner(0);
    let stopped = now();
    round.players[0].child.kill9();
    until_taken_by(round, 1, stopped);
    until_taken_by(round, 2, stopped);
}

fn stop_until_taken(round: &mut Round<'_>) {
    round.stop_owner(0);
    let place = round.holds(0).len() - 1;
    until_taken_by(round, 1, now());
    round.players[0].child.cont();
    round.until("it is told that it lost it", |round| round.holds(0)[place].is_lost.then_some(()));
}

fn stop_beyond_lease(round: &mut Round<'_>) {
    round.stop_owner(0);
    let place = round.holds(0).len() - 1;
    round.until("its lease is to end", |round| round.time_to_live().filter(|&left| left < LONG));
    round.players[0].child.cont();
    round.until("it comes back", |round| {
        let hold = &round.holds(0)[place];
        assert!(!hold.is_lost, "nobody can have taken it: {hold:?}");
        (hold.spans.len() > 1).then_some(())
    });
    until_taken_by(round, 1, now());
}

/// The lock is given to a waiter that stands still, and goes on to the giver when that does not claim it.
fn stop_receiver(round: &mut Round<'_>) {
    round.stop_waiter(1, 0);
    round.until_owned_by(1);
    until_taken_by(round, 0, now());
    round.players[1].child.cont();
    until_taken_by(round, 1, now());
}

fn stop_server(round: &mut Round<'_>) {
    round.until_owned_by(0);
    round.server.pause();
    sleep(LEASE * 2);
    round.server.resume();
    let resumed = now();
    (0..2).for_each(|player| until_taken_by(round, player, resumed));
}

/// Two of each, to which anything happens.
fn torment(round: &mut Round<'_>) {
    let Plan { time, seed } = Plan::new();
    println!("older: LEASEHOLD_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    [Older, Newer(SHORT)].into_iter().for_each(|age| round.join(age));
    let mut living = [0, 1, 2, 3];
    let begin = Instant::now();
    while begin.elapsed() < time {
        rest(&mut rng);
        let place = rng.usize(..living.len());
        let victim = living[place];
        if rng.bool() {
            round.players[victim].child.kill9();
            living[place] = round.players.len();
            round.join(round.ages[victim]);
        } else {
            round.players[victim].child.stop();
            sleep(LEASE.mul_f64(4.0 * rng.f64().powi(2)));
            round.players[victim].child.cont();
        }
    }
}

/// What was seen.
#[derive(Default)]
struct Sum {
    holds: usize,
    /// From an older one to a newer one, and the other way.
    passed: [usize; 2],
    came_back: usize,
    lost: usize,
    overlaps: Vec<String>,
}

fn play(server: &Server, older: &Path, name: &str, ages: &[Age], story: Story) -> Sum {
    let mut round = Round::start(server, older, name, ages);
    story(&mut round);
    round.players.iter_mut().for_each(|player| player.child.kill9());
    let mut holds = round.holds_of_all();
    let overlaps = overlaps(&mut holds);
    let mut sum = Sum { holds: holds.len(), overlaps, ..Sum::default() };
    for pair in holds.windows(2) {
        let newer = |place: usize| matches!(round.ages[pair[place].player], Newer(_));
        match (newer(0), newer(1)) {
            (false, true) => sum.passed[0] += 1,
            (true, false) => sum.passed[1] += 1,
            _ => {}
        }
    }
    sum.came_back = holds.iter().map(|hold| hold.spans.len() - 1).sum();
    sum.lost = holds.iter().filter(|hold| hold.is_lost).count();
    // The longest time for which nobody had it is that after the fault.
    let gaps = holds.windows(2).map(|pair| pair[1].begin().saturating_sub(pair[0].end()));
    let gap = Duration::from_nanos(gaps.max().unwrap_or_default());
    println!(
        "{name}: {} holds, passed {} times to the newer and {} to the older; {} came back, {} lost; for {gap:.1?} \
         nobody had it; {} overlaps",
        sum.holds,
        sum.passed[0],
        sum.passed[1],
        sum.came_back,
        sum.lost,
        sum.overlaps.len()
    );
    sum
}

#[test]
fn older_and_newer_process_never_overlap() {
    if role().is_some() {
        let tail = std::env::var(TAIL).expect("a tail").parse().expect("a number");
        return holder::serve(Lease::renewed(LEASE).recoverable_for(Duration::from_millis(tail)));
    }
    let Some(older) = build::older_program() else { return };
    let server = Server::start().unwrap();
    let sums: Vec<Sum> = thread::scope(|scope| {
        let stories = STORIES.iter().enumerate().map(|(number, (what, ages, story))| {
            let (server, older) = (&server, older.as_path());
            scope.spawn(move || {
                let name = format!("{:?} {what}, {number}", ages[0]);
                // One that stands still must not keep the others from what they do.
                let own = what.contains("server").then(|| Server::start().unwrap());
                play(own.as_ref().unwrap_or(server), older, &name, ages, *story)
            })
        });
        let mut stories: Vec<_> = stories.collect();
        let (server, older) = (&server, older.as_path());
        let pair = [Older, Newer(LONG)];
        stories.push(scope.spawn(move || play(server, older, "two of each", &pair, torment)));
        stories.into_iter().map(|story| story.join().expect("a round")).collect()
    });
    let sum = |of: fn(&Sum) -> usize| sums.iter().map(of).sum::<usize>();
    println!(
        "an older and a newer process: {} holds, passed {} times to the newer and {} to the older; {} came back, {} \
         lost; {} overlaps",
        sum(|sum| sum.holds),
        sum(|sum| sum.passed[0]),
        sum(|sum| sum.passed[1]),
        sum(|sum| sum.came_back),
        sum(|sum| sum.lost),
        sum(|sum| sum.overlaps.len())
    );
    let found: Vec<&String> = sums.iter().flat_map(|sum| &sum.overlaps).collect();
    assert!(found.is_empty(), "{found:#?}");
}
