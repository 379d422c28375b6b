//! What locks should do, told without any of their code: a model of owners, hold counts and
//! validity, to the millisecond.
//!
//! It is exact while no fault is scripted. From the first fault on it is in doubt, and expects
//! nothing, until everything is healed and every lease is over. What must hold even then is checked
//! by who compares (`proof`).

mod shared;

use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;

use crate::base::share::Access;
use crate::tests::model::setting::{CLIENTS, Expected, LEASES, NAMES};
pub(super) use shared::Act;
use shared::Shared;

/// The name whose lock is handed over.
pub(super) const MUTEX: usize = 0;
/// The name whose lock shows its hold count.
const REENTRANT: usize = 1;

/// Longer than any lease here, and than the last token is kept.
pub(super) const OVER: u64 = 61_000;

/// What is done, by which client to which name.
#[derive(Clone, Debug)]
pub(super) enum Step {
    TryLock(usize, usize),
    /// Only where it need not wait.
    Lock(usize, usize),
    /// By a handle that enters nothing, and whose hold is not entered.
    TryOnce(usize, usize),
    /// For no thread; then it becomes the hold of this one.
    TryOwned(usize, usize),
    /// So many of all names that are free; then they become holds of this thread.
    Claim(usize, usize),
    /// A thread of this client waits for the mutex.
    Queue(usize),
    Release(usize, usize),
    Drop(usize, usize),
    Extend(usize, usize, u64),
    Check(usize, usize),
    Force(usize, usize),
    Delete(usize),
    Steal(usize, u64),
    /// To the read-write lock.
    Share(usize, Act),
    DeleteShared,
    /// One request of this step, or its answer, is lost: it is repeated, and nobody notices.
    Losing(bool, Box<Step>),
    Advance(u64),
    Suspend(u64),
    LoseAnswers(usize, u32),
    LoseRequests(usize, u32),
    ListenAtReplica(usize),
    Cut(usize),
    Restore(usize),
    /// All faults are over, all guards are dropped, and all leases end.
    Heal,
}

/// What one client has of one name.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) count: u32,
    /// Whether its thread may not enter it.
    once: bool,
    valid_until: u64,
    /// Since when the key is not its own any more.
    dispossessed: Option<u64>,
    /// Its client is told of that, if it listens.
    evicted: bool,
}

/// What a name's key holds.
#[derive(Clone, Debug)]
enum Key {
    Free,
    /// Until then; `u64::MAX`: renewed.
    Of(usize, u64),
    Foreign(u64),
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) now: u64,
    pub(super) holds: [[Option<Hold>; NAMES]; CLIENTS],
    pub(super) shared: Shared,
    keys: [Key; NAMES],
    /// The clients that wait for the mutex, in this order.
    pub(super) queue: Vec<usize>,
    pub(super) in_doubt: bool,
    pub(super) expected: Expected,
}

impl Model {
    fn new() -> Model {
        Model {
            now: 0,
            holds: Default::default(),
            shared: Shared::default(),
            keys: std::array::from_fn(|_| Key::Free),
            queue: Vec::new(),
            in_doubt: false,
            expected: Expected::Any,
        }
    }

    fn is_free(&self, name: usize) -> bool {
        match self.keys[name] {
            Key::Free => true,
            Key::Of(_, until) | Key::Foreign(until) => until < self.now,
        }
    }

    /// Whether a hold is still valid; `None`: its worker may or may not have found out.
    pub(super) fn is_valid(&self, client: usize, name: usize) -> Option<bool> {
        let hold = self.holds[client][name].as_ref()?;
        let (ttl, renewed) = LEASES[client];
        match hold.dispossessed {
            Some(since) if renewed && self.now < since + ttl / 3 => None,
            Some(_) if renewed => Some(false),
            // To show a hold count is to ask, too.
            Some(_) if (name == REENTRANT || hold.evicted) && self.now < hold.valid_until => None,
            _ => Some(self.now < hold.valid_until),
        }
    }

