//! The engine against the reference model: whatever is done in whatever order, and whatever goes
//! wrong, the same answers come, and these hold after every step:
//!
//! 1. No two clients' holds of a name are valid at a time, but for one whose key was taken away, and for readers.
//! 2. Every hold's token is greater than all before it; a reader's, than those of all writers.
//! 3. The hold count is the number of guards.
//! 4. When the last lease is over, no key is left.
//! 5. A claim has no more than it asked for, and none that its client has already.
//! 6. Observers are told of one end of each call and each hold.

mod reference;
mod setting;
mod shared;

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::test_runner::Config;
use proptest_state_machine::{StateMachineTest, prop_state_machine};

use crate::base::error::Result;
use crate::base::option::{Lease, LockOptions};
use crate::base::sync::channel::{Receiver, unbounded};
use crate::base::sync::spawn;
use crate::client::LockClient;
use crate::engine::slot::WaitLimit;
use crate::kind::{Guard, Handle, KINDS, OwnedLease, Part};
use crate::testing::Server;
use crate::tests::double::until;
use crate::tests::observe::Recorder;
use reference::{MUTEX, Model, OVER, Step};
use setting::{CLIENTS, Expected, LEASES, NAMES, ms};
use shared::Shared;

/// What one client has of one name.
struct Place {
    /// Of another kind for each name.
    lock: Handle,
    /// The same lock, with holds that their thread may not enter.
    once: Handle,
    guards: Vec<Guard>,
    /// Where a thread that waits will send what it got.
    waiter: Option<Receiver<Result<OwnedLease>>>,
    /// The last token that was given before the key was taken away from under the waiter, who may
    /// tell of its grant only now.
    missed: u64,
    /// Its key was taken away since it was granted.
    dispossessed: bool,
}

struct System {
    server: Server,
    recorder: Recorder,
    clients: Vec<LockClient>,
    places: Vec<Vec<Place>>,
    /// The tokens of each name until now.
    tokens: [BTreeSet<u64>; NAMES],
    /// The read-write lock, besides those names.
    shared: Shared,
}

/// The names, and the kind of each in [`KINDS`].
const KEYS: [&str; NAMES] = ["mutex", "reentrant", "election"];

impl System {
    fn new() -> System {
        let server = Server::standing_still();
        let recorder = Recorder::default();
        let clients: Vec<_> = (0..CLIENTS).map(|_| recorder.client(&server)).collect();
        let place = |lock, once| Place {
            lock,
            once,
            guards: Vec::new(),
            waiter: None,
            missed: 0,
            dispossessed: false,
        };
        let options = LEASES.map(|(ttl, renewed)| {
            let lease = if renewed { Lease::renewed(ms(ttl)) } else { Lease::fixed(ms(ttl)) };
            LockOptions::new().lease(lease)
        });
        let places = clients
            .iter()
            .zip(options)
            .map(|(client, options)| {
                let lock = |kind, key: &str, options| {
                    client.handle(kind, key.as_bytes(), options).unwrap()
                };
                let once = options.reentrant(false);
                let both = |(&kind, key)| place(lock(kind, key, options), lock(kind, key, once));
                KINDS.iter().zip(KEYS).map(both).collect()
            })
            .collect();
        let shared = Shared::new(clients.iter().zip(options));
        System { server, recorder, clients, places, tokens: Default::default(), shared }
    }

    fn take(&mut self, client: usize, name: usize, waits: bool) -> Expected {
        let place = &mut self.places[client][name];
        if place.waiter.is_some() {
            // It would wait for the thread that asks, and time stands still.
            return Expected::Any;
        }
        let outcome = if waits { place.lock.lock().map(Some) } else { place.lock.try_lock() };
        self.took(client, name, outcome)
    }

    fn take_once(&mut self, client: usize, name: usize) -> Expected {
        let place = &mut self.places[client][name];
        if place.waiter.is_some() {
            return Expected::Any;
        }
        let outcome = place.once.try_lock();
        self.took(client, name, outcome)
    }

