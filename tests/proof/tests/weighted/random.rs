//! Random operations, on a real server and in memory, against a simple reference: a list of holders and a line.
//!
//! | variable | what it says |
//! | --- | --- |
//! | `LEASEHOLD_OPERATIONS` | how many operations are tried of each kind of lock on the real server, 1,000 unless told |
//! | `LEASEHOLD_SEED` | the seed, which is printed |

use std::collections::BTreeSet;

use fastrand::Rng;
use leasehold_proof::trial::number;

use crate::content::Content;
use crate::lab::{Lab, TTL};
use crate::request::{ALL, Attempt, Become, KEYS, Mode, Reply, UPGRADABLE, Weight};

/// In one run.
const OPERATIONS: usize = 250;
const CLIENTS: u8 = 5;

#[derive(Clone, Debug)]
struct Holder {
    attempt: Attempt,
    weight: u64,
    slots: Vec<u32>,
    change: u64,
    has_ended: bool,
}

#[derive(Clone, Debug)]
struct Waiter {
    attempt: Attempt,
    is_dead: bool,
    is_skipped: bool,
}

/// What must come of the operations.
#[derive(Clone, Debug, Default)]
struct Reference {
    declared: Option<u64>,
    limit: u64,
    holders: Vec<Holder>,
    /// An upgrade stands first.
    line: Vec<Waiter>,
    upgrade: Option<Waiter>,
    messages: Vec<(u8, u16)>,
}

impl Reference {
    fn used(&self) -> u64 {
        self.holders.iter().map(|holder| holder.weight).sum()
    }

    fn is_rw(&self) -> bool {
        self.limit == ALL
    }

    fn holder(&mut self, attempt: Attempt) -> Option<&mut Holder> {
        self.holders.iter_mut().find(|holder| holder.attempt == attempt)
    }

    fn purge(&mut self) {
        self.holders.retain(|holder| !holder.has_ended);
        self.drop_upgrade();
    }

    /// An upgrade does not outlive its holder.
    fn drop_upgrade(&mut self) {
        let holders = &self.holders;
        let lives = |it: &Waiter| holders.iter().any(|holder| holder.attempt == it.attempt);
        self.upgrade = self.upgrade.take().filter(lives);
    }

    fn leave(&mut self, attempt: Attempt) {
        self.line.retain(|waiter| waiter.attempt != attempt);
        self.upgrade = self.upgrade.take().filter(|waiter| waiter.attempt != attempt);
    }

    fn drop(&mut self, attempt: Attempt) {
        self.holders.retain(|holder| holder.attempt != attempt);
    }

    fn give(&mut self, attempt: Attempt) -> Vec<u32> {
        self.declared.get_or_insert(self.limit);
        let busy: BTreeSet<u32> =
            self.holders.iter().flat_map(|holder| holder.slots.clone()).collect();
        let count = if self.is_rw() { 0 } else { attempt.weight.number() as usize };
        let slots: Vec<u32> = (0..).filter(|slot| !busy.contains(slot)).take(count).collect();
        let weight = attempt.weight.number();
        let holder = Holder { attempt, weight, slots: slots.clone(), change: 0, has_ended: false };
        self.holders.push(holder);
        slots
    }

    fn serve(&mut self, me: Option<Attempt>) {
        if let Some(upgrade) = &mut self.upgrade
            && !upgrade.is_skipped
        {
            let attempt = upgrade.attempt;
            if upgrade.is_dead && me != Some(attempt) {
                upgrade.is_skipped = true;
            } else {
                let own = self.holder(attempt).map_or(0, |holder| holder.weight);
                if self.used() - own + ALL > self.limit {
                    return;
                }
                let holder = self.holder(attempt).expect("it holds");
                holder.weight = ALL;
                self.upgrade = None;
                if me != Some(attempt) {
                    self.messages.push((attempt.client, attempt.number));
                }
            }
        }
        let mut at = 0;
        while let Some(waiter) = self.line.get(at).cloned() {
            let attempt = waiter.attempt;
            if waiter.is_skipped {
                at += 1;
            } else if waiter.is_dead && me != Some(attempt) {
                self.line[at].is_skipped = true;
            } else if attempt.weight.number() > self.limit {
                self.line.remove(at);
            } else if self.used() + attempt.weight.number() > self.limit {
                return;
            } else {
                self.line.remove(at);
                self.give(attempt);
                if me != Some(attempt) {
                    self.messages.push((attempt.client, attempt.number));
                }
            }
        }
    }

