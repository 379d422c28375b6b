//! A server: the scripts that are shipped, over the store of the server in memory.
//!
//! Many ways through the states ask the same of the same server. So a script runs once for each state of the
//! server, moment and request, and its outcome is noted: a script has nothing else to go by.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::ops::Deref;
use std::rc::Rc;

use crate::content::{Content, Waiter};
use crate::fold::{Fold, fold};
use crate::invariant::{Invariant, Violation};
use crate::redis::{Store, call};
use crate::request::{Attempt, Message, Mode, Reply, Request, Says, channel};
use crate::scenario::{Plan, Scenario, Time};
use crate::script::Scripts;
use crate::wire::{Answer, Ask, Grant, Id, Push, Since};

const TICK_MILLIS: u32 = 1_000;
const TICK_MICROS: i64 = 1_000_000;
/// The server's time at moment 0, of today's size.
const EPOCH: i64 = 1_700_000_000_123_456;

pub(crate) fn micros(now: Time) -> u64 {
    (EPOCH + i64::from(now) * TICK_MICROS).unsigned_abs()
}

fn millis(span: Time) -> u32 {
    u32::from(span.unsigned_abs()) * TICK_MILLIS
}

/// The moment of a time of the server. All times that scripts write are whole ticks.
pub(crate) fn moment(micros: u64) -> Time {
    let apart = micros.cast_signed() - EPOCH;
    assert!(apart % TICK_MICROS == 0, "{micros} is no whole tick");
    Time::try_from(apart / TICK_MICROS).expect("not so far")
}

fn ticks(millis: i64) -> Time {
    assert!(millis % i64::from(TICK_MILLIS) == 0, "{millis} ms are no whole ticks");
    Time::try_from(millis / i64::from(TICK_MILLIS)).expect("not so many")
}

/// A server in one state: a value whose clone costs next to nothing.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    state: Rc<State>,
    machine: Rc<Machine>,
}

#[derive(Debug)]
struct State {
    store: Store,
    content: Content,
    hash: u64,
}

type Outcome = Result<(Rc<State>, Answer, Rc<[Push]>), Violation>;
type Table<K, T> = RefCell<HashMap<K, T, BuildHasherDefault<Fold>>>;

#[derive(Debug)]
struct Machine {
    plans: &'static [Plan],
    dead: Time,
    line: Vec<Time>,
    resize_ttl: Time,
    scripts: Scripts,
    states: Table<u64, Rc<State>>,
    ticks: Table<(u64, Time), Rc<State>>,
    outcomes: Table<(u64, Time, Ask), Outcome>,
}

impl Server {
    pub(crate) fn new(scenario: &Scenario, now: Time) -> Server {
        let mut store = Store::default();
        let clients = 0..u8::try_from(scenario.clients.len()).expect("not so many");
        clients.for_each(|client| store.subscribe(client.into(), &channel(client)));
        let machine = Machine {
            plans: scenario.clients,
            dead: scenario.dead,
            line: scenario.clients.iter().map(|plan| scenario.line(plan.ttl)).collect(),
            resize_ttl: 3,
            scripts: Scripts::new(),
            states: Table::default(),
            ticks: Table::default(),
            outcomes: Table::default(),
        };
        Server { state: machine.state(store, now), machine: Rc::new(machine) }
    }

    /// A moment has come, and what ends then is gone.
    pub(crate) fn tick(&mut self, now: Time) {
        let key = (self.state.hash, now);
        if let Some(known) = self.machine.ticks.borrow().get(&key) {
            self.state = Rc::clone(known);
            return;
        }
        let mut store = self.state.store.clone();
        // Redis keeps a key for the millisecond in which it ends. Here it is gone by then.
        store.expire(micros(now) + 1_000);
        let state = self.machine.state(store, now);
        self.machine.ticks.borrow_mut().insert(key, Rc::clone(&state));
        self.state = state;
    }

    pub(crate) fn fill(&mut self, is_full: bool, now: Time) {
        let mut store = self.state.store.clone();
        store.set_out_of_memory(is_full);
        self.state = self.machine.state(store, now);
    }

    pub(crate) fn run(&mut self, ask: Ask, now: Time) -> Result<(Answer, Rc<[Push]>), Violation> {
        let key = (self.state.hash, now, ask);
        let known = self.machine.outcomes.borrow().get(&key).cloned();
        let outcome = known.unwrap_or_else(|| {
            let outcome = self.machine.run(&self.state, ask, now);
            self.machine.outcomes.borrow_mut().insert(key, outcome.clone());
            outcome
        });
        let (state, answer, pushes) = outcome?;
        self.state = state;
        Ok((answer, pushes))
    }