    fn take(&mut self, client: usize, name: usize, once: bool, waits: bool) -> Expected {
        if let Some(hold) = &self.holds[client][name] {
            let may_enter = !once && !hold.once;
            return match self.is_valid(client, name) {
                Some(true) if !may_enter && waits => Expected::Refused,
                Some(true) if !may_enter => Expected::Busy,
                Some(true) => {
                    // One that asks for a later end asks Redis for it (rule 62).
                    let (ttl, renewed) = LEASES[client];
                    let until = self.now + ttl - ttl / 100 - 2;
                    let is_longer = !renewed && until > hold.valid_until + ttl / 100 + 2;
                    if is_longer && self.extend(client, name, ttl) == Expected::Lost {
                        return Expected::Lost;
                    }
                    self.holds[client][name].iter_mut().for_each(|hold| hold.count += 1);
                    Expected::Granted
                }
                _ => Expected::Lost,
            };
        }
        if !self.is_free(name) {
            return Expected::Busy;
        }
        self.grant(client, name);
        self.holds[client][name].iter_mut().for_each(|hold| hold.once = once);
        Expected::Granted
    }

    /// Takes it for no thread.
    fn own(&mut self, client: usize, name: usize) -> Expected {
        match self.holds[client][name] {
            Some(_) => Expected::Busy,
            None => self.take(client, name, false, false),
        }
    }

    /// Takes so many of all that are free.
    fn claim(&mut self, client: usize, most: usize) -> Expected {
        let mut claimed = [false; NAMES];
        for name in 0..NAMES {
            let missing = claimed.iter().filter(|&&is| is).count() < most;
            claimed[name] = missing && self.own(client, name) == Expected::Granted;
        }
        Expected::Claimed(claimed)
    }

    /// Whether no hold of this client was lost, as far as is known.
    fn is_sound(&self, client: usize, name: usize) -> bool {
        self.holds[client][name].is_none() || self.is_valid(client, name) == Some(true)
    }

    fn grant(&mut self, client: usize, name: usize) {
        let (ttl, renewed) = LEASES[client];
        let end = |span| if renewed { u64::MAX } else { self.now + span };
        self.keys[name] = Key::Of(client, end(ttl));
        let valid_until = end(ttl - ttl / 100 - 2);
        self.holds[client][name] =
            Some(Hold { count: 1, once: false, valid_until, dispossessed: None, evicted: false });
    }

    /// The key is given up: the next has it.
    fn vacate(&mut self, name: usize) {
        self.keys[name] = Key::Free;
        if name == MUTEX && !self.queue.is_empty() {
            let next = self.queue.remove(0);
            self.grant(next, name);
        }
    }

    /// Whether its owner knows that the key is its own, and who that is.
    fn owner(&self, name: usize) -> Option<usize> {
        let Key::Of(client, _) = self.keys[name] else { return None };
        let is_owner = self.holds[client][name].as_ref()?.dispossessed.is_none();
        (is_owner && self.is_valid(client, name) == Some(true)).then_some(client)
    }

    fn leave(&mut self, client: usize, name: usize) -> Expected {
        let valid = self.is_valid(client, name);
        let Some(hold) = &mut self.holds[client][name] else { return Expected::Any };
        hold.count -= 1;
        let dispossessed = hold.dispossessed.is_some();
        if hold.count > 0 {
            return valid.map_or(Expected::Any, |valid| {
                if valid { Expected::Done } else { Expected::Lost }
            });
        }
        self.holds[client][name] = None;
        if dispossessed || valid != Some(true) {
            return Expected::Lost;
        }
        self.vacate(name);
        Expected::Done
    }

    fn extend(&mut self, client: usize, name: usize, span: u64) -> Expected {
        let valid = self.is_valid(client, name);
        let now = self.now;
        let Some(hold) = &mut self.holds[client][name] else { return Expected::Any };
        if hold.dispossessed.is_some() || valid != Some(true) {
            // A caller that asks is told, if the worker was not.
            hold.valid_until = hold.valid_until.min(now);
            hold.dispossessed = hold.dispossessed.map(|_| 0);
            return Expected::Lost;
        }
        if let Key::Of(_, until) = &mut self.keys[name] {
            *until = (*until).max(now + span);
        }
        if span > 0 {
            hold.valid_until = hold.valid_until.max(now + span - span / 100 - 2);
        }
        Expected::Done
    }

    /// The key is taken away, behind the back of its holder.
    fn dispossess(&mut self, name: usize, key: Key) {
        if let Key::Of(client, _) = self.keys[name]
            && let Some(hold) = &mut self.holds[client][name]
        {
            hold.dispossessed.get_or_insert(self.now);
        }
        self.keys[name] = key;
    }
}

/// What is done to the read-write lock.
fn acts() -> BoxedStrategy<Act> {
    let access = prop::sample::select(vec![Access::Read, Access::UpgradableRead, Access::Write]);
    let lesser = prop::sample::select(vec![Access::Read, Access::UpgradableRead]);
    prop_oneof![
        12 => access.prop_map(Act::Enter),
        5 => Just(Act::Release),
        2 => Just(Act::Drop),
        2 => (100..20_000_u64).prop_map(Act::Extend),
        2 => Just(Act::Check),
        4 => Just(Act::Upgrade),
        4 => lesser.prop_map(Act::Downgrade),
        1 => Just(Act::Force),
    ]
    .boxed()
}

