//! Clients that take locks all the time, and what was seen of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as Cell, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use leasehold::{Lease, LockClient, LockOptions, Mutex, Result};

use crate::lab::until;

/// How long a turn waits for its lock.
const WAIT: Duration = Duration::from_millis(300);
/// How often a holder looks whether its lease is valid, and writes.
const LOOK: Duration = Duration::from_millis(1);
/// The pause after an error.
const PAUSE: Duration = Duration::from_millis(5);
/// Locks that are granted after a fault show that it is over.
const TURNS_AFTER: usize = 10;

/// The lock that threads take in turns.
pub(crate) const TURNS: &str = "{work}-turns";
/// The lock that one client keeps, and another wants. It has the same tag, so that one node of a cluster has both.
pub(crate) const KEPT: &str = "{work}-kept";

/// The lease of all locks.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

pub(crate) fn options() -> LockOptions {
    LockOptions::new().lease(Lease::renewed(LEASE))
}

/// One hold.
#[derive(Clone, Copy, Debug)]
struct Turn {
    client: usize,
    /// Before the call that took the lock.
    begun: Instant,
    /// After it.
    granted: Instant,
    /// When the holder last asked whether its lease is valid, and it was.
    until: Instant,
    token: u64,
}

/// A resource that compares tokens, and what happened.
#[derive(Debug, Default)]
struct Seen {
    turns: HashMap<String, Vec<Turn>>,
    /// The greatest token that has written.
    written: HashMap<String, u64>,
    refused: usize,
    lost: usize,
    errors: BTreeMap<String, usize>,
}

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No two at a time, and tokens grow.
    Always,
    /// The tokens of each client grow. While two hold a lock, the first may pass its lease on between its threads, with
    /// tokens below that of the second.
    TheToken,
}

/// Threads that take locks.
#[derive(Debug, Default)]
pub(crate) struct Work {
    seen: Arc<Cell<Seen>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// What the row of a fault tells.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) grants: usize,
    pub(crate) overlaps: usize,
    /// For how long two relied on a lock, from when the second of them got it.
    pub(crate) longest: Duration,
    pub(crate) refused: usize,
    /// Holds whose token is not above those of all earlier holds.
    pub(crate) backwards: usize,
    /// Holds whose token is not above those of all earlier holds of the same client.
    pub(crate) within: usize,
    pub(crate) gap: Duration,
}

fn lock(seen: &Cell<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work {
    /// Three threads of two clients take turns; the first client keeps a lock, and the second wants it.
    pub(crate) fn start(one: &LockClient, other: &LockClient) -> Work {
        let lock = |client: &LockClient, name: &str| client.mutex_with(name, options());
        Work::start_with(|name| lock(one, name), |name| lock(other, name))
    }

    /// The same with the locks that these make.
    pub(crate) fn start_with(
        one: impl Fn(&str) -> Result<Mutex>,
        other: impl Fn(&str) -> Result<Mutex>,
    ) -> Work {
        let mut work = Work::default();
        for (mutex, client, name, hold) in [
            (one(TURNS), 0, TURNS, 2),
            (other(TURNS), 1, TURNS, 3),
            (other(TURNS), 1, TURNS, 1),
            (one(KEPT), 0, KEPT, 3_600_000),
            (other(KEPT), 1, KEPT, 20),
        ] {
            work.add(mutex.expect("a lock"), client, name, Duration::from_millis(hold));
        }
        until("locks are taken", || work.grants(TURNS) > 0 && work.begun(KEPT));
        work
    }

    /// A thread that takes a lock and keeps it for this long, again and again.
    fn add(&mut self, mutex: Mutex, client: usize, name: &'static str, hold: Duration) {
        let (seen, stop) = (Arc::clone(&self.seen), Arc::clone(&self.stop));
        let body = move || {
            while !stop.load(Ordering::Relaxed) {
                if let Some(turn) = turn(&mutex, name, hold, &seen, &stop) {
                    let turn = Turn { client, ..turn };
                    lock(&seen).turns.entry(name.to_owned()).or_default().push(turn);
                }
            }
        };
        self.threads.push(thread::spawn(body));
    }

    /// Whether a lock was ever had. A hold counts as a grant only when it is over.
    fn begun(&self, name: &str) -> bool {
        lock(&self.seen).written.contains_key(name)
    }

    pub(crate) fn grants(&self, name: &str) -> usize {
        lock(&self.seen).turns.get(name).map_or(0, Vec::len)
    }

    /// How many holds have ended as lost.
    pub(crate) fn lost(&self) -> usize {
        lock(&self.seen).lost
    }

    /// Waits until locks are granted again, ends the work, and judges.
    #[track_caller]
    pub(crate) fn end(mut self, what: &str, verdict: Verdict) -> Row {
        let before = self.grants(TURNS);
        until("locks are granted afterwards", || self.grants(TURNS) >= before + TURNS_AFTER);
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("a thread that takes locks");
        }
        let seen = lock(&self.seen);
        let row = seen.row();
        let word = match verdict {
            Verdict::Always => "always",
            Verdict::TheToken => "the token",
        };
        println!(
            "| {what} | {word} | {} | {} | {:.0?} | {} | {} | {:.1?} | {} | {:?} |",
            row.grants,
            row.overlaps,
            row.longest,
            row.refused,
            row.backwards,
            row.gap,
            seen.lost,
            seen.errors
        );
        assert_eq!(row.within, 0, "a client's token is not above its earlier ones: {row:?}");
        if verdict == Verdict::Always {
            assert_eq!((row.overlaps, row.backwards), (0, 0), "two at a time: {row:?}");
        }
        row
    }
}