    /// The keys that are there at a moment.
    pub(crate) fn keys(&self, now: Time) -> usize {
        self.state.store.live_keys(micros(now) + 1_000).count()
    }

    pub(crate) fn id(attempt: Attempt) -> Id {
        Id { client: attempt.client, number: u8::try_from(attempt.number).expect("not so many") }
    }
}

impl Deref for Server {
    type Target = Content;

    fn deref(&self) -> &Content {
        &self.state.content
    }
}

impl PartialEq for Server {
    fn eq(&self, other: &Server) -> bool {
        self.state.hash == other.state.hash
    }
}

impl Eq for Server {}

impl Hash for Server {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.state.hash.hash(hasher);
    }
}

impl Machine {
    fn state(&self, mut store: Store, now: Time) -> Rc<State> {
        let hash = fold(&store);
        let mut states = self.states.borrow_mut();
        let state = states.entry(hash).or_insert_with(|| {
            let content = Content::read(|words| {
                let words: Vec<Vec<u8>> = words.iter().map(|it| it.as_bytes().to_vec()).collect();
                store.run(micros(now), |run| call(run, &words)).0.expect("no error")
            });
            Rc::new(State { store, content, hash })
        });
        Rc::clone(state)
    }

    fn plan(&self, id: Id) -> &Plan {
        &self.plans[usize::from(id.client)]
    }

    fn attempt(&self, id: Id) -> Attempt {
        let Plan { weight, window, .. } = *self.plan(id);
        Attempt { client: id.client, number: id.number.into(), weight, window: millis(window) }
    }

    fn request(&self, ask: Ask) -> Request {
        let dies_after = i64::from(self.dead) * TICK_MICROS;
        let acquire = |id: Id, by: Time, mode| Request::Acquire {
            attempt: self.attempt(id),
            ttl: millis(self.plan(id).ttl),
            mode,
            deadline: micros(by),
            dies_after,
            line: millis(self.line[usize::from(id.client)]),
            limit: self.plan(id).limit,
        };
        match ask {
            Ask::Try { id, by, .. } => acquire(id, by, Mode::Try),
            Ask::Join { id, by, .. } => acquire(id, by, Mode::Join),
            Ask::Beat { id, by, .. } => acquire(id, by, Mode::Beat),
            Ask::Release { id } | Ask::Leave { id } => {
                let ttl = millis(self.plan(id).ttl);
                Request::Release { attempt: self.attempt(id), ttl, last_token: 0 }
            }
            Ask::Renew { id, .. } => {
                Request::Renew { attempt: self.attempt(id), ttl: millis(self.plan(id).ttl) }
            }
            Ask::Change { id, number, to } => Request::Change {
                attempt: self.attempt(id),
                number: number.into(),
                to,
                ttl: millis(self.plan(id).ttl),
                dies_after,
                line: millis(self.line[usize::from(id.client)]),
            },
            Ask::Resize { limit, by } => Request::Resize {
                limit: limit.into(),
                declared: self.plans[0].limit,
                deadline: micros(by),
                ttl: millis(self.resize_ttl),
                keep: millis(self.resize_ttl),
            },
        }
    }

    fn run(&self, before: &State, ask: Ask, now: Time) -> Outcome {
        let mut store = before.store.clone();
        let request = self.request(ask);
        let words = request.words(&self.scripts);
        let (value, effects) = store.run(micros(now), |run| call(run, &words));
        let reply = Reply::read(&request, value.map_err(|error| error.text().to_owned()));
        let after = self.state(store, now);
        let nonsense = |text| Violation { invariant: Invariant::Nonsense, text };
        after.content.check().map_err(nonsense)?;
        after.content.check_ends(micros(now)).map_err(nonsense)?;
        fair(&before.content, &after.content, now)?;
        let since = Since { token: after.content.token, limit: after.content.limit };
        let pushes = effects.published.iter().filter_map(|it| {
            let Message { client, number, says } = Message::read(&it.channel, &it.payload);
            let id = Id { client, number: u8::try_from(number).expect("not so many") };
            match says {
                Says::Granted { token, at, window, slots, .. } => Some(Push::Granted {
                    id,
                    at: moment(at),
                    window: ticks(window.into()),
                    grant: Grant { token, slots: bits(&slots), since },
                }),
                Says::Upgraded { token, change, .. } => {
                    let number = u8::try_from(change).expect("not so many");
                    Some(Push::Upgraded { id, number, token, since })
                }
                Says::TooHeavy { .. } => Some(Push::TooHeavy { id }),
                // Hints, on which nothing may depend.
                Says::Retry | Says::Wanted { .. } | Says::Evicted => None,
            }
        });
        let answer = answer(ask, &reply, since, now);
        Ok((after, answer, pushes.collect()))
    }
}