impl ReferenceStateMachine for Model {
    type State = Model;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Model> {
        Just(Model::new()).boxed()
    }

    fn transitions(model: &Model) -> BoxedStrategy<Step> {
        let which = || (0..CLIENTS, 0..NAMES);
        let spans = prop::sample::select(vec![
            1, 99, 1_000, 3_950, 4_947, 4_948, 4_999, 5_001, 11_000, 31_000,
        ]);
        prop_oneof![
            10 => which().prop_map(|(client, name)| Step::TryLock(client, name)),
            5 => which().prop_map(|(client, name)| Step::Lock(client, name)),
            4 => which().prop_map(|(client, name)| Step::TryOnce(client, name)),
            4 => which().prop_map(|(client, name)| Step::TryOwned(client, name)),
            4 => (0..CLIENTS, 0..=NAMES).prop_map(|(client, most)| Step::Claim(client, most)),
            6 => (0..CLIENTS).prop_map(Step::Queue),
            6 => which().prop_map(|(client, name)| Step::Release(client, name)),
            2 => which().prop_map(|(client, name)| Step::Drop(client, name)),
            3 => (which(), 100..20_000_u64)
                .prop_map(|((client, name), span)| Step::Extend(client, name, span)),
            2 => which().prop_map(|(client, name)| Step::Check(client, name)),
            2 => which().prop_map(|(client, name)| Step::Force(client, name)),
            2 => (0..NAMES).prop_map(Step::Delete),
            1 => (1_000..9_000_u64).prop_map(|span| Step::Steal(0, span)),
            24 => (0..CLIENTS, acts()).prop_map(|(client, act)| Step::Share(client, act)),
            1 => Just(Step::DeleteShared),
            9 => spans.clone().prop_map(Step::Advance),
            1 => spans.prop_map(Step::Suspend),
            2 => (0..CLIENTS, 1..4_u32).prop_map(|(client, count)| Step::LoseAnswers(client, count)),
            1 => (0..CLIENTS, 1..4_u32).prop_map(|(client, count)| Step::LoseRequests(client, count)),
            1 => (0..CLIENTS).prop_map(Step::ListenAtReplica),
            1 => (0..CLIENTS).prop_map(Step::Cut),
            1 => (0..CLIENTS).prop_map(Step::Restore),
            if model.in_doubt { 6 } else { 1 } => Just(Step::Heal),
            4 => (prop::bool::ANY, which()).prop_map(|(answer, (client, name))| {
                Step::Losing(answer, Box::new(Step::TryLock(client, name)))
            }),
            2 => (prop::bool::ANY, 0..CLIENTS, 1..=NAMES).prop_map(|(answer, client, most)| {
                Step::Losing(answer, Box::new(Step::Claim(client, most)))
            }),
            3 => (prop::bool::ANY, which()).prop_map(|(answer, (client, name))| {
                Step::Losing(answer, Box::new(Step::Release(client, name)))
            }),
            5 => (prop::bool::ANY, 0..CLIENTS, acts()).prop_map(|(answer, client, act)| {
                Step::Losing(answer, Box::new(Step::Share(client, act)))
            }),
            2 => (prop::bool::ANY, which(), 100..20_000_u64).prop_map(|(answer, (client, name), span)| {
                Step::Losing(answer, Box::new(Step::Extend(client, name, span)))
            }),
        ]
        .boxed()
    }

