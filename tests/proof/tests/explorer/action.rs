//! The actions that can happen next.

use crate::client::{Client, Life, Part};
use crate::network::{Line, Load, Message};
use crate::protocol::Request;
use crate::scenario::{Budget, Scenario};
use crate::world::{START, World};

/// The fate of a request's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Arrives,
    Lost,
    Delayed,
    /// The connection breaks after the request was carried out.
    Cut,
}

/// One thing that happens. Numbers are those of messages, as they lie, or of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Deliver(usize, Fate),
    Lose(usize),
    Delay(usize),
    Duplicate(usize),
    Arrive(usize),
    Wake(usize),
    Release(usize),
    GiveUp(usize),
    PassOn(usize),
    Extend(usize),
    Cut(usize),
    Pause(usize),
    Resume(usize),
    /// With `true` the server goes on believing that it listens.
    Crash(usize, bool),
    Deafen(usize),
    Listen(usize),
    /// The listener finds itself at a replica.
    Demote(usize),
    /// It leaves the replica, to listen at the master.
    Move(usize),
    StopServer,
    StartServer,
    Tick,
    TickSlow(usize),
    TickFast(usize),
    TickFlush,
}

impl World {
    fn is_urgent(&self, message: &Message, healed: bool) -> bool {
        let ready = match message.load {
            Load::Request(..) => !self.stopped,
            _ => self.clients[usize::from(message.client)].life == Life::Up,
        };
        ready && (healed || !message.delayed)
    }

    /// The actions that can happen now.
    pub(crate) fn actions(&self, scenario: &Scenario) -> Vec<Action> {
        let mut actions = Vec::new();
        let healed = self.now >= START + scenario.healed;
        let left = if healed { Budget::default() } else { self.left };
        let mut urgent = false;
        for (index, message) in self.network.all().iter().enumerate() {
            if index > 0 && self.network.all()[index - 1] == *message {
                continue;
            }
            urgent |= self.is_urgent(message, healed);
            self.message_actions(index, message, &left, &mut actions);
        }
        for (index, client) in self.clients.iter().enumerate() {
            urgent |= self.client_actions(index, client, healed, &left, scenario, &mut actions);
        }
        if self.stopped {
            actions.push(Action::StartServer);
            urgent |= healed;
        } else if left.stop_server > 0 {
            actions.push(Action::StopServer);
        }
        if !urgent && !self.is_quiet() {
            actions.push(Action::Tick);
            if left.flush > 0 {
                actions.push(Action::TickFlush);
            }
            if left.drift > 0 {
                for index in 0..self.clients.len() {
                    if self.clients[index].offset == 0 {
                        actions.extend([Action::TickSlow(index), Action::TickFast(index)]);
                    }
                }
            }
        }
        actions
    }

    fn message_actions(
        &self,
        index: usize,
        message: &Message,
        left: &Budget,
        actions: &mut Vec<Action>,
    ) {
        let life = self.clients[usize::from(message.client)].life;
        let up = life == Life::Up;
        let request = matches!(message.load, Load::Request(..));
        if if request { !self.stopped } else { up } {
            actions.push(Action::Deliver(index, Fate::Arrives));
            if let Load::Request(line, _) = message.load
                && line != Line::Nobody
                && life != Life::Crashed
            {
                if left.lose > 0 {
                    actions.push(Action::Deliver(index, Fate::Lost));
                }
                if left.delay > 0 {
                    actions.push(Action::Deliver(index, Fate::Delayed));
                }
                if left.cut > 0 && line == Line::Thread && up {
                    actions.push(Action::Deliver(index, Fate::Cut));
                }
            }
        }
        if left.lose > 0 {
            actions.push(Action::Lose(index));
        }
        if left.delay > 0 && !message.delayed {
            actions.push(Action::Delay(index));
        }
        // A connection delivers a request once: its copies are the client's own, sent again. Those
        // of a request to take the lock would be no client's.
        if left.duplicate > 0
            && !matches!(message.load, Load::Reply(..) | Load::Request(_, Request::Acquire(_)))
        {
            actions.push(Action::Duplicate(index));
        }
    }

    fn client_actions(
        &self,
        index: usize,
        client: &Client,
        healed: bool,
        left: &Budget,
        scenario: &Scenario,
        actions: &mut Vec<Action>,
    ) -> bool {
        match client.life {
            Life::Crashed => return false,
            Life::Paused => {
                actions.push(Action::Resume(index));
                return healed;
            }
            Life::Up => {}
        }
        let mut urgent = false;
        if client.is_due(self.now, &scenario.setting) {
            actions.push(Action::Wake(index));
            urgent = true;
        }
        if !client.listens {
            actions.push(Action::Listen(index));
            urgent |= healed;
        }
        let exchanging = match client.part {
            Part::Idle => {
                if client.rounds > 0 {
                    actions.push(Action::Arrive(index));
                    urgent |= healed;
                }
                false
            }
            Part::Holding { since } => {
                let lease = client.lease.as_ref();
                if lease.is_some_and(|lease| lease.extension.is_none()) {
                    actions.push(Action::Release(index));
                    urgent |= healed || self.now - since >= scenario.setting.hold;
                    if left.extend > 0 {
                        actions.push(Action::Extend(index));
                    }
                }
                let next = client.next_token(self.now, scenario.renewed, &scenario.setting);
                if left.pass_on > 0 && next.is_some() {
                    actions.push(Action::PassOn(index));
                }
                false
            }
            Part::Pausing { .. } => false,
            Part::Asking { .. } | Part::Leaving { .. } | Part::Releasing { .. } => true,
        };
        if client.is_trying() && left.give_up > 0 {
            actions.push(Action::GiveUp(index));
        }
        if exchanging && left.cut > 0 {
            actions.push(Action::Cut(index));
        }
        if left.pause > 0 {
            actions.push(Action::Pause(index));
        }
        if left.crash > 0 && client.part != Part::Idle
            || left.die > 0 && matches!(client.part, Part::Pausing { .. })
        {
            actions.extend([Action::Crash(index, false), Action::Crash(index, true)]);
        }
        if left.deafen > 0 && client.listens {
            actions.push(Action::Deafen(index));
        }
        let (hears, counted) = (self.server.reaches(client.id), self.server.counts(client.id));
        if left.demote > 0 && counted {
            actions.push(Action::Demote(index));
        }
        if hears && !counted {
            actions.push(Action::Move(index));
            urgent |= healed;
        }
        urgent
    }
}