fn bits(slots: &[u32]) -> u32 {
    slots.iter().map(|slot| 1 << slot).sum()
}

fn answer(ask: Ask, reply: &Reply, since: Since, now: Time) -> Answer {
    match (ask, reply) {
        (_, Reply::Late) | (Ask::Resize { .. }, _) => Answer::Nothing,
        (
            Ask::Try { id, sent, .. } | Ask::Join { id, sent, .. } | Ask::Beat { id, sent, .. },
            Reply::Granted { token, left, slots, .. },
        ) => {
            let grant = Grant { token: *token, slots: bits(slots), since };
            Answer::Granted { id, sent, left: ticks(*left), grant }
        }
        (Ask::Try { id, sent, .. }, Reply::Busy { .. }) => Answer::Busy { id, sent },
        (Ask::Join { id, sent, .. } | Ask::Beat { id, sent, .. }, Reply::Busy { .. }) => {
            Answer::Waits { id, sent, at: now }
        }
        (Ask::Beat { id, .. }, Reply::Gone) => Answer::Gone { id },
        (
            Ask::Try { id, .. } | Ask::Join { id, .. } | Ask::Beat { id, .. },
            Reply::Config { .. },
        ) => Answer::Refused { id, is_full: false },
        (Ask::Try { id, .. } | Ask::Join { id, .. }, Reply::Refused) => {
            Answer::Refused { id, is_full: true }
        }
        (Ask::Release { id }, Reply::Done(_) | Reply::NotHeld) => Answer::Released { id, at: now },
        (Ask::Leave { id }, Reply::Done(_) | Reply::NotHeld) => Answer::Left { id, at: now },
        (Ask::Renew { id, sent }, Reply::Done(_)) => Answer::Renewed { id, sent, is_done: true },
        (Ask::Renew { id, sent }, Reply::NotHeld) => Answer::Renewed { id, sent, is_done: false },
        (Ask::Change { id, number, .. }, Reply::Changed { token, .. }) => {
            Answer::Changed { id, number, token: *token, since }
        }
        (Ask::Change { id, number, .. }, Reply::Busy { .. }) => Answer::UpgradeWaits { id, number },
        (Ask::Change { id, number, .. }, Reply::Stale) => {
            Answer::NotChanged { id, number, is_held: true }
        }
        (Ask::Change { id, number, .. }, Reply::NotHeld) => {
            Answer::NotChanged { id, number, is_held: false }
        }
        _ => panic!("{ask:?}: {reply:?}"),
    }
}

/// Rule 27: nobody is granted before one who stands before it and lives, and nobody who lives is passed over.
fn fair(before: &Content, after: &Content, now: Time) -> Result<(), Violation> {
    let lives = |waiter: &&Waiter| waiter.dies > micros(now);
    let unfair = |text| Err(Violation { invariant: Invariant::Fifo, text });
    for waiter in after.line.iter().filter(|it| it.place < 0.0).filter(lives) {
        // It may have been passed over before it was heard of.
        let was = before.waiter(waiter.attempt).filter(|was| was.dies == waiter.dies);
        if was.is_none_or(|was| was.place > 0.0) {
            return unfair(format!("{:?} was taken for dead", waiter.attempt));
        }
    }
    for earlier in before.line.iter().filter(|it| it.place > 0.0).filter(lives) {
        let Some(later) = after.waiter(earlier.attempt) else { continue };
        // An upgrade ends with its lease. A repeated request to join then stands behind the others.
        let has_ended = || before.holder(earlier.attempt).is_none_or(|it| it.ends <= micros(now));
        if earlier.place < 1.0 && later.place.abs() >= 1.0 && has_ended() {
            continue;
        }
        for holder in &after.holders {
            let was = before.holder(holder.attempt);
            if was.is_some_and(|was| was.weight >= holder.weight)
                || holder.attempt == earlier.attempt
            {
                continue;
            }
            // An upgrade stands before everybody, also one that need not wait.
            let place = match was {
                Some(_) => 0.0,
                None => before.waiter(holder.attempt).map_or(f64::INFINITY, |it| it.place.abs()),
            };
            if place > earlier.place {
                let (one, other) = (holder.attempt, earlier.attempt);
                return unfair(format!("{one:?} was granted before {other:?}"));
            }
        }
    }
    Ok(())
}