/// Takes a lock once, if it is to be had.
fn turn(
    mutex: &Mutex,
    name: &str,
    hold: Duration,
    seen: &Cell<Seen>,
    stop: &AtomicBool,
) -> Option<Turn> {
    let note = |error: leasehold::Error| {
        *lock(seen).errors.entry(format!("{:?}", error.kind())).or_default() += 1;
        sleep(PAUSE);
    };
    let begun = Instant::now();
    let taken = mutex.try_lock_for(WAIT);
    let guard = match taken {
        Ok(Some(guard)) => guard,
        Ok(None) => return None,
        Err(error) => {
            note(error);
            return None;
        }
    };
    let granted = Instant::now();
    let token = guard.fencing_token().get();
    let (mut until, mut is_valid) = (granted, true);
    while is_valid && until < granted + hold && !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        is_valid = guard.is_valid();
        if is_valid {
            until = now.max(granted);
            let mut seen = lock(seen);
            let written = seen.written.entry(name.to_owned()).or_default();
            if token >= *written {
                *written = token;
            } else {
                seen.refused += 1;
            }
            drop(seen);
            sleep(LOOK);
        }
    }
    match guard.release() {
        Err(error) if error.is_lost() => lock(seen).lost += 1,
        Err(error) => note(error),
        Ok(()) => {}
    }
    Some(Turn { client: 0, begun, granted, until, token })
}

impl Seen {
    fn row(&self) -> Row {
        let mut row = Row {
            grants: 0,
            overlaps: 0,
            longest: Duration::ZERO,
            refused: self.refused,
            backwards: 0,
            within: 0,
            gap: Duration::ZERO,
        };
        for (name, turns) in &self.turns {
            let mut turns = turns.clone();
            turns.sort_by_key(|turn| turn.granted);
            row.grants += turns.len();
            // The window that ends last, of those that began before, and when the first one came beside it.
            let mut latest: Option<(Turn, Option<Instant>)> = None;
            for turn in &turns {
                if let Some((before, beside)) = &mut latest
                    && turn.granted < before.until
                {
                    let since = *beside.get_or_insert(turn.granted);
                    row.overlaps += 1;
                    row.longest = row.longest.max(before.until.min(turn.until) - since);
                }
                latest = latest.filter(|(before, _)| before.until >= turn.until);
                latest = latest.or(Some((*turn, None)));
            }
            row.backwards += backwards(&turns);
            for client in 0..2 {
                let own: Vec<Turn> =
                    turns.iter().filter(|turn| turn.client == client).copied().collect();
                row.within += backwards(&own);
            }
            if name == TURNS {
                let gaps = turns.windows(2).map(|pair| pair[1].granted - pair[0].granted);
                row.gap = gaps.max().unwrap_or_default();
            }
        }
        row
    }
}

/// How many of these, in the order of their grants, have a token that is not above those of all that were granted before
/// they were asked for.
fn backwards(turns: &[Turn]) -> usize {
    let greatest: Vec<u64> = turns
        .iter()
        .scan(0, |greatest, turn| {
            *greatest = turn.token.max(*greatest);
            Some(*greatest)
        })
        .collect();
    let is_not_above = |turn: &&Turn| {
        let earlier = turns.partition_point(|other| other.granted < turn.begun);
        earlier > 0 && greatest[earlier - 1] >= turn.token
    };
    turns.iter().filter(is_not_above).count()
}

#[test]
fn overlaps_and_tokens_that_do_not_grow_are_found() {
    let start = Instant::now();
    let at = |millis| start + Duration::from_millis(millis);
    let turn = |begun, granted, until, token| Turn {
        client: 0,
        begun: at(begun),
        granted: at(granted),
        until: at(until),
        token,
    };
    let row = |turns: Vec<Turn>| {
        let seen = Seen { turns: [(TURNS.to_owned(), turns)].into(), ..Seen::default() };
        seen.row()
    };
    let sound = row(vec![turn(0, 1, 5, 1), turn(2, 6, 9, 3), turn(0, 12, 13, 2)]);
    assert_eq!((sound.grants, sound.overlaps, sound.backwards), (3, 0, 0));
    assert_eq!(sound.gap, Duration::from_millis(6));
    // One within another, and one that begins before the long one ends.
    let twice = row(vec![turn(0, 1, 20, 1), turn(2, 3, 4, 2), turn(5, 8, 30, 3)]);
    assert_eq!((twice.overlaps, twice.longest), (2, Duration::from_millis(17)));
    let lower = row(vec![turn(0, 1, 2, 5), turn(3, 4, 5, 5), turn(6, 7, 8, 4)]);
    assert_eq!((lower.backwards, lower.within), (2, 2));
    let other = Turn { client: 1, ..turn(3, 4, 5, 4) };
    let apart = row(vec![turn(0, 1, 2, 5), other, turn(6, 7, 8, 6)]);
    assert_eq!((apart.backwards, apart.within), (1, 0));
}
