//! Everything at one moment, and what can happen next.

use crate::client::{Client, Life, Part, Place};
use crate::invariant::{self, Record, Violation};
use crate::network::{Line, Load, Message, Network, Reply, Request};
use crate::scenario::{Budget, Scenario};
use crate::server::{Answer, Server, Time};

/// The first moment; not 0, which stands for "not known".
pub(crate) const START: Time = 10;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) server: Server,
    /// Whether the server's process stands still.
    pub(crate) stopped: bool,
    pub(crate) clients: Vec<Client>,
    pub(crate) network: Network,
    pub(crate) left: Budget,
    pub(crate) record: Record,
}

/// What becomes of a request's reply.
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
    StopServer,
    StartServer,
    Tick,
    TickSlow(usize),
    TickFast(usize),
    TickFlush,
}

impl World {
    /// Whether nobody wants, has or owes anything any more.
    pub(crate) fn is_quiet(&self) -> bool {
        let rests = |client: &Client| {
            client.life == Life::Crashed
                || (client.part == Part::Idle && client.rounds == 0 && client.duties.is_empty())
        };
        self.network.all().is_empty() && self.clients.iter().all(rests)
    }

    fn is_urgent(&self, message: &Message, healed: bool) -> bool {
        let ready = match message.load {
            Load::Request(..) => !self.stopped,
            _ => self.clients[usize::from(message.client)].life == Life::Up,
        };
        ready && (healed || !message.delayed)
    }

