//! The invariants of every state, and the history that is needed to check them.

use std::any::Any;
use std::fmt;

use crate::client::{Life, Part};
use crate::protocol::{Attempt, Time, Token};
use crate::scenario::{Scenario, Setting};
use crate::server::{Effect, Server};
use crate::unit::millis_at;
use crate::world::World;

/// A promise, named after the guarantee or checker it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Invariant {
    /// S, C1: two windows of validity overlap.
    Overlap,
    /// C2: a token is not above all earlier ones.
    Token,
    /// Rule 50: a hold is valid although a later one was granted.
    Back,
    /// C2: the counter of tokens ends before a lease does, and a clock that goes back is not
    /// noticed.
    Fence,
    /// Rule 3: a repeated request is answered another token.
    Repeat,
    /// C6: a live waiter was passed over.
    Fifo,
    /// Rule 11: a waiter that lives has lost its place.
    Place,
    /// Rule 6: an attempt that was released for good is in Redis again.
    Ghost,
    /// Rule 15: a command of one attempt touched another's lock.
    Touch,
    /// Rule 13: the lock was free for too long although a waiter was in the queue.
    Starved,
    /// C5: a waiter was not served or a lock not released long after the last fault.
    Served,
    /// C5: a key without an end.
    Immortal,
    /// The word beside a leader is of another term, or ends before its lease.
    Word,
    /// A script failed, or wrote a value that no client can read.
    Nonsense,
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) invariant: Invariant,
    pub(crate) text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.text)
    }
}

impl Violation {
    /// The text of a panic about a script or about the keys that it wrote.
    pub(crate) fn nonsense(panic: &(dyn Any + Send)) -> Violation {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Violation { invariant: Invariant::Nonsense, text: text.unwrap_or("a panic").to_owned() }
    }
}

fn broken(invariant: Invariant, text: impl Into<String>) -> Result<(), Violation> {
    Err(Violation { invariant, text: text.into() })
}

/// The part of the history on which a promise depends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    /// The greatest token of any hold.
    highest: Token,
    /// The owner, and the token with which it was granted the lock.
    grant: Option<(Attempt, Token)>,
    /// The attempts in the queue, in order, and the time of their last request.
    arrivals: Vec<(Attempt, Time)>,
    /// The attempts that the server took for dead, and that have sent no request since (rule 11).
    skipped: Vec<Attempt>,
    /// How long the lock has been free although a waiter is in the queue.
    pub(crate) starved: Time,
}

impl Record {
    /// A hold got its token.
    pub(crate) fn token(&mut self, token: Token) -> Result<(), Violation> {
        if token <= self.highest {
            let text = format!("token {token} after {}", self.highest);
            return broken(Invariant::Token, text);
        }
        self.highest = token;
        Ok(())
    }

    /// A holder that does not know of the lost data has passed its lease on. Later tokens must be
    /// above that one, too.
    pub(crate) fn stale_token(&mut self, token: Token) {
        self.highest = self.highest.max(token);
    }

    /// A script wrote an owner.
    pub(crate) fn granted(
        &mut self,
        effect: &Effect,
        before: &Server,
        now: Time,
        setting: &Setting,
    ) -> Result<(), Violation> {
        let Some((owner, token)) = effect.granted else { return Ok(()) };
        self.token(token)?;
        self.grant = effect.granted;
        for &(earlier, _) in self.arrivals.iter().take_while(|(attempt, _)| *attempt != owner) {
            if before.queue.contains(earlier)
                && !self.skipped.contains(&earlier)
                && is_alive(earlier, before, now, setting)
            {
                let text = format!("{} was granted before {}", name(owner), name(earlier));
                return broken(Invariant::Fifo, text);
            }
        }
        self.left(owner);
        Ok(())
    }

    /// Forgets the grant of an owner that is no more.
    pub(crate) fn forget(&mut self, server: &Server) {
        self.grant = self.grant.filter(|(owner, _)| server.owner() == Some(*owner));
    }

    /// Checks the token of a repeated grant. A counter that was lost is minted anew.
    pub(crate) fn check_repeat(&self, before: &Server, token: Token) -> Result<(), Violation> {
        if let (Some((_, first)), Some(_)) = (self.grant, before.fence)
            && first != token
        {
            return broken(Invariant::Repeat, format!("token {token} instead of {first}"));
        }
        Ok(())
    }

    /// An attempt is no longer in the queue, and rightly so.
    pub(crate) fn left(&mut self, attempt: Attempt) {
        self.arrivals.retain(|(other, _)| *other != attempt);
        self.skipped.retain(|other| *other != attempt);
    }

    /// Notes the attempts that a script, requested by `me`, has skipped as dead.
    pub(crate) fn skipped(
        &mut self,
        me: Attempt,
        before: &Server,
        after: &Server,
        now: Time,
        setting: &Setting,
    ) -> Result<(), Violation> {
        for (attempt, place) in &after.queue.members {
            if *place < 0 && !before.queue.members.contains(&(*attempt, *place)) {
                if is_alive(*attempt, before, now, setting) {
                    let text = format!("{} was taken for dead", name(*attempt));
                    return broken(Invariant::Fifo, text);
                }
                self.skipped.push(*attempt);
            }
        }
        self.skipped.retain(|attempt| *attempt != me && after.queue.contains(*attempt));
        self.skipped.sort_unstable();
        self.skipped.dedup();
        Ok(())
    }

