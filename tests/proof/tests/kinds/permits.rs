//! Torture of a semaphore: processes take permits, and are killed and stopped, while the limit changes. Afterwards
//! rule 45 is checked over all that they recorded.

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use leasehold::{Lease, LockClient, LockOptions};
use leasehold_proof::trial::{Plan, Record, Trial, jain, rest, stay, work};
use leasehold_support::child::role;
use leasehold_support::history::{PermitHold, Resize, check_permits, now};

const LIMIT: u32 = 4;
const PROCESSES: usize = 4;
const THREADS: u64 = 3;
const LEASE: Duration = Duration::from_millis(800);
const SOON: Duration = Duration::from_secs(20);

/// Takes permits, and records each hold: when it begins, and when it ends.
fn take(url: &str, record: &Record) {
    let client = LockClient::open(url).unwrap();
    let options = LockOptions::new().lease(Lease::renewed(LEASE));
    let gpus = client.semaphore_with("gpu", LIMIT, options).unwrap();
    let lock = client.mutex_with("beside", options).unwrap();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (gpus, lock) = (&gpus, &lock);
            scope.spawn(move || {
                let mut rng = Rng::new();
                loop {
                    let invoked = now();
                    let wait = Duration::from_millis(rng.u64(0..600));
                    // Refused while more is asked for than the limit in force; unknown after a pause.
                    let Ok(Some(permit)) = gpus.try_acquire_many_for(rng.u32(1..=2), wait) else {
                        thread::sleep(Duration::from_millis(2));
                        continue;
                    };
                    // In this order, or a pause between them would lengthen the window.
                    let begin = now();
                    let until = begin + permit.remaining().as_nanos() as u64;
                    let slots: Vec<String> = permit.slots().iter().map(u32::to_string).collect();
                    let token = permit.fencing_token();
                    let slots = slots.join(",");
                    record.line(&format!("G {number} {invoked} {begin} {until} {token} {slots}"));
                    stay(&mut rng);
                    if rng.u8(..20) == 0 {
                        drop(lock.try_lock_for(Duration::from_millis(20)));
                    }
                    // The window ends before the release is sent.
                    let end = now();
                    let is_valid = permit.is_valid();
                    record.line(&format!("R {number} {end} {is_valid}"));
                    drop(permit.release());
                }
            });
        }
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

#[test]
fn permits_keep_rule_45_through_kills_pauses_and_resizes() {
    if role().is_some() {
        return work(take);
    }
    let Plan { time, seed } = Plan::new();
    println!("permits: LEASEHOLD_SEED={seed}");
    let test = "permits::permits_keep_rule_45_through_kills_pauses_and_resizes";
    let (mut rng, mut trial) = (Rng::with_seed(seed), Trial::start("permits", test, PROCESSES));
    let client = LockClient::open(trial.server.url()).unwrap();
    let gpus = client.semaphore("gpu", LIMIT).unwrap();
    let mut resizes = Vec::new();
    let end = Instant::now() + time;
    while Instant::now() < end {
        rest(&mut rng);
        let victim = rng.usize(..PROCESSES);
        match rng.u8(..4) {
            0 => trial.kill(victim),
            1 => trial.pause(victim, LEASE.mul_f64(1.6 * rng.f64())),
            _ => {
                let (from, limit) = (now(), rng.u32(1..=LIMIT + 2));
                gpus.resize(limit).unwrap();
                resizes.push(Resize { from, until: now(), limit });
            }
        }
    }
    trial.kill_all();
    let (mut holds, mut shares) = (Vec::new(), [0; PROCESSES]);
    for (text, place, end) in trial.records() {
        let of_process = recorded(&text, end);
        shares[place] += of_process.len();
        holds.extend(of_process);
    }
    let found = check_permits(&holds, LIMIT, &resizes);
    let (count, resized) = (holds.len(), resizes.len());
    let (kills, stops) = (trial.kills, trial.stops);
    println!(
        "permits: {count} grants checked, {kills} kills, {stops} pauses, {resized} resizes, {} violations; Jain's \
         index over {PROCESSES} processes {:.3}",
        found.len(),
        jain(&shares)
    );
    assert!(found.is_empty(), "LEASEHOLD_SEED={seed}: {found:#?}");
    assert!(count > 100 && kills + stops + resized > 5, "too little happened");
    // All come back one lease after the last process was killed. One request may ask for as many as were declared
    // (rule 33), and the limit in force may be above that.
    let mut left = gpus.limit().unwrap();
    let mut permits = Vec::new();
    while left > 0 {
        let many = left.min(LIMIT);
        permits.push(gpus.try_acquire_many_for(many, SOON).unwrap().expect("they came back"));
        left -= many;
    }
}