    /// What can happen now.
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
        let up = self.clients[usize::from(message.client)].life == Life::Up;
        let request = matches!(message.load, Load::Request(..));
        if if request { !self.stopped } else { up } {
            actions.push(Action::Deliver(index, Fate::Arrives));
            if let Load::Request(line, _) = message.load
                && line != Line::Nobody
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
        if client.is_due(self.now) {
            actions.push(Action::Wake(index));
            urgent = true;
        }
        if !client.ear {
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
        if left.deafen > 0 && client.ear {
            actions.push(Action::Deafen(index));
        }
        urgent
    }

    /// The world after an action.
    pub(crate) fn step(&self, action: Action, scenario: &Scenario) -> Result<World, Violation> {
        let mut world = self.clone();
        world.apply(action, scenario)?;
        world.server.purge(world.now);
        world.record.arrived(&world.server, world.now);
        world.forget();
        invariant::check(&world, scenario)?;
        Ok(world)
    }

    fn apply(&mut self, action: Action, scenario: &Scenario) -> Result<(), Violation> {
        match action {
            Action::Deliver(index, fate) => return self.deliver(index, fate, scenario),
            Action::Lose(index) => {
                self.left.lose -= 1;
                self.network.take(index);
            }
            Action::Delay(index) => {
                self.left.delay -= 1;
                let message = self.network.take(index);
                self.network.put(Message { delayed: true, ..message });
            }
            Action::Duplicate(index) => {
                self.left.duplicate -= 1;
                let mut copy = self.network.all()[index];
                if let Load::Request(line, _) = &mut copy.load {
                    *line = Line::Nobody;
                }
                self.network.put(copy);
            }
            Action::Arrive(index) => self.client(index, scenario, Client::arrive),
            Action::Wake(index) => self.client(index, scenario, Client::wake),
            Action::Release(index) => self.client(index, scenario, Client::release),
            Action::GiveUp(index) => {
                self.left.give_up -= 1;
                self.client(index, scenario, Client::give_up);
            }
            Action::Extend(index) => {
                self.left.extend -= 1;
                self.client(index, scenario, Client::extend);
            }
            Action::PassOn(index) => {
                self.left.pass_on -= 1;
                let token =
                    self.clients[index].next_token(self.now, scenario.renewed, &scenario.setting);
                if let Some(token) = token {
                    // Who does not know that the server was emptied is told by the resource.
                    let lease = self.clients[index].lease.as_ref();
                    if lease.is_some_and(|lease| lease.epoch == self.server.epoch) {
                        self.record.token(token)?;
                    } else {
                        self.record.stale_token(token);
                    }
                    self.client(index, scenario, |client, place| client.pass_on(token, place));
                }
            }
            Action::Cut(index) => {
                self.left.cut -= 1;
                self.client(index, scenario, Client::cut);
            }
            Action::Pause(index) => {
                self.left.pause -= 1;
                self.clients[index].life = Life::Paused;
            }
            Action::Resume(index) => self.clients[index].life = Life::Up,
            Action::Crash(index, half_open) => self.crash(index, half_open),
            Action::Deafen(index) => {
                self.left.deafen -= 1;
                self.clients[index].ear = false;
                self.server.heard &= !(1 << index);
                self.drop_for(index, |load| matches!(load, Load::Push(_)));
            }
            Action::Listen(index) => {
                self.server.heard |= 1 << index;
                self.client(index, scenario, Client::listen);
            }
            Action::StopServer => {
                self.left.stop_server -= 1;
                self.stopped = true;
            }
            Action::StartServer => self.stopped = false,
            Action::Tick => self.tick(),
            Action::TickSlow(index) => {
                self.left.drift -= 1;
                self.tick();
                self.clients[index].offset = -1;
            }
            Action::TickFast(index) => {
                self.left.drift -= 1;
                self.tick();
                self.clients[index].offset = 1;
            }
            Action::TickFlush => {
                self.left.flush -= 1;
                self.tick();
                self.server.flush();
                self.record.flushed();
            }
        }
        Ok(())
    }

    fn tick(&mut self) {
        let mut record = std::mem::take(&mut self.record);
        record.tick(self);
        self.record = record;
        self.now += 1;
    }

    fn crash(&mut self, index: usize, half_open: bool) {
        if self.left.crash > 0 {
            self.left.crash -= 1;
        } else {
            self.left.die -= 1;
        }
        let client = &mut self.clients[index];
        let (id, ttl, number) = (client.id, client.ttl, client.number);
        *client = Client { number, life: Life::Crashed, ..Client::new(id, ttl, 0) };
        if !half_open {
            self.server.heard &= !(1 << index);
        }
        self.drop_for(index, |load| !matches!(load, Load::Request(..)));
    }

    fn drop_for(&mut self, index: usize, unwanted: impl Fn(&Load) -> bool) {
        self.network
            .drop_if(|message| usize::from(message.client) == index && unwanted(&message.load));
    }

    fn client(
        &mut self,
        index: usize,
        scenario: &Scenario,
        act: impl FnOnce(&mut Client, &mut Place<'_>),
    ) {
        let (now, setting, renewed) = (self.now, &scenario.setting, scenario.renewed);
        let (spin, network) = (scenario.spin, &mut self.network);
        let mut place = Place { now, setting, renewed, spin, network };
        act(&mut self.clients[index], &mut place);
    }

    fn deliver(&mut self, index: usize, fate: Fate, scenario: &Scenario) -> Result<(), Violation> {
        let message = self.network.take(index);
        let at = usize::from(message.client);
        match message.load {
            Load::Push(wake) => self.client(at, scenario, |client, place| client.hear(wake, place)),
            Load::Reply(line, reply) => {
                self.client(at, scenario, |client, place| client.answered(line, reply, place));
            }
            Load::Request(line, request) => {
                let reply = self.carry_out(request, scenario)?;
                let life = self.clients[at].life;
                let wanted = line != Line::Nobody && life != Life::Crashed;
                match fate {
                    Fate::Lost => self.left.lose -= 1,
                    Fate::Delayed => {
                        self.left.delay -= 1;
                        let load = Load::Reply(line, reply);
                        self.network.put(Message { client: message.client, load, delayed: true });
                    }
                    Fate::Cut => {
                        self.left.cut -= 1;
                        self.client(at, scenario, Client::cut);
                    }
                    Fate::Arrives if wanted && life == Life::Paused => {
                        self.network.send(message.client, Load::Reply(line, reply));
                    }
                    Fate::Arrives if wanted => {
                        self.client(at, scenario, |client, place| {
                            client.answered(line, reply, place);
                        });
                    }
                    Fate::Arrives => {}
                }
            }
        }
        Ok(())
    }

    /// Runs a script, and checks what it did.
    fn carry_out(&mut self, request: Request, scenario: &Scenario) -> Result<Reply, Violation> {
        let (now, setting) = (self.now, &scenario.setting);
        self.server.purge(now);
        let before = self.server.clone();
        let (me, reply, effect) = match request {
            Request::Acquire(acquire) => {
                let (answer, effect) = self.server.acquire(now, &acquire, setting);
                if let (Answer::Granted { token, .. }, None) = (answer, effect.granted) {
                    invariant::check_repeat(&before, token)?;
                }
                (acquire.owner, Reply::Acquired(answer), effect)
            }
            Request::Release { owner, ttl, last_token } => {
                let (verdict, effect) = self.server.release(now, owner, ttl, last_token, setting);
                self.record.left(owner);
                (owner, Reply::Verdict(verdict), effect)
            }
            Request::Renew { owner, ttl } => {
                let (verdict, effect) = self.server.renew(now, owner, ttl, setting);
                (owner, Reply::Verdict(verdict), effect)
            }
        };
        self.record.granted(&effect, &before, now)?;
        let late = matches!(reply, Reply::Acquired(Answer::Late { .. }));
        if matches!(request, Request::Acquire(_)) && !late {
            self.record.heard(me, now);
        }
        self.record.skipped(me, &before, &self.server);
        let takes = matches!(request, Request::Acquire(_)) && before.lock.is_none();
        if !takes {
            invariant::check_touch(me, &before, &self.server)?;
        }
        for (client, wake) in effect.published {
            if self.clients[usize::from(client)].life != Life::Crashed {
                self.network.send(client, Load::Push(wake));
            }
        }
        Ok(reply)
    }

    /// Forgets what makes no difference any more, so that more states are the same.
    fn forget(&mut self) {
        for client in &mut self.clients {
            if client.part == Part::Idle && client.rounds == 0 {
                client.reading.server = 0;
                client.reading.sent = 0;
                client.reading.received = 0;
                if client.duties.is_empty() {
                    client.offset = 0;
                }
            }
        }
    }
}