    /// The server lost everything.
    pub(crate) fn flushed(&mut self) {
        self.arrivals.clear();
        self.skipped.clear();
    }

    /// Notes the attempts that joined the queue.
    pub(crate) fn arrived(&mut self, server: &Server, now: Time) {
        for (attempt, _) in &server.queue.members {
            if !self.arrivals.iter().any(|(other, _)| other == attempt) {
                self.arrivals.push((*attempt, now));
            }
        }
    }

    /// A waiter's request reached the server.
    pub(crate) fn heard(&mut self, attempt: Attempt, now: Time) {
        let entry = self.arrivals.iter_mut().find(|(other, _)| *other == attempt);
        if let Some((_, heard)) = entry {
            *heard = now;
        }
    }

    pub(crate) fn tick(&mut self, world_before: &World) {
        let clients = &world_before.clients;
        let waits = clients.iter().any(|client| client.life == Life::Up && client.is_trying());
        let held = clients.iter().any(|client| {
            client.believes_until(world_before.now).is_some()
                || client.life != Life::Crashed && matches!(client.part, Part::Releasing { .. })
        });
        let starves = waits && !held && !world_before.stopped;
        self.starved = if starves { self.starved + 1 } else { 0 };
    }
}

/// Whether a server has to take a waiter for one that lives and listens.
fn is_alive(attempt: Attempt, server: &Server, now: Time, setting: &Setting) -> bool {
    let beat = server.beats.members.iter().find(|(other, _)| *other == attempt);
    beat.is_some_and(|(_, death)| *death > now)
        && (server.counts(attempt.client) || !setting.counts_listeners())
}

/// Checks the invariants of a state.
pub(crate) fn check(world: &World, scenario: &Scenario) -> Result<(), Violation> {
    let held: Vec<_> = world
        .clients
        .iter()
        .filter(|client| client.believes_until(world.now).is_some())
        .filter_map(|client| client.lease.as_ref().map(|lease| (client.id, lease)))
        .collect();
    for (index, (first, one)) in held.iter().enumerate() {
        for (second, other) in &held[index + 1..] {
            if one.epoch == other.epoch {
                let text = format!("clients {first} and {second} both hold the lock");
                return broken(Invariant::Overlap, text);
            }
        }
    }
    for (client, lease) in &held {
        // Across a FLUSHALL nothing is promised but the order of tokens.
        if world.server.epoch() == 0 && lease.token < world.record.highest {
            let text = format!("client {client} holds the lock with token {}", lease.token);
            return broken(Invariant::Back, format!("{text} after {}", world.record.highest));
        }
    }
    let server = &world.server;
    for attempt in server.queue.members.iter().map(|(attempt, _)| *attempt).chain(server.owner()) {
        let client = &world.clients[usize::from(attempt.client)];
        if client.clean & (1 << attempt.number) != 0 {
            let text = format!("{} was given back, and is in Redis", name(attempt));
            return broken(Invariant::Ghost, text);
        }
    }
    for (attempt, heard) in &world.record.arrivals {
        let client = &world.clients[usize::from(attempt.client)];
        let trying = client.life != Life::Crashed
            && client.is_trying()
            && client
                .open_attempt
                .is_some_and(|open_attempt| open_attempt.number == attempt.number);
        let kept = world.now < heard + scenario.setting.queue_keep(client.ttl);
        if trying && kept && !server.queue.contains(*attempt) {
            return broken(Invariant::Place, format!("{} has lost its place", name(*attempt)));
        }
    }
    if server.lock.is_some_and(|lock| lock.until.is_none())
        || server.fence.is_some_and(|fence| fence.until.is_none())
    {
        return broken(Invariant::Immortal, "a lock or a fence without an end");
    }
    if let Some(lock) = server.lock {
        let end = lock.until.map(|until| millis_at(until, &scenario.setting));
        if server.fence.is_none_or(|fence| fence.until < end) {
            return broken(Invariant::Fence, "the counter of tokens ends before the lease");
        }
    }
    if let (Some(lock), true) = (server.lock, scenario.setting.is_election) {
        let end = lock.until.map(|until| millis_at(until, &scenario.setting));
        let term = server.fence.map(|fence| fence.token);
        if server.word.is_none_or(|word| Some(word.token) != term || word.until < end) {
            return broken(Invariant::Word, "a leader without a word of its term");
        }
    }
    if server.word.is_some_and(|word| word.until.is_none()) {
        return broken(Invariant::Immortal, "a word without an end");
    }
    for set in [&server.queue, &server.beats] {
        if !set.members.is_empty() && set.until.is_none() {
            return broken(Invariant::Immortal, "a key without an end");
        }
    }
    if world.record.starved > scenario.longest_unheld {
        let text = format!("nobody has held the lock for {} ticks", world.record.starved);
        return broken(Invariant::Starved, text);
    }
    if world.now > scenario.served() && !world.is_quiet() {
        return broken(Invariant::Served, "somebody still wants or owes something");
    }
    Ok(())
}

/// An attempt as people read it.
pub(crate) fn name(attempt: Attempt) -> String {
    format!("attempt {}.{}", attempt.client, attempt.number)
}

/// Checks the effect of an attempt's command on the lock.
pub(crate) fn check_touch(me: Attempt, before: &Server, after: &Server) -> Result<(), Violation> {
    let mine = before.owner() == Some(me);
    if !mine && before.lock != after.lock {
        return broken(Invariant::Touch, format!("a command of {} changed the lock", name(me)));
    }
    Ok(())
}
