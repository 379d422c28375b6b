//! Everything at one moment, what can happen next, and what becomes of it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::client::{Client, Part, Phase, Place};
use crate::heal;
use crate::invariant::{self, Record, Violation};
use crate::scenario::{Budget, Scenario, Time};
use crate::server::Server;
use crate::wire::{Answer, Ask, Load};

const START: Time = 1;
/// Attempts of one client that are looked at.
const MOST_ATTEMPTS: u8 = 6;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) server: Server,
    pub(crate) clients: Vec<Client>,
    /// In order, and none twice.
    pub(crate) net: Vec<Load>,
    pub(crate) left: Budget,
    pub(crate) is_full: bool,
    pub(crate) record: Record,
}

/// One thing that happens. Numbers are those of messages, as they lie, or of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    /// With `true` it comes again.
    Deliver(usize, bool),
    Lose(usize),
    Crash(usize),
    Ask(usize),
    GiveUp(usize),
    Release(usize),
    Change(usize),
    FallBack(usize),
    Renew(usize),
    Wake(usize),
    Resize,
    Fill(bool),
}

impl World {
    pub(crate) fn new(scenario: &Scenario) -> World {
        let clients = scenario.clients.iter().zip(0..);
        World {
            now: START,
            server: Server::new(scenario, START),
            clients: clients.map(|(plan, id)| Client::new(id, plan.rounds)).collect(),
            net: Vec::new(),
            left: scenario.budget,
            is_full: false,
            record: Record::default(),
        }
    }

