//! What the read-write lock should do: what Redis has of each client, and what each client believes.
//!
//! Nobody waits for it here, since its order has tests of its own. What it has beyond a mutex is here: who fits beside
//! whom, which access a thread may add, and how a hold becomes more or less.

use crate::base::share::Access;
use crate::tests::model::setting::{CLIENTS, Expected, LEASES};

/// What a client does to the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Enter(Access),
    /// Of the last guard.
    Release,
    Drop,
    Extend(u64),
    Check,
    /// Of the upgradable guard, in one attempt.
    Upgrade,
    /// Of the last guard that writes.
    Downgrade(Access),
    /// Evicts all who hold it.
    Force,
}

/// What one client has of it.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    /// What each guard needs, in the order in which they were taken.
    pub(crate) guards: Vec<Access>,
    access: Access,
    valid_until: u64,
    /// Since when Redis does not know it any more.
    dispossessed: Option<u64>,
    evicted: bool,
}

impl Hold {
    fn needs(&self) -> Access {
        self.guards.iter().copied().max().unwrap_or(Access::Read)
    }
}

/// The whole lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    pub(crate) holds: [Option<Hold>; CLIENTS],
    /// What Redis has of each client, and until when; `u64::MAX`: renewed.
    entries: [Option<(Access, u64)>; CLIENTS],
}

impl Shared {
    /// Whether a hold is still valid; `None`: its worker may or may not have found out.
    pub(crate) fn is_valid(&self, client: usize, now: u64) -> Option<bool> {
        let hold = self.holds[client].as_ref()?;
        let (ttl, renewed) = LEASES[client];
        match hold.dispossessed {
            Some(since) if renewed && now < since + ttl / 3 => None,
            Some(_) if renewed => Some(false),
            Some(_) if hold.evicted && now < hold.valid_until => None,
            _ => Some(now < hold.valid_until),
        }
    }

    /// Whether the act can be done, with an outcome that is known.
    pub(super) fn allows(&self, client: usize, act: Act, now: u64) -> bool {
        let Some(hold) = &self.holds[client] else {
            return matches!(act, Act::Enter(_) | Act::Force);
        };
        match act {
            Act::Enter(_) => self.is_valid(client, now).is_some(),
            Act::Upgrade => hold.guards.contains(&Access::UpgradableRead),
            Act::Downgrade(_) => hold.guards.contains(&Access::Write),
            _ => true,
        }
    }

    /// Whether the act is one request at most, which is repeated without its reply.
    pub(super) fn is_repeated(&self, client: usize, act: Act) -> bool {
        match act {
            Act::Enter(_) | Act::Extend(_) => true,
            Act::Release => self.holds[client].as_ref().is_some_and(|hold| hold.guards.len() == 1),
            _ => false,
        }
    }

    pub(super) fn is_dispossessed(&self, client: usize) -> bool {
        self.holds[client].as_ref().is_some_and(|hold| hold.dispossessed.is_some())
    }

    pub(super) fn act(&mut self, client: usize, act: Act, now: u64) -> Expected {
        match act {
            Act::Enter(access) => self.enter(client, access, now),
            Act::Release => {
                let last = self.holds[client].as_ref().map_or(0, |hold| hold.guards.len() - 1);
                self.end_guard(client, last, now)
            }
            Act::Drop => {
                self.act(client, Act::Release, now);
                Expected::Any
            }
            Act::Extend(span) => self.extend(client, span, now),
            Act::Check => self.extend(client, 0, now),
            Act::Upgrade => self.upgrade(client, now),
            Act::Downgrade(to) => self.downgrade(client, to, now),
            Act::Force => {
                let mut was = false;
                for (hold, entry) in self.holds.iter_mut().zip(&self.entries) {
                    if entry.is_some_and(|(_, until)| until > now) {
                        was = true;
                        hold.iter_mut().for_each(|hold| hold.evicted = true);
                    }
                }
                self.dispossess(now);
                Expected::Was(was)
            }
        }
    }

    /// What Redis has of the other clients.
    fn others(&self, client: usize, now: u64) -> impl Iterator<Item = Access> {
        let entries = self.entries.iter().enumerate().filter(move |&(other, _)| other != client);
        entries.filter_map(move |(_, entry)| entry.filter(|&(_, until)| until > now)).map(|it| it.0)
    }