    fn preconditions(model: &Model, step: &Step) -> bool {
        if model.in_doubt {
            // Who cannot know whether it is free does not wait for it.
            return !matches!(
                step,
                Step::Lock(..) | Step::Suspend(_) | Step::Losing(..) | Step::Queue(_)
            );
        }
        if let Step::TryLock(client, MUTEX)
        | Step::Lock(client, MUTEX)
        | Step::TryOnce(client, MUTEX)
        | Step::TryOwned(client, MUTEX) = step
            && model.queue.contains(client)
        {
            return false;
        }
        match *step {
            Step::Losing(_, ref step) => {
                let is_repeated = match **step {
                    Step::Share(client, act) => model.shared.is_repeated(client, act),
                    _ => true,
                };
                is_repeated && Model::preconditions(model, step)
            }
            Step::Share(client, act) => model.shared.allows(client, act, model.now),
            // A renewal that is not awaited may or may not have found out.
            Step::TryLock(client, name) | Step::TryOnce(client, name) => {
                model.holds[client][name].is_none() || model.is_valid(client, name).is_some()
            }
            // A lost hold of the thread does not concern them, and its guards would be mixed with the new one.
            Step::TryOwned(client, name) => model.is_sound(client, name),
            Step::Claim(client, _) => (0..NAMES).all(|name| model.is_sound(client, name)),
            Step::Lock(client, name) => match model.holds[client][name] {
                Some(_) => model.is_valid(client, name).is_some(),
                None => model.is_free(name),
            },
            Step::Release(client, name)
            | Step::Drop(client, name)
            | Step::Extend(client, name, _)
            | Step::Check(client, name) => model.holds[client][name].is_some(),
            // Which of what is due wins after a sleep, the model does not know.
            Step::Suspend(span) => span < 900,
            Step::Restore(_) => false,
            Step::Queue(client) => {
                let new = !model.queue.contains(&client) && model.holds[client][MUTEX].is_none();
                new && model.owner(MUTEX).is_some()
            }
            // Who would have it next is a matter of who asks first.
            Step::Delete(MUTEX) | Step::Steal(MUTEX, _) => model.queue.is_empty(),
            _ => true,
        }
    }

    fn apply(mut model: Model, step: &Step) -> Model {
        if let Step::Losing(answer, step) = step {
            let released = match **step {
                Step::Release(client, name) => {
                    let hold = model.holds[client][name].as_ref();
                    hold.map(|hold| (hold.count == 1, hold.dispossessed.is_some()))
                }
                Step::Share(client, Act::Release) => {
                    Some((true, model.shared.is_dispossessed(client)))
                }
                _ => None,
            };
            let mut model = Model::apply(model, step);
            // A release that finds nothing when it is repeated may have been done before, or the lock was lost (rule 15).
            model.expected = match (model.expected, released) {
                (Expected::Done, Some((true, false))) if *answer => Expected::Unknown,
                (Expected::Lost, Some((true, true))) => Expected::NotDone,
                (expected, _) => expected,
            };
            return model;
        }
        model.expected = Expected::Any;
        match *step {
            Step::LoseAnswers(..)
            | Step::LoseRequests(..)
            | Step::ListenAtReplica(_)
            | Step::Cut(_) => model.in_doubt = true,
            Step::Heal => return Model::new(),
            // The same when the lease of the owner ends.
            Step::Advance(span) | Step::Suspend(span) if !model.queue.is_empty() => {
                let then = Model { now: model.now + span, ..model.clone() };
                model.in_doubt |= then.owner(MUTEX).is_none();
            }
            _ => {}
        }
        if model.in_doubt {
            return model;
        }
        model.expected = match *step {
            Step::TryLock(client, name) => model.take(client, name, false, false),
            Step::Lock(client, name) => model.take(client, name, false, true),
            Step::TryOnce(client, name) => model.take(client, name, true, false),
            Step::TryOwned(client, name) => model.own(client, name),
            Step::Claim(client, most) => model.claim(client, most),
            Step::Release(client, name) => model.leave(client, name),
            Step::Drop(client, name) => {
                model.leave(client, name);
                Expected::Any
            }
            Step::Extend(client, name, span) => model.extend(client, name, span),
            Step::Check(client, name) => model.extend(client, name, 0),
            Step::Force(_, name) => {
                let was = !model.is_free(name);
                if let Key::Of(client, _) = model.keys[name]
                    && let Some(hold) = &mut model.holds[client][name]
                {
                    hold.evicted = true;
                }
                model.dispossess(name, Key::Free);
                model.vacate(name);
                Expected::Was(was)
            }
            Step::Queue(client) => {
                model.queue.push(client);
                Expected::Any
            }
            Step::Share(client, act) => {
                let now = model.now;
                model.shared.act(client, act, now)
            }
            Step::DeleteShared => {
                model.shared.dispossess(model.now);
                Expected::Any
            }
            Step::Delete(name) => {
                let was = !model.is_free(name);
                model.dispossess(name, Key::Free);
                Expected::Was(was)
            }
            Step::Steal(name, span) => {
                let until = model.now + span;
                model.dispossess(name, Key::Foreign(until));
                Expected::Any
            }
            Step::Advance(span) | Step::Suspend(span) => {
                model.now += span;
                Expected::Any
            }
            _ => Expected::Any,
        };
        model
    }
}