    pub(crate) fn actions(&self, scenario: &Scenario) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.now < START + scenario.horizon {
            actions.push(Action::Tick);
        }
        for (index, load) in self.net.iter().enumerate() {
            actions.push(Action::Deliver(index, false));
            // A connection delivers a request to join once (rule 31).
            let may_double =
                !matches!(load, Load::Answer(_) | Load::Ask(Ask::Join { .. } | Ask::Try { .. }));
            if self.left.double > 0 && may_double {
                actions.push(Action::Deliver(index, true));
            }
            if self.left.lose > 0 {
                actions.push(Action::Lose(index));
            }
        }
        let has_room = self.net.len() < scenario.most;
        for (index, client) in self.clients.iter().enumerate() {
            if self.left.crash > 0 && !matches!(client.part, Part::Idle | Part::Crashed) {
                actions.push(Action::Crash(index));
            }
            if !has_room {
                continue;
            }
            match client.part {
                Part::Idle
                    if client.rounds > 0
                        && client.number < MOST_ATTEMPTS
                        && self.may_begin(index, scenario) =>
                {
                    actions.push(Action::Ask(index));
                }
                Part::Waiting { .. } if self.left.give_up > 0 => {
                    actions.push(Action::GiveUp(index))
                }
                Part::Holding(hold) => {
                    actions.push(Action::Release(index));
                    let is_valid = self.now < hold.until;
                    if is_valid && client.next_change(scenario).is_some() {
                        actions.push(Action::Change(index));
                    }
                    if self.left.give_up > 0 && matches!(client.phase, Phase::Rises { .. }) {
                        actions.push(Action::FallBack(index));
                    }
                    if scenario.renews && is_valid && !client.is_renewing {
                        actions.push(Action::Renew(index));
                    }
                }
                _ => {}
            }
            if client.is_due(self.now, scenario) {
                actions.push(Action::Wake(index));
            }
        }
        let resized = usize::from(self.left.resized);
        if has_room && self.now > START && resized < scenario.resizes.len() {
            actions.push(Action::Resize);
        }
        if self.is_full {
            actions.push(Action::Fill(false));
        } else if self.left.fill > 0 {
            actions.push(Action::Fill(true));
        }
        actions
    }

    /// Of clients that are alike, the first one begins first: in another order all would be the same.
    fn may_begin(&self, index: usize, scenario: &Scenario) -> bool {
        let Some(before) = index.checked_sub(1) else { return true };
        let is_new = |index: usize| self.clients[index].number == 0;
        scenario.clients[before] != scenario.clients[index] || !is_new(index) || !is_new(before)
    }

    /// The world after an action.
    ///
    /// Where a script failed, or what it wrote cannot be read, that is a violation too, and told with the way
    /// to it.
    pub(crate) fn step(&self, action: Action, scenario: &Scenario) -> Result<World, Violation> {
        // Nobody looks at a world any more in which something panicked.
        catch_unwind(AssertUnwindSafe(|| {
            let mut world = self.clone();
            world.apply(action, scenario)?;
            world.settle();
            let comes_again = matches!(action, Action::Deliver(_, true));
            if world.net.len() > scenario.most + usize::from(comes_again) {
                // This way is not looked at.
                return Ok(self.clone());
            }
            invariant::check(&world, scenario)?;
            heal::heal(&world, scenario)?;
            Ok(world)
        }))
        .unwrap_or_else(|panic| Err(Violation::nonsense(&*panic)))
    }

    /// Lets something happen, and checks nothing.
    pub(crate) fn play(&mut self, action: Action, scenario: &Scenario) {
        self.apply(action, scenario).expect("nothing goes wrong yet");
        self.settle();
    }

    fn apply(&mut self, action: Action, scenario: &Scenario) -> Result<(), Violation> {
        match action {
            Action::Tick => self.tick(),
            Action::Deliver(index, comes_again) => {
                let load = self.net[index].clone();
                if comes_again {
                    self.left.double -= 1;
                } else {
                    self.net.remove(index);
                }
                if !self.deliver(load.clone(), scenario)? && !comes_again {
                    self.net.push(load);
                }
            }
            Action::Lose(index) => {
                self.left.lose -= 1;
                self.net.remove(index);
            }
            Action::Crash(index) => {
                self.left.crash -= 1;
                self.clients[index].part = Part::Crashed;
            }
            Action::Ask(index) => self.client(index, scenario, Client::ask),
            Action::GiveUp(index) => {
                self.left.give_up -= 1;
                self.client(index, scenario, Client::give_up);
            }
            Action::Release(index) => self.client(index, scenario, Client::release),
            Action::Change(index) => self.client(index, scenario, Client::begin_change),
            Action::FallBack(index) => {
                self.left.give_up -= 1;
                self.client(index, scenario, Client::fall_back);
            }
            Action::Renew(index) => self.client(index, scenario, Client::renew),
            Action::Wake(index) => self.client(index, scenario, Client::wake),
            Action::Resize => {
                let limit = scenario.resizes[usize::from(self.left.resized)];
                self.left.resized += 1;
                let limit = u8::try_from(limit).expect("a small one");
                let by = self.now + scenario.exchange;
                self.net.push(Load::Ask(Ask::Resize { limit, by }));
            }
            Action::Fill(is_full) => {
                self.left.fill -= u8::from(is_full);
                self.is_full = is_full;
                self.server.fill(is_full, self.now);
            }
        }
        Ok(())
    }

    pub(crate) fn tick(&mut self) {
        self.now += 1;
        self.server.tick(self.now);
    }

    pub(crate) fn client<T>(
        &mut self,
        index: usize,
        scenario: &Scenario,
        act: impl FnOnce(&mut Client, &mut Place<'_>) -> T,
    ) -> T {
        let (now, mut sent, highest) = (self.now, Vec::new(), &mut self.record.highest);
        let mut place = Place { now, scenario, sent: &mut sent, highest };
        let done = act(&mut self.clients[index], &mut place);
        self.net.extend(sent.into_iter().map(Load::Ask));
        done
    }

    /// Returns whether a message could be looked at.
    pub(crate) fn deliver(&mut self, load: Load, scenario: &Scenario) -> Result<bool, Violation> {
        match load {
            Load::Ask(ask) => {
                let before = self.server.clone();
                let (mut answer, pushes) = self.server.run(ask, self.now)?;
                self.record.note_grants(&before, &self.server, self.now);
                if let Answer::Granted { id, grant, .. } = &mut answer {
                    grant.since = self.record.since(*id);
                }
                self.net.push(Load::Answer(answer));
                self.net.extend(pushes.iter().map(|push| Load::Push(*push)));
            }
            Load::Answer(answer) => {
                let wanted = (0..self.clients.len()).find(|it| self.clients[*it].wants(&answer));
                if let Some(index) = wanted {
                    self.client(index, scenario, |client, place| client.answered(answer, place))?;
                }
            }
            Load::Push(push) => {
                let wanted = (0..self.clients.len()).find(|it| self.clients[*it].wants_push(&push));
                if let Some(index) = wanted {
                    return self.client(index, scenario, |client, place| client.hear(push, place));
                }
            }
        }
        Ok(true)
    }

    /// Forgets what makes no difference any more, so that more states are the same.
    pub(crate) fn settle(&mut self) {
        let (now, clients) = (self.now, &mut self.clients);
        clients.iter_mut().for_each(|client| client.forget(now));
        self.net.retain(|load| match load {
            Load::Ask(
                Ask::Try { by, .. }
                | Ask::Join { by, .. }
                | Ask::Beat { by, .. }
                | Ask::Resize { by, .. },
            ) => *by >= now,
            Load::Ask(_) => true,
            Load::Answer(answer) => clients.iter().any(|client| client.wants(answer)),
            Load::Push(push) => clients.iter().any(|client| client.wants_push(push)),
        });
        self.net.sort_unstable();
        self.net.dedup();
    }
}