    fn enter(&mut self, client: usize, access: Access, now: u64) -> Expected {
        let valid = self.is_valid(client, now);
        if let Some(hold) = &self.holds[client] {
            if valid != Some(true) {
                return Expected::Lost;
            }
            // A reader that would wait for itself.
            if hold.access < Access::Write && access > Access::Read {
                return Expected::Refused;
            }
            // One that asks for a later end asks Redis for it (rule 62).
            let (ttl, renewed) = LEASES[client];
            let until = now + ttl - ttl / 100 - 2;
            let is_longer = !renewed && until > hold.valid_until + ttl / 100 + 2;
            if is_longer && self.extend(client, ttl, now) == Expected::Lost {
                return Expected::Lost;
            }
            self.holds[client].iter_mut().for_each(|hold| hold.guards.push(access));
            return Expected::Granted;
        }
        let fits_beside = |other| match access {
            Access::Read => other < Access::Write,
            Access::UpgradableRead => other == Access::Read,
            Access::Write => false,
        };
        // Redis may still have what is left of a lease whose validity is over, also of this client.
        let own = self.entries[client].filter(|&(_, until)| until > now).map(|it| it.0);
        if !self.others(client, now).chain(own).all(fits_beside) {
            return Expected::Busy;
        }
        let (ttl, renewed) = LEASES[client];
        let end = |span| if renewed { u64::MAX } else { now + span };
        self.entries[client] = Some((access, end(ttl)));
        let valid_until = end(ttl - ttl / 100 - 2);
        let guards = vec![access];
        let hold = Hold { guards, access, valid_until, dispossessed: None, evicted: false };
        self.holds[client] = Some(hold);
        Expected::Granted
    }

    /// One of its guards is gone: it needs less, or nothing.
    fn end_guard(&mut self, client: usize, guard: usize, now: u64) -> Expected {
        let valid = self.is_valid(client, now);
        let Some(hold) = &mut self.holds[client] else { return Expected::Any };
        let access = hold.guards.remove(guard);
        if !hold.guards.is_empty() {
            return if access > Access::Read && hold.needs() < hold.access {
                self.become_lesser(client, now)
            } else {
                valid.map_or(Expected::Any, done)
            };
        }
        let is_ours = hold.dispossessed.is_none() && valid == Some(true);
        self.holds[client] = None;
        if is_ours {
            self.entries[client] = None;
        }
        done(is_ours)
    }

    /// It becomes what its guards need.
    fn become_lesser(&mut self, client: usize, now: u64) -> Expected {
        let valid = self.is_valid(client, now);
        let Some(hold) = &mut self.holds[client] else { return Expected::Any };
        hold.access = hold.needs();
        if hold.dispossessed.is_some() || valid != Some(true) {
            // A caller that asks is told, if the worker was not.
            hold.valid_until = hold.valid_until.min(now);
            hold.dispossessed = hold.dispossessed.map(|_| 0);
            return Expected::Lost;
        }
        self.entries[client].iter_mut().for_each(|(access, _)| *access = hold.access);
        Expected::Done
    }

    fn downgrade(&mut self, client: usize, to: Access, now: u64) -> Expected {
        let valid = self.is_valid(client, now);
        let Some(hold) = &mut self.holds[client] else { return Expected::Any };
        let writes = |&it: &Access| it == Access::Write;
        let Some(guard) = hold.guards.iter().rposition(writes) else { return Expected::Any };
        hold.guards[guard] = to;
        let outcome = if hold.needs() < hold.access {
            self.become_lesser(client, now)
        } else {
            valid.map_or(Expected::Any, done)
        };
        if outcome == Expected::Lost {
            self.end_guard(client, guard, now);
        }
        outcome
    }

    fn upgrade(&mut self, client: usize, now: u64) -> Expected {
        let valid = self.is_valid(client, now);
        let is_alone = self.others(client, now).next().is_none();
        let Some(hold) = &mut self.holds[client] else { return Expected::Any };
        let upgradable = |&it: &Access| it == Access::UpgradableRead;
        let Some(guard) = hold.guards.iter().rposition(upgradable) else { return Expected::Any };
        if hold.access < Access::Write {
            let is_lost = hold.dispossessed.is_some() || valid != Some(true);
            if hold.guards.len() > 1 || is_lost {
                // With another guard it would wait for itself.
                let refused = hold.guards.len() > 1;
                self.end_guard(client, guard, now);
                return if refused { Expected::Refused } else { Expected::Lost };
            }
            if !is_alone {
                return Expected::Busy;
            }
            hold.access = Access::Write;
            self.entries[client].iter_mut().for_each(|(access, _)| *access = Access::Write);
        }
        hold.guards[guard] = Access::Write;
        Expected::Granted
    }

    fn extend(&mut self, client: usize, span: u64, now: u64) -> Expected {
        let valid = self.is_valid(client, now);
        let Some(hold) = &mut self.holds[client] else { return Expected::Any };
        if hold.dispossessed.is_some() || valid != Some(true) {
            hold.valid_until = hold.valid_until.min(now);
            hold.dispossessed = hold.dispossessed.map(|_| 0);
            return Expected::Lost;
        }
        if let Some((_, until)) = &mut self.entries[client] {
            *until = (*until).max(now + span);
        }
        if span > 0 {
            hold.valid_until = hold.valid_until.max(now + span - span / 100 - 2);
        }
        Expected::Done
    }

    /// The key is taken away, behind the backs of all.
    pub(super) fn dispossess(&mut self, now: u64) {
        for (hold, entry) in self.holds.iter_mut().zip(&mut self.entries) {
            // One without an entry has nothing to lose there.
            if entry.take().is_some()
                && let Some(hold) = hold
            {
                hold.dispossessed.get_or_insert(now);
            }
        }
    }
}

fn done(is_valid: bool) -> Expected {
    if is_valid { Expected::Done } else { Expected::Lost }
}
