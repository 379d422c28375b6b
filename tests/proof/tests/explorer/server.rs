//! One Redis, as far as one lock is concerned. It runs the scripts that are shipped.
//!
//! Many ways through the states ask the same of the same server. So a script runs once for each
//! state of the server, moment and request, and its outcome is noted: a script has nothing else to
//! go by.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::ops::Deref;
use std::rc::Rc;

use crate::content::Content;
use crate::encoding::{channel, reply, wake};
use crate::fold::{Fold, fold};
use crate::protocol::{Answer, Attempt, Reply, Request, Time, Token, Wake};
use crate::redis::{Store, call};
use crate::scenario::Setting;
use crate::script::Scripts;
use crate::unit::micros_at;

/// The effects of a script besides its reply.
#[derive(Debug)]
pub(crate) struct Effect {
    /// The messages, and the clients that receive them.
    pub(crate) published: Vec<(u8, Wake)>,
    /// The attempt that became the owner and stayed it, with its token.
    pub(crate) granted: Option<(Attempt, Token)>,
}

/// The events of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// A moment has come, and what ends then is gone.
    Tick,
    Flush,
    /// A client listens here…
    Listen(u8),
    /// …or nowhere…
    Leave(u8),
    /// …or finds itself at a replica.
    Demote(u8),
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
    /// How often it was emptied. The invariants know this; no script does.
    epoch: u8,
    /// Of store and epoch.
    hash: u64,
}

/// A request that ran: the state after it, the reply, and its other effects.
type Outcome = (Rc<State>, Reply, Rc<Effect>);

/// A table from a state, a moment and something that happens.
type Table<E, T> = RefCell<HashMap<(u64, Time, E), T, BuildHasherDefault<Fold>>>;

/// The transitions of servers in one scenario, computed so far.
#[derive(Debug)]
struct Machine {
    setting: Setting,
    clients: u8,
    scripts: Scripts,
    /// By their hashes.
    states: RefCell<HashMap<u64, Rc<State>, BuildHasherDefault<Fold>>>,
    events: Table<Event, Rc<State>>,
    outcomes: Table<Request, Outcome>,
}

impl Server {
    /// An empty server, to which all clients listen.
    pub(crate) fn new(setting: &Setting, clients: u8, now: Time) -> Server {
        let mut store = Store::default();
        (0..clients).for_each(|client| store.subscribe(client.into(), &channel(client)));
        let machine = Machine {
            setting: *setting,
            clients,
            scripts: Scripts::new(setting),
            states: RefCell::default(),
            events: Table::default(),
            outcomes: Table::default(),
        };
        Server { state: machine.state(store, 0, now), machine: Rc::new(machine) }
    }

    pub(crate) fn epoch(&self) -> u8 {
        self.state.epoch
    }

    /// Lets something happen to it.
    pub(crate) fn meet(&mut self, event: Event, now: Time) {
        let after = || self.machine.after(&self.state, event, now);
        self.state = known(&self.machine.events, (self.state.hash, now, event), after);
    }

    /// Carries a request out.
    pub(crate) fn run(&mut self, request: Request, now: Time) -> (Reply, Rc<Effect>) {
        let run = || self.machine.run(&self.state, request, now);
        let outcome = known(&self.machine.outcomes, (self.state.hash, now, request), run);
        self.state = outcome.0;
        (outcome.1, outcome.2)
    }
}

/// The entry of a table, or the one that is inserted now.
fn known<E: Hash + Eq, T: Clone>(
    table: &Table<E, T>,
    key: (u64, Time, E),
    new: impl FnOnce() -> T,
) -> T {
    if let Some(known) = table.borrow().get(&key) {
        return known.clone();
    }
    let new = new();
    table.borrow_mut().insert(key, new.clone());
    new
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
    fn micros(&self, now: Time) -> u64 {
        micros_at(now, &self.setting).unsigned_abs()
    }

    fn state(&self, mut store: Store, epoch: u8, now: Time) -> Rc<State> {
        let hash = fold((&store, epoch));
        let mut states = self.states.borrow_mut();
        let state = states.entry(hash).or_insert_with(|| {
            let content = Content::read(&mut store, now, self.clients, &self.setting);
            Rc::new(State { store, content, epoch, hash })
        });
        Rc::clone(state)
    }

    fn after(&self, before: &State, event: Event, now: Time) -> Rc<State> {
        let (mut store, mut epoch) = (before.store.clone(), before.epoch);
        match event {
            // Redis keeps a key for the millisecond in which it ends. Here it is gone by then.
            Event::Tick => _ = store.expire(self.micros(now) + 1_000),
            Event::Flush => {
                store.flush();
                epoch += 1;
            }
            Event::Listen(client) => {
                store.put_at_replica(client.into(), false);
                store.subscribe(client.into(), &channel(client));
            }
            Event::Leave(client) => store.disconnect(client.into()),
            Event::Demote(client) => store.put_at_replica(client.into(), true),
        }
        self.state(store, epoch, now)
    }

    fn run(&self, before: &State, request: Request, now: Time) -> Outcome {
        let (mut store, setting, epoch) = (before.store.clone(), &self.setting, before.epoch);
        let (value, effects) = self.scripts.command(&request, setting, |words| {
            store.run(self.micros(now), |run| call(run, words))
        });
        let reply = match value {
            Ok(value) => reply(value, &request, now, epoch, setting),
            Err(error) if error.text().starts_with("TRYAGAIN its lease is over") => Reply::Yielded,
            Err(error) => panic!("{request:?}: {}", error.text()),
        };
        let mut published = Vec::new();
        for message in effects.published {
            // What is told to the observers of an election is for no client of the explorer.
            let to = (0..self.clients).find(|client| channel(*client) == message.channel);
            let wake = |to| Some((to, wake(&message.payload, epoch, setting)?));
            published.extend(to.and_then(wake));
        }
        let after = self.state(store, epoch, now);
        let new = after.content.owner().filter(|owner| before.content.owner() != Some(*owner));
        let granted = new.and_then(|owner| {
            let token = granted_to(owner, &request, reply, &published);
            // Without a message, the next to ask learns the written grant. No renewal may grant.
            let written = after.content.fence.filter(|_| !matches!(request, Request::Renew { .. }));
            Some((owner, token.or(written.map(|fence| fence.token))?))
        });
        published.retain(|(client, _)| before.content.reaches(*client));
        (after, reply, Rc::new(Effect { published, granted }))
    }
}

/// The token with which a new owner was granted the lock: by the reply to its own request, or by a
/// message.
fn granted_to(
    owner: Attempt,
    request: &Request,
    reply: Reply,
    published: &[(u8, Wake)],
) -> Option<Token> {
    if let (Request::Acquire(acquire), Reply::Acquired(Answer::Granted { token, .. })) =
        (request, reply)
        && acquire.owner == owner
    {
        return Some(token);
    }
    published.iter().find_map(|(client, wake)| match wake {
        Wake::Granted(grant) if (*client, grant.number) == (owner.client, owner.number) => {
            Some(grant.token)
        }
        _ => None,
    })
}
