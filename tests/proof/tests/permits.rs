//! Torture of a semaphore: processes take permits, and are killed and stopped, while the limit changes. Afterwards
//! rule 45 is checked over all that they recorded.
//!
//! ```text
//! LEASEHOLD_SECONDS=60 cargo test -p leasehold-proof --test permits -- --nocapture
//! ```
#![allow(clippy::print_stdout, reason = "it tells what was tried")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::Mutex;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use fastrand::Rng;
use leasehold::{Lease, LockClient, LockOptions};
use leasehold_support::child::{hear, role, tell};
use leasehold_support::history::{PermitHold, Resize, check_permits, now};
use leasehold_support::{Child, Server};

const LIMIT: u32 = 4;
const PROCESSES: usize = 4;
const THREADS: u64 = 3;
const LEASE: Duration = Duration::from_millis(800);
const SOON: Duration = Duration::from_secs(20);

/// Takes permits until it is told to stop, and records each hold: when it begins, and when it ends.
fn work() {
    let client = LockClient::open(std::env::var("LEASEHOLD_URL").unwrap()).unwrap();
    let options = LockOptions::new().lease(Lease::renewed(LEASE));
    let gpus = client.semaphore_with("gpu", LIMIT, options).unwrap();
    let lock = client.mutex_with("beside", options).unwrap();
    let record = std::env::var("LEASEHOLD_RECORD").unwrap();
    let record = OpenOptions::new().create(true).append(true).open(record).unwrap();
    let record: Mutex<File> = Mutex::new(record);
    let write = |line: String| record.lock().unwrap().write_all(line.as_bytes()).unwrap();
    tell("ready");
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (gpus, lock, write) = (&gpus, &lock, &write);
            scope.spawn(move || {
                let mut rng = Rng::new();
                loop {
                    let invoked = now();
                    let wait = Duration::from_millis(rng.u64(0..600));
                    // Refused while more is asked for than the limit in force; unknown after a pause.
                    let Ok(Some(permit)) = gpus.try_acquire_many_for(rng.u32(1..=2), wait) else {
                        sleep(Duration::from_millis(2));
                        continue;
                    };
                    // In this order, or a pause between them would lengthen the window.
                    let begin = now();
                    let until = begin + permit.remaining().as_nanos() as u64;
                    let slots: Vec<String> = permit.slots().iter().map(u32::to_string).collect();
                    let token = permit.fencing_token();
                    let slots = slots.join(",");
                    write(format!("G {number} {invoked} {begin} {until} {token} {slots}\n"));
                    sleep(Duration::from_micros(rng.u64(0..20_000)));
                    if rng.u8(..20) == 0 {
                        drop(lock.try_lock_for(Duration::from_millis(20)));
                    }
                    // The window ends before the release is sent.
                    let end = now();
                    let is_valid = permit.is_valid();
                    write(format!("R {number} {end} {is_valid}\n"));
                    drop(permit.release());
                }
            });
        }
        scope.spawn(|| {
            while hear().is_some() {}
            std::process::exit(0);
        });
    });
}

/// The holds that a process has recorded, which was killed at that moment.
fn recorded(text: &str, killed: u64) -> Vec<PermitHold> {
    let mut holds: Vec<PermitHold> = Vec::new();
    let mut open = [None; THREADS as usize];
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let thread = number(1) as usize;
        if words[0] == "G" {
            let slots = words[6].split(',').map(|slot| slot.parse().unwrap()).collect();
            let (invoked, begin, until) = (number(2), number(3), number(4));
            let end = until.min(killed).max(begin);
            open[thread] = Some(holds.len());
            holds.push(PermitHold { slots, token: number(5), invoked, begin, end });
        } else if let Some(place) = open[thread].take() {
            // One that is valid still may have been renewed.
            let hold: &mut PermitHold = &mut holds[place];
            let end = number(2);
            hold.end = if words[3] == "true" { end } else { hold.end.min(end) }.max(hold.begin);
        }
    }
    holds
}

fn start(server: &Server, number: usize) -> Child {
    let record = server.directory().join(format!("record{number}"));
    let child =
        Child::role("permits").test("permits_keep_rule_45_through_kills_pauses_and_resizes");
    let child = child.env("LEASEHOLD_URL", server.url()).env("LEASEHOLD_RECORD", record);
    let mut child = child.start().unwrap();
    child.expect_line("ready", SOON);
    child
}

#[test]
fn permits_keep_rule_45_through_kills_pauses_and_resizes() {
    if role().is_some() {
        return work();
    }
    let seconds = std::env::var("LEASEHOLD_SECONDS").map_or(6, |text| text.parse().unwrap());
    let seed = std::env::var("LEASEHOLD_SEED")
        .map_or_else(|_| Rng::new().u64(..), |it| it.parse().unwrap());
    println!("LEASEHOLD_SEED={seed}");
    let (mut rng, server) = (Rng::with_seed(seed), Server::start().unwrap());
    let client = LockClient::open(server.url()).unwrap();
    let gpus = client.semaphore("gpu", LIMIT).unwrap();
    let mut children: Vec<(usize, Child)> =
        (0..PROCESSES).map(|it| (it, start(&server, it))).collect();
    let mut ends = vec![u64::MAX; PROCESSES];
    let (mut resizes, mut kills, mut stops) = (Vec::new(), 0, 0);
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        sleep(Duration::from_millis(rng.u64(20..200)));
        let victim = rng.usize(..PROCESSES);
        match rng.u8(..4) {
            0 => {
                let (number, mut child) = children.swap_remove(victim);
                child.kill9();
                (ends[number], kills) = (now(), kills + 1);
                ends.push(u64::MAX);
                children.push((ends.len() - 1, start(&server, ends.len() - 1)));
            }
            1 => {
                let child = &children[victim].1;
                child.stop();
                sleep(LEASE.mul_f64(1.6 * rng.f64()));
                child.cont();
                stops += 1;
            }
            _ => {
                let (from, limit) = (now(), rng.u32(1..=LIMIT + 2));
                gpus.resize(limit).unwrap();
                resizes.push(Resize { from, until: now(), limit });
            }
        }
    }
    for (number, mut child) in children {
        child.kill9();
        ends[number] = now();
    }
    let mut holds = Vec::new();
    for (number, end) in ends.into_iter().enumerate() {
        let path = server.directory().join(format!("record{number}"));
        holds.extend(recorded(&std::fs::read_to_string(path).unwrap_or_default(), end));
    }
    let found = check_permits(&holds, LIMIT, &resizes);
    let (count, resized) = (holds.len(), resizes.len());
    println!(
        "{count} holds, {kills} kills, {stops} pauses, {resized} resizes, {} violations",
        found.len()
    );
    assert!(found.is_empty(), "LEASEHOLD_SEED={seed}: {found:#?}");
    assert!(count > 100 && kills + stops + resized > 5, "too little happened");
    // All come back one lease after the last process was killed.
    let all = gpus.limit().unwrap();
    assert!(gpus.try_acquire_many_for(all, SOON).unwrap().is_some());
}
