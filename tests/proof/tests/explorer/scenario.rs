//! An explored scenario: its participants, its faults, and its length.

use crate::action::{Action, Fate};
use crate::client::Client;
use crate::invariant::Record;
use crate::mutation::{Mutation, Planted};
use crate::network::Network;
use crate::protocol::{Time, Token};
use crate::server::Server;
use crate::world::{START, World};

/// What a script learns about the subscribers of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listeners {
    /// The server returns its count.
    Counted,
    /// It refuses: the user has no permission for `PUBSUB`.
    Refused,
    /// A node of a cluster is not asked, as it counts its own alone.
    InACluster,
}

/// The times of a scenario, in ticks, and the planted bug.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) heartbeat: Time,
    /// How long one exchange may take.
    pub(crate) exchange: Time,
    /// By how much a client's clock may be off over any span.
    pub(crate) allowance: Time,
    /// The server's time at moment 0, in microseconds.
    pub(crate) epoch: i64,
    /// How far the server's tokens grow in a tick.
    pub(crate) tokens_per_tick: Token,
    /// The lease after an extension.
    pub(crate) extension: Time,
    /// How long a thread holds the lock at most.
    pub(crate) hold: Time,
    /// For how long keys outlive leases: those of all clients but of `tailless`, a bit for each.
    pub(crate) tail: Time,
    pub(crate) tailless: u8,
    pub(crate) listeners: Listeners,
    /// Whether the scripts are those of an election, which are the mutex's with more around them.
    pub(crate) is_election: bool,
    pub(crate) mutation: Option<Mutation>,
    /// The name of the patches that put a bug into the scripts.
    pub(crate) script_bug: Option<&'static str>,
}

impl Setting {
    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// For how long the key of this client outlives its lease.
    pub(crate) fn tail_of(&self, client: u8) -> Time {
        if self.tailless & (1 << client) == 0 { self.tail } else { 0 }
    }

    /// Whether a script learns that a channel has no subscriber. Otherwise it assumes one.
    pub(crate) fn counts_listeners(&self) -> bool {
        self.listeners == Listeners::Counted
    }

    /// Whether a renewal has no other keys than the lease's.
    pub(crate) fn in_cluster(&self) -> bool {
        self.listeners == Listeners::InACluster
    }

    /// The server's time in the unit of tokens.
    pub(crate) fn micros(&self, now: Time) -> Token {
        Token::from(now) * self.tokens_per_tick
    }

    pub(crate) fn dead_after(&self) -> Time {
        3 * self.heartbeat
    }

    /// The lease of a lock handed to a waiter that has not shown itself (rules 7, 8).
    pub(crate) fn claim(&self) -> Time {
        2 * self.heartbeat + self.exchange
    }

    /// The time to live of the fence beside a lease.
    pub(crate) fn fence(&self, ttl: Time) -> Time {
        ttl
    }

    /// The time to live of queue and beats.
    pub(crate) fn queue_keep(&self, ttl: Time) -> Time {
        ttl.max(2 * self.dead_after())
    }
}

/// How often each thing may still go wrong, or be done by the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) lose: u8,
    pub(crate) delay: u8,
    pub(crate) duplicate: u8,
    /// Connections that break before the reply.
    pub(crate) cut: u8,
    pub(crate) pause: u8,
    /// Processes that end for good, …
    pub(crate) crash: u8,
    /// … and such that end while they wait.
    pub(crate) die: u8,
    pub(crate) flush: u8,
    /// Ticks by which a clock is slow or fast.
    pub(crate) drift: u8,
    /// The subscriber's connection breaks.
    pub(crate) deafen: u8,
    /// The server is demoted under a subscriber, which stays there.
    pub(crate) demote: u8,
    pub(crate) stop_server: u8,
    /// Waits called off.
    pub(crate) give_up: u8,
    pub(crate) pass_on: u8,
    pub(crate) extend: u8,
}

/// One kind of action.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// For each client, its time to live and how often it takes the lock.
    pub(crate) clients: &'static [(Time, u8)],
    /// Whether leases are renewed.
    pub(crate) renewed: bool,
    /// Whether all try again and again instead of queueing.
    pub(crate) spin: bool,
    /// The attempts in the queue, in order, before any fault.
    pub(crate) lined_up: &'static [usize],
    pub(crate) budget: Budget,
    pub(crate) setting: Setting,
    /// The end of the faults. From then on delayed messages move on.
    pub(crate) healed: Time,
    /// How long the lock may be free for a live waiter (rule 13).
    pub(crate) longest_unheld: Time,
}

impl Scenario {
    pub(crate) fn with(self, planted: &Planted) -> Scenario {
        let Planted { mutation, script_bug, .. } = *planted;
        Scenario { setting: Setting { mutation, script_bug, ..self.setting }, ..self }
    }

    /// When all must be served and gone at the latest: once healed, what is left of every lease,
    /// claim and hold ends one after another.
    pub(crate) fn served(&self) -> Time {
        let longest = self.clients.iter().map(|(ttl, _)| *ttl).max().unwrap_or(0);
        let longest = longest.max(self.setting.extension) + self.setting.tail;
        let turns: u8 = self.clients.iter().map(|(_, rounds)| *rounds).sum();
        START
            + self.healed
            + longest
            + self.setting.dead_after()
            + Time::from(turns) * (self.setting.claim() + self.setting.hold)
    }

    pub(crate) fn start(&self) -> World {
        let clients: Vec<Client> = self
            .clients
            .iter()
            .zip(0..)
            .map(|(&(ttl, rounds), id)| Client::new(id, ttl, self.setting.tail_of(id), rounds))
            .collect();
        let count = u8::try_from(clients.len()).expect("not so many");
        let mut world = World {
            now: START,
            server: Server::new(&self.setting, count, START),
            stopped: false,
            clients,
            network: Network::default(),
            left: self.budget,
            record: Record::default(),
        };
        for &index in self.lined_up {
            for action in [Action::Arrive(index), Action::Deliver(0, Fate::Arrives)] {
                world = world.step(action, self).expect("nothing has gone wrong yet");
            }
        }
        world
    }
}
