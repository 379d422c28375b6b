//! The whole state at one moment, and the effect of an action on it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::action::{Action, Fate};
use crate::client::{Client, Life, Part, Place};
use crate::content::Lock;
use crate::invariant::{self, Record, Violation};
use crate::network::{Line, Load, Message, Network};
use crate::protocol::{Answer, Reply, Request, Time};
use crate::scenario::{Budget, Scenario};
use crate::server::{Event, Server};

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

impl World {
    /// Whether no client wants or holds the lock or has a release left.
    pub(crate) fn is_quiet(&self) -> bool {
        let rests = |client: &Client| {
            client.life == Life::Crashed
                || (client.part == Part::Idle && client.rounds == 0 && client.releases.is_empty())
        };
        self.network.all().is_empty() && self.clients.iter().all(rests)
    }

    /// The world after an action.
    ///
    /// A script that failed, or that wrote an unreadable value, is a violation too, and is reported
    /// with the path to it.
    pub(crate) fn step(&self, action: Action, scenario: &Scenario) -> Result<World, Violation> {
        // Nobody looks at a world any more in which something panicked.
        catch_unwind(AssertUnwindSafe(|| self.after(action, scenario)))
            .unwrap_or_else(|panic| Err(Violation::nonsense(&*panic)))
    }

    fn after(&self, action: Action, scenario: &Scenario) -> Result<World, Violation> {
        let mut world = self.clone();
        world.apply(action, scenario)?;
        world.record.arrived(&world.server, world.now);
        world.record.forget(&world.server);
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
                    // A holder that does not know of the lost data is refused by the resource.
                    let lease = self.clients[index].lease.as_ref();
                    if lease.is_some_and(|lease| lease.epoch == self.server.epoch()) {
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
                self.deafen(index);
            }
            Action::Demote(index) => {
                self.left.demote -= 1;
                self.server.meet(Event::Demote(self.clients[index].id), self.now);
            }
            Action::Move(index) => self.deafen(index),
            Action::Listen(index) => {
                self.server.meet(Event::Listen(self.clients[index].id), self.now);
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
                self.server.meet(Event::Flush, self.now);
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
        self.server.meet(Event::Tick, self.now);
    }

    fn crash(&mut self, index: usize, half_open: bool) {
        if self.left.crash > 0 {
            self.left.crash -= 1;
        } else {
            self.left.die -= 1;
        }
        let client = &mut self.clients[index];
        let Client { id, ttl, tail, number, .. } = *client;
        *client = Client { number, life: Life::Crashed, ..Client::new(id, ttl, tail, 0) };
        if !half_open {
            self.server.meet(Event::Leave(id), self.now);
        }
        self.drop_for(index, |load| !matches!(load, Load::Request(..)));
    }

    /// A client listens nowhere, until it listens at the master again.
    fn deafen(&mut self, index: usize) {
        self.clients[index].listens = false;
        self.server.meet(Event::Leave(self.clients[index].id), self.now);
        self.drop_for(index, |load| matches!(load, Load::Push(_)));
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

    /// Runs a script, and checks its effect.
    fn carry_out(&mut self, request: Request, scenario: &Scenario) -> Result<Reply, Violation> {
        let (now, setting) = (self.now, &scenario.setting);
        let before = self.server.clone();
        let (reply, effect) = self.server.run(request, now);
        let me = match request {
            Request::Acquire(acquire) => {
                if let (Reply::Acquired(Answer::Granted { token, .. }), None) =
                    (reply, effect.granted)
                {
                    self.record.check_repeat(&before, token)?;
                }
                acquire.owner
            }
            Request::Release { owner, .. } => {
                self.record.left(owner);
                owner
            }
            Request::Renew { owner, .. } => owner,
        };
        self.record.granted(&effect, &before, now, setting)?;
        let late = matches!(reply, Reply::Acquired(Answer::Late { .. }));
        if matches!(request, Request::Acquire(_)) && !late {
            self.record.heard(me, now);
        }
        self.record.skipped(me, &before, &self.server, now, setting)?;
        // Nobody has it, or one whose lease is over and whose key is in its tail (rule 47).
        let in_tail = |lock: Lock| {
            lock.owner.tail > 0 && lock.until.is_some_and(|until| until - now <= lock.owner.tail)
        };
        let takes = matches!(request, Request::Acquire(_)) && before.lock.is_none_or(in_tail);
        if !takes {
            invariant::check_touch(me, &before, &self.server)?;
        }
        for &(client, wake) in &effect.published {
            if self.clients[usize::from(client)].life != Life::Crashed {
                self.network.send(client, Load::Push(wake));
            }
        }
        Ok(reply)
    }

    /// Removes details that make no difference any more, so that more states are equal.
    fn forget(&mut self) {
        for client in &mut self.clients {
            if client.part == Part::Idle && client.rounds == 0 {
                client.reading.server = 0;
                client.reading.sent = 0;
                client.reading.received = 0;
                if client.releases.is_empty() {
                    client.offset = 0;
                }
            }
        }
    }
}