    fn somebody_waits(&self) -> bool {
        self.line.iter().chain(&self.upgrade).any(|waiter| !waiter.is_skipped)
    }

    fn granted(&mut self, attempt: Attempt) -> Expected {
        let slots = self.holder(attempt).expect("it holds").slots.clone();
        Expected::Granted(slots)
    }

    fn acquire(&mut self, attempt: Attempt, mode: Mode, declared: u64) -> Expected {
        if self.declared.is_some_and(|other| other != declared) {
            return Expected::Config;
        }
        if self.declared.is_none() {
            self.limit = declared;
        }
        let weight = attempt.weight.number();
        let nobody = self.line.is_empty() && self.upgrade.is_none();
        let is_held = self.holder(attempt).is_some();
        if !is_held && mode != Mode::Beat && nobody && self.used() + weight <= self.limit {
            return Expected::Granted(self.give(attempt));
        }
        self.purge();
        if self.holder(attempt).is_some() {
            self.serve(None);
            return self.granted(attempt);
        }
        if weight > self.limit {
            self.leave(attempt);
            self.serve(None);
            return Expected::Config;
        }
        let place = self.line.iter().position(|waiter| waiter.attempt == attempt);
        match place {
            Some(at) => {
                let waiter = &mut self.line[at];
                (waiter.is_dead, waiter.is_skipped) = (false, false);
                self.serve(Some(attempt));
                if self.holder(attempt).is_some() { self.granted(attempt) } else { Expected::Busy }
            }
            None if mode == Mode::Beat => {
                self.serve(None);
                Expected::Gone
            }
            None => {
                self.serve(None);
                if self.used() + weight <= self.limit && !self.somebody_waits() {
                    return Expected::Granted(self.give(attempt));
                }
                if mode == Mode::Join {
                    self.line.push(Waiter { attempt, is_dead: false, is_skipped: false });
                }
                Expected::Busy
            }
        }
    }

    /// A release: where nobody waits, a lease that has ended is given back like any other.
    fn release(&mut self, attempt: Attempt) -> Expected {
        let nobody = self.line.is_empty() && self.upgrade.is_none();
        let held = self.holder(attempt).cloned();
        let is_fast = nobody
            && held.as_ref().is_some_and(|holder| {
                let is_alone = holder.change == 0 && self.holders.len() == 1;
                !self.is_rw() || is_alone
            });
        self.leave(attempt);
        if !is_fast {
            self.purge();
        }
        let is_held = self.holder(attempt).is_some();
        self.drop(attempt);
        if !is_fast && self.declared.is_some() {
            self.serve(None);
        }
        if self.is_rw() && self.holders.is_empty() {
            self.declared = None;
        }
        if is_held { Expected::Done } else { Expected::NotHeld }
    }

    fn force(&mut self, attempt: Attempt) -> Expected {
        if self.holder(attempt).is_none() {
            return Expected::NotHeld;
        }
        self.leave(attempt);
        self.purge();
        let is_held = self.holder(attempt).is_some();
        self.drop(attempt);
        self.serve(None);
        if self.is_rw() && self.holders.is_empty() {
            self.declared = None;
        }
        if is_held { Expected::Done } else { Expected::NotHeld }
    }

    fn resize(&mut self, limit: u64, declared: u64) -> Expected {
        if self.declared.is_some_and(|other| other != declared) {
            return Expected::Config;
        }
        (self.declared, self.limit) = (Some(declared), limit);
        self.purge();
        self.serve(None);
        Expected::Done
    }