    fn take_owned(&mut self, client: usize, name: usize) -> Expected {
        let place = &mut self.places[client][name];
        if place.waiter.is_some() || !place.guards.iter().all(Guard::is_valid) {
            return Expected::Any;
        }
        let owned = place.lock.own(None, WaitLimit::TryOnce);
        let outcome = owned.map(|owned| owned.map(|owned| OwnedLease::new(owned).into_guard()));
        self.took(client, name, outcome)
    }

    fn claim(&mut self, client: usize, most: usize) -> Expected {
        let places = &self.places[client];
        if !places.iter().flat_map(|place| &place.guards).all(Guard::is_valid) {
            return Expected::Any;
        }
        let parts = places.iter().map(|place| Part::new(place.lock.clone()));
        let leases = match self.clients[client].claim(parts, most) {
            Ok(leases) => leases,
            Err(error) => {
                let typed = error.is_unreachable() || error.is_unknown_outcome();
                assert!(typed, "{error:?}");
                return Expected::Any;
            }
        };
        assert!(leases.len() <= most, "{} of {most}", leases.len());
        let mut claimed = [false; NAMES];
        for lease in leases {
            let name = KEYS.iter().position(|key| key.as_bytes() == lease.name()).unwrap();
            assert!(self.places[client][name].guards.is_empty(), "{} is entered", KEYS[name]);
            claimed[name] = true;
            self.took(client, name, Ok(Some(lease.into_guard())));
        }
        Expected::Claimed(claimed)
    }

    fn took(&mut self, client: usize, name: usize, outcome: Result<Option<Guard>>) -> Expected {
        let place = &mut self.places[client][name];
        let missed = std::mem::take(&mut place.missed);
        match outcome {
            Ok(Some(guard)) => {
                let token = guard.fencing_token().get();
                match place.guards.first() {
                    Some(first) => assert_eq!(token, first.fencing_token().get(), "one hold"),
                    None => {
                        place.dispossessed = token <= missed;
                        let tokens = &mut self.tokens[name];
                        let last = tokens.last().copied().unwrap_or(0);
                        assert!(token > last || place.dispossessed, "{token} after {last}");
                        assert!(tokens.insert(token), "{token} again");
                    }
                }
                place.guards.push(guard);
                Expected::Granted
            }
            Ok(None) => Expected::Busy,
            Err(error) if error.is_lost() => Expected::Lost,
            Err(error) if error.is_config() => Expected::Refused,
            Err(error) => {
                let typed = error.is_unreachable() || error.is_unknown_outcome();
                assert!(typed, "{error:?}");
                Expected::Any
            }
        }
    }

    fn with_last(
        &mut self,
        client: usize,
        name: usize,
        f: impl FnOnce(Guard) -> Result<()>,
    ) -> Expected {
        match self.places[client][name].guards.pop().map(f) {
            None => Expected::Any,
            Some(Ok(())) => Expected::Done,
            Some(Err(error)) if error.is_lost() => Expected::Lost,
            Some(Err(error)) if error.is_unknown_outcome() => Expected::Unknown,
            Some(Err(error)) => {
                assert!(error.is_unreachable(), "{error:?}");
                Expected::Any
            }
        }
    }

    /// Looks through the last guard, and keeps it.
    fn look(
        &mut self,
        client: usize,
        name: usize,
        f: impl FnOnce(&Guard) -> Result<()>,
    ) -> Expected {
        let Some(guard) = self.places[client][name].guards.pop() else { return Expected::Any };
        let outcome = f(&guard);
        self.places[client][name].guards.push(guard);
        match outcome {
            Ok(()) => Expected::Done,
            Err(error) if error.is_lost() => Expected::Lost,
            Err(_) => Expected::Any,
        }
    }