    fn change(&mut self, attempt: Attempt, number: u64, to: Become) -> Expected {
        self.purge();
        let waits = self.upgrade.as_ref().is_some_and(|it| it.attempt == attempt);
        let Some(holder) = self.holder(attempt) else {
            if self.declared.is_some() {
                self.serve(None);
            }
            return Expected::NotHeld;
        };
        let (before, last) = (holder.weight, holder.change);
        if let Become::Reader | Become::Upgradable = to {
            if number > last {
                let weight = if to == Become::Reader { 1 } else { UPGRADABLE };
                (holder.weight, holder.change) = (before.min(weight), number);
                self.leave(attempt);
            }
            self.serve(None);
            return if number < last { Expected::Stale } else { Expected::Changed(false) };
        }
        let is_beat = to == Become::StillWriter;
        let is_lost = is_beat && (number > last || !waits && before != ALL);
        if number < last || before == 1 || is_lost {
            self.serve(None);
            return Expected::Stale;
        }
        if let Some(holder) = self.holder(attempt) {
            holder.change = number;
        }
        if before == ALL {
            self.serve(None);
            return Expected::Changed(true);
        }
        self.upgrade = Some(Waiter { attempt, is_dead: false, is_skipped: false });
        self.serve(Some(attempt));
        match self.holder(attempt) {
            Some(holder) if holder.weight == ALL => Expected::Changed(true),
            _ => Expected::Busy,
        }
    }
}

/// A reply, without what depends on the time.
#[derive(Clone, Debug, PartialEq)]
enum Expected {
    Granted(Vec<u32>),
    Busy,
    Gone,
    Config,
    Done,
    NotHeld,
    /// Whether with a new token.
    Changed(bool),
    Stale,
}

fn outline(reply: Reply) -> Expected {
    match reply {
        Reply::Granted { slots, .. } => Expected::Granted(slots),
        Reply::Busy { .. } => Expected::Busy,
        Reply::Gone => Expected::Gone,
        Reply::Config { .. } => Expected::Config,
        Reply::Done(_) => Expected::Done,
        Reply::NotHeld => Expected::NotHeld,
        Reply::Changed { token, .. } => Expected::Changed(token > 0),
        Reply::Stale => Expected::Stale,
        other => panic!("{other:?}"),
    }
}

/// What is kept must be what the reference has.
fn compare(content: &Content, reference: &Reference) -> Result<(), String> {
    let mut kept: Vec<_> = content
        .holders
        .iter()
        .map(|it| (it.attempt, it.weight, it.slots.clone(), it.change))
        .collect();
    let mut expected: Vec<_> = reference
        .holders
        .iter()
        .map(|it| (it.attempt, it.weight, it.slots.clone(), it.change))
        .collect();
    kept.sort_unstable();
    expected.sort_unstable();
    if kept != expected {
        return Err(format!("holders {kept:?}, and not {expected:?}"));
    }
    let mut line = content.line.clone();
    line.sort_by(|one, other| one.place.abs().total_cmp(&other.place.abs()));
    let line: Vec<_> = line.iter().map(|it| (it.attempt, it.place < 0.0)).collect();
    let waiters = reference.upgrade.iter().chain(&reference.line);
    let expected: Vec<_> = waiters.map(|it| (it.attempt, it.is_skipped)).collect();
    if line != expected {
        return Err(format!("line {line:?}, and not {expected:?}"));
    }
    if content.declared != reference.declared {
        return Err(format!("declared {:?}, and not {:?}", content.declared, reference.declared));
    }
    Ok(())
}