    /// A thread begins to wait, and is in the queue when this returns.
    fn queue(&mut self, client: usize, waiting: usize) {
        let place = &mut self.places[client][MUTEX];
        let (sender, receiver) = unbounded();
        let lock = place.lock.clone();
        let body = move || {
            let guard = lock.lock().map(|guard| guard.into_owned().unwrap());
            let _ = sender.send(guard);
        };
        spawn("waiter", body).unwrap();
        place.waiter = Some(receiver);
        until(|| self.server.waiters(KEYS[MUTEX]) >= waiting as u64);
    }

    /// What a thread that waited has got, if it must have got it, or has.
    fn fetch(&mut self, client: usize, must: bool) -> Option<Result<OwnedLease>> {
        let waiter = self.places[client][MUTEX].waiter.as_ref()?;
        let outcome = if must {
            waiter.recv().unwrap_or_else(|_| panic!("client {client} has got nothing"))
        } else {
            waiter.try_recv().ok()?
        };
        self.places[client][MUTEX].waiter = None;
        Some(outcome)
    }

    /// The key is about to be taken away.
    fn dispossess(&mut self, name: usize) {
        let last = self.server.last_token(KEYS[name]);
        for places in &mut self.places {
            let place = &mut places[name];
            place.dispossessed = true;
            place.missed = if place.waiter.is_some() { last } else { 0 };
        }
    }

    fn heal(&mut self) {
        for client in &self.clients {
            self.server.link(client).restore();
        }
        for place in self.places.iter_mut().flatten() {
            if let Some(waiter) = place.waiter.take() {
                place.lock.cancel_waits();
                drop(waiter.recv().expect("a verdict"));
            }
            place.missed = 0;
            place.guards.clear();
        }
        self.shared.clear();
        self.server.advance(ms(OVER));
        self.recorder.settle();
        let left = self.server.keys();
        assert!(
            left.is_empty(),
            "left: {:?}",
            left.iter().map(|key| key.escape_ascii().to_string()).collect::<Vec<_>>()
        );
    }

    fn step(&mut self, step: &Step) -> Expected {
        match *step {
            Step::TryLock(client, name) => self.take(client, name, false),
            Step::Lock(client, name) => self.take(client, name, true),
            Step::TryOnce(client, name) => self.take_once(client, name),
            Step::TryOwned(client, name) => self.take_owned(client, name),
            Step::Claim(client, most) => self.claim(client, most),
            Step::Queue(_) => Expected::Any,
            Step::Release(client, name) => self.with_last(client, name, Guard::release),
            Step::Drop(client, name) => {
                self.places[client][name].guards.pop();
                Expected::Any
            }
            Step::Extend(client, name, span) => {
                self.look(client, name, |guard| guard.extend(ms(span)))
            }
            Step::Check(client, name) => self.look(client, name, Guard::check),
            Step::Force(client, name) => {
                self.dispossess(name);
                let was = self.places[client][name].lock.force_release(false);
                was.map_or(Expected::Any, Expected::Was)
            }
            Step::Delete(name) => {
                self.dispossess(name);
                Expected::Was(self.server.delete(KEYS[name]))
            }
            Step::Steal(name, span) => {
                self.dispossess(name);
                self.server.steal(KEYS[name], ms(span));
                Expected::Any
            }
            Step::Share(client, act) => self.shared.act(client, act),
            Step::DeleteShared => {
                self.shared.dispossess();
                self.server.delete(shared::KEY);
                Expected::Any
            }
            Step::Losing(answer, ref step) => {
                let (Step::TryLock(client, _)
                | Step::Claim(client, _)
                | Step::Release(client, _)
                | Step::Extend(client, ..)
                | Step::Share(client, _)) = **step
                else {
                    return self.step(step);
                };
                let link = self.server.link(&self.clients[client]);
                if answer {
                    link.lose_answers(1)
                } else {
                    link.lose_requests(1)
                }
                let outcome = self.step(step);
                link.restore();
                outcome
            }
            Step::Advance(span) => {
                self.server.advance(ms(span));
                Expected::Any
            }
            Step::Suspend(span) => {
                self.server.suspend(ms(span));
                Expected::Any
            }
            Step::LoseAnswers(client, count) => {
                self.server.link(&self.clients[client]).lose_answers(count);
                Expected::Any
            }
            Step::LoseRequests(client, count) => {
                self.server.link(&self.clients[client]).lose_requests(count);
                Expected::Any
            }
            Step::ListenAtReplica(client) => {
                self.server.link(&self.clients[client]).listen_at_replica();
                Expected::Any
            }
            Step::Cut(client) => {
                self.server.link(&self.clients[client]).cut();
                Expected::Any
            }
            Step::Restore(client) => {
                self.server.link(&self.clients[client]).restore();
                Expected::Any
            }
            Step::Heal => {
                self.heal();
                Expected::Any
            }
        }
    }
}