/// One run of operations on an empty server.
fn play(lab: &mut Lab, seed: u64) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    lab.ask(&[&["DEL"][..], &KEYS[..]].concat());
    lab.messages();
    let (mut reference, is_rw, limit) = (Reference::default(), lab.limit == ALL, lab.limit);
    let mut highest = 0;
    let mut history = Vec::new();
    for _ in 0..OPERATIONS {
        let client = rng.u8(..CLIENTS);
        let weight = match rng.u8(..8) {
            0..4 if is_rw => Weight::Reader,
            4..6 if is_rw => Weight::Upgradable,
            _ if is_rw => Weight::Writer,
            0..4 => Weight::Permits(1),
            other => Weight::Permits(u16::from(other) - 2),
        };
        let number = rng.u16(1..4);
        let mut attempt = Attempt { client, number, weight, window: TTL };
        // An attempt has one weight. Mostly one of those that are there does something.
        let known: Vec<Attempt> = reference
            .holders
            .iter()
            .map(|it| it.attempt)
            .chain(reference.line.iter().map(|it| it.attempt))
            .collect();
        if let Some(same) = known.iter().find(|it| (it.client, it.number) == (client, number)) {
            attempt = *same;
        } else if rng.u8(..3) > 0 && !known.is_empty() {
            attempt = known[rng.usize(..known.len())];
        }
        reference.messages.clear();
        lab.messages();
        let change = reference.holder(attempt).map_or(1, |holder| holder.change + 1);
        let number = change - u64::from(rng.u8(..3) == 0 && change > 1);
        let operation = rng.u8(..20);
        let (what, expected, reply) = match operation {
            0..7 => {
                let mode = [Mode::Try, Mode::Join, Mode::Join, Mode::Beat][rng.usize(..4)];
                let expected = reference.acquire(attempt, mode, limit);
                (format!("{mode:?}"), expected, lab.acquire(attempt, mode))
            }
            7..12 => ("release".to_owned(), reference.release(attempt), lab.release(attempt)),
            12 => {
                let is_there = reference.holder(attempt).is_some_and(|it| !it.has_ended);
                let expected = if is_there { Expected::Done } else { Expected::NotHeld };
                ("renew".to_owned(), expected, lab.renew(attempt))
            }
            13 => ("force".to_owned(), reference.force(attempt), lab.force(attempt)),
            14 => {
                if let Some(holder) = reference.holder(attempt) {
                    holder.has_ended = true;
                    lab.end(attempt);
                    history.push(format!("{attempt:?} ends"));
                }
                continue;
            }
            15 => {
                let mut line = reference.line.iter_mut().chain(&mut reference.upgrade);
                if let Some(waiter) = line.find(|it| it.attempt == attempt) {
                    waiter.is_dead = true;
                    lab.kill(attempt);
                    history.push(format!("{attempt:?} dies"));
                }
                continue;
            }
            16 if !is_rw => {
                let new = rng.u64(1..6);
                (format!("resize to {new}"), reference.resize(new, limit), lab.resize(new))
            }
            16..20 if is_rw => {
                let all = [
                    Become::Reader,
                    Become::Upgradable,
                    Become::Writer,
                    Become::Writer,
                    Become::StillWriter,
                ];
                let to = all[rng.usize(..all.len())];
                let expected = reference.change(attempt, number, to);
                (format!("{number}: {to:?}"), expected, lab.change(attempt, number, to))
            }
            _ => continue,
        };
        history.push(format!("{what} of {attempt:?}: {reply:?}"));
        let granted = lab.granted();
        let content = lab.content();
        let differs = |text: String| {
            let recent = &history[history.len().saturating_sub(25)..];
            Err(format!("{text}, after {recent:#?}"))
        };
        if outline(reply.clone()) != expected {
            return differs(format!("{reply:?}, and not {expected:?}"));
        }
        if granted != reference.messages {
            return differs(format!("{granted:?} were told, and not {:?}", reference.messages));
        }
        if let Err(text) = compare(&content, &reference) {
            return differs(text);
        }
        if content.token < highest {
            return differs(format!("token {} after {highest}", content.token));
        }
        highest = content.token;
    }
    Ok(())
}

/// Plays so many operations of a semaphore, and so many of a read-write lock.
fn play_all(labs: [Lab; 2], operations: u64) {
    let seed = number("LEASEHOLD_SEED").unwrap_or_else(|| fastrand::u64(..1 << 48));
    println!("{operations} operations of each kind, from LEASEHOLD_SEED={seed} on");
    for mut lab in labs {
        for seed in seed..seed + operations.div_ceil(OPERATIONS as u64) {
            let outcome = play(&mut lab, seed);
            outcome.unwrap_or_else(|text| panic!("LEASEHOLD_SEED={seed}: {text}"));
        }
    }
}

#[test]
fn server_does_what_the_reference_does() {
    let operations = number("LEASEHOLD_OPERATIONS").unwrap_or(1_000);
    play_all([Lab::real(4), Lab::real(ALL)], operations);
}

#[test]
fn scripts_in_memory_do_what_the_reference_does() {
    play_all([Lab::in_memory(4), Lab::in_memory(ALL)], 20_000);
}