impl StateMachineTest for System {
    type SystemUnderTest = System;
    type Reference = Model;

    fn init_test(_: &Model) -> System {
        System::new()
    }

    fn apply(mut system: System, model: &Model, step: Step) -> System {
        if let Step::Queue(client) = step {
            system.queue(client, model.queue.len());
        }
        let answer = system.step(&step);
        let expected = model.expected;
        assert!(expected.allows(answer), "{step:?}: {answer:?}, not {expected:?}");
        let mut got = Vec::new();
        for client in 0..CLIENTS {
            let has = system.places[client][MUTEX].guards.is_empty();
            let must = !model.in_doubt && model.holds[client][MUTEX].is_some() && has;
            got.extend(system.fetch(client, must).map(|outcome| (client, outcome)));
        }
        // In one step one's lease may have ended, and another have followed.
        got.sort_by_key(|(_, outcome)| outcome.as_ref().map(OwnedLease::fencing_token).ok());
        for (client, outcome) in got {
            system.took(client, MUTEX, outcome.map(|owned| Some(owned.into_guard())));
        }
        // What the worker was told, it does.
        system.server.advance(Duration::ZERO);
        system
    }

    fn check_invariants(system: &System, model: &Model) {
        for (name, key) in KEYS.into_iter().enumerate() {
            let valid: Vec<usize> = (0..CLIENTS)
                .filter(|&client| {
                    let place = &system.places[client][name];
                    !place.dispossessed && place.guards.iter().any(Guard::is_valid)
                })
                .collect();
            assert!(valid.len() < 2, "clients {valid:?} hold {key} at a time");
        }
        system.shared.check();
        for client in (0..CLIENTS).filter(|_| !model.in_doubt) {
            let (valid, count) = system.shared.hold(client);
            let hold = model.shared.holds[client].as_ref();
            assert_eq!(
                hold.map_or(0, |hold| hold.guards.len()),
                count,
                "guards of client {client}"
            );
            if let Some(expected) = model.shared.is_valid(client, model.now) {
                assert_eq!(valid, expected, "client {client}, {}: valid", shared::KEY);
            }
        }
        for (client, places) in system.places.iter().enumerate() {
            for (name, place) in places.iter().enumerate() {
                let valid = place.guards.last().is_some_and(Guard::is_valid);
                let count = if valid { place.guards.len() as u32 } else { 0 };
                assert_eq!(place.lock.hold_count(), count, "client {client}, {}", KEYS[name]);
                if model.in_doubt {
                    continue;
                }
                let hold = model.holds[client][name].as_ref();
                assert_eq!(hold.map_or(0, |hold| hold.count) as usize, place.guards.len());
                if let Some(expected) = model.is_valid(client, name) {
                    assert_eq!(valid, expected, "client {client}, {}: valid", KEYS[name]);
                }
            }
        }
    }

    fn teardown(mut system: System, _: Model) {
        system.heal();
    }
}

prop_state_machine! {
    #![proptest_config(Config { cases: 48, failure_persistence: None, ..Config::default() })]

    #[test]
    fn engine_behaves_like_the_reference_model(sequential 1..60 => System);
}
