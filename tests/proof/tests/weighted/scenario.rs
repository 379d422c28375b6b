//! What is explored: who takes part, how much may go wrong, and for how long.
//!
//! A tick is half a heartbeat. A lease and a window last three, a command at most one, and a waiter is taken for
//! dead after four. The rules compare times with each other, so what matters is which is longer, not by how much.

use crate::request::{ALL, Become, Weight};
use crate::world::{Action, World};

/// A moment or a span, in ticks.
pub(crate) type Time = i16;

/// One client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) weight: Weight,
    /// The changes of weight while it holds.
    pub(crate) changes: &'static [Become],
    pub(crate) ttl: Time,
    pub(crate) window: Time,
    pub(crate) limit: u64,
    /// How often it takes it.
    pub(crate) rounds: u8,
    /// It does not line up.
    pub(crate) tries: bool,
}

/// How often each thing may still go wrong, or be done by the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) lose: u8,
    pub(crate) crash: u8,
    pub(crate) give_up: u8,
    pub(crate) double: u8,
    /// Memory is full for a while.
    pub(crate) fill: u8,
    /// How many of the resizes were made.
    pub(crate) resized: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) clients: &'static [Plan],
    /// Who has asked, in this order, before anything goes wrong.
    pub(crate) lined_up: &'static [usize],
    pub(crate) budget: Budget,
    pub(crate) resizes: &'static [u64],
    pub(crate) renews: bool,
    /// From then on nothing goes wrong any more.
    pub(crate) horizon: Time,
    /// How many messages may be under way at a time.
    pub(crate) most: usize,
    pub(crate) dead: Time,
    pub(crate) poll: Time,
    pub(crate) exchange: Time,
    /// How long a live waiter may wait while nobody living holds (rules 13, 40).
    pub(crate) patience: Time,
}

impl Scenario {
    pub(crate) fn start(&self) -> World {
        let mut world = World::new(self);
        for &index in self.lined_up {
            for action in [Action::Ask(index), Action::Deliver(0, false), Action::Deliver(0, false)]
            {
                world.play(action, self);
            }
        }
        world
    }

    /// For how long line and signs are kept.
    pub(crate) fn line(&self, ttl: Time) -> Time {
        ttl.max(2 * self.dead)
    }
}

const PLAN: Plan = Plan {
    weight: Weight::Reader,
    changes: &[],
    ttl: 3,
    window: 3,
    limit: ALL,
    rounds: 1,
    tries: false,
};
const R: Plan = PLAN;
const W: Plan = Plan { weight: Weight::Writer, ..PLAN };
const U: Plan = Plan { weight: Weight::Upgradable, changes: &[Become::Writer], ..PLAN };
const W_R: Plan = Plan { changes: &[Become::Reader], ..W };
const W_U_W: Plan = Plan { changes: &[Become::Upgradable, Become::Writer], ..W };
const P1: Plan = Plan { weight: Weight::Permits(1), limit: 2, ..PLAN };
const P2: Plan = Plan { weight: Weight::Permits(2), ..P1 };

const NONE: Budget = Budget { lose: 0, crash: 0, give_up: 0, double: 0, fill: 0, resized: 0 };

const BASE: Scenario = Scenario {
    name: "",
    clients: &[],
    lined_up: &[],
    budget: NONE,
    resizes: &[],
    renews: false,
    horizon: 4,
    most: 2,
    dead: 4,
    poll: 2,
    exchange: 1,
    patience: 4,
};

/// All scenarios; the large ones take minutes.
pub(crate) fn all(large: bool) -> Vec<Scenario> {
    let pick = |small: Time, more: Time| if large { more } else { small };
    let few = |small: u8, more: u8| if large { more } else { small };
    let on = |name, clients, budget| Scenario {
        name,
        clients,
        // So many ways to line up take most of the time.
        lined_up: if !large && clients.len() > 2 { &[0, 1, 2] } else { &[] },
        budget,
        horizon: if large && clients.len() < 3 { 4 } else { 3 },
        ..BASE
    };
    vec![
        on("1 2, loss", &[P1, P2], Budget { lose: few(1, 2), ..NONE }),
        Scenario {
            renews: true,
            horizon: pick(2, 3),
            ..on("1 2, loss, renewed", &[P1, P2], Budget { lose: 1, ..NONE })
        },
        Scenario {
            patience: 10,
            ..on("1 2 1, crash", &[P1, P2, P1], Budget { crash: few(1, 2), ..NONE })
        },
        on("1 1 1, loss", &[P1, P1, P1], Budget { lose: 1, ..NONE }),
        on("1 2 1, give up", &[P1, P2, P1], Budget { give_up: 1, lose: few(0, 1), ..NONE }),
        Scenario {
            clients: &[Plan { rounds: 2, ..P1 }, P2],
            horizon: pick(2, 3),
            ..on(
                "1 twice and 2, doubled and lost",
                &[],
                Budget { double: 1, lose: few(0, 1), ..NONE },
            )
        },
        Scenario { resizes: &[1, 3], ..on("1 2 1, resized to 1 and 3", &[P1, P2, P1], NONE) },
        Scenario {
            patience: 8,
            horizon: pick(2, 3),
            ..on(
                "1 1, leases of 2 and 4, loss and crash",
                &[Plan { ttl: 2, window: 2, ..P1 }, Plan { ttl: 4, ..P1 }],
                Budget { lose: 1, crash: 1, ..NONE },
            )
        },
        on("limits 2 and 3", &[P1, P1, Plan { limit: 3, ..P2 }], NONE),
        on(
            "1 2 and a try, loss",
            &[P1, P2, Plan { tries: true, ..P1 }],
            Budget { lose: 1, ..NONE },
        ),
        Scenario {
            horizon: 3,
            ..on("1 2 1, memory is full", &[P1, P2, P1], Budget { fill: 1, ..NONE })
        },
        on("r r w, loss", &[R, R, W], Budget { lose: 1, ..NONE }),
        Scenario { patience: 10, ..on("r r w, crash", &[R, R, W], Budget { crash: 1, ..NONE }) },
        on("w r r", &[W, R, R], NONE),
        Scenario {
            patience: 10,
            horizon: pick(2, 3),
            ..on(
                "u>w r, crash and give up",
                &[U, R],
                Budget { crash: 1, give_up: 1, lose: few(0, 1), ..NONE },
            )
        },
        Scenario {
            horizon: pick(2, 3),
            ..on("u>w r, doubled and lost", &[U, R], Budget { double: 1, lose: few(0, 1), ..NONE })
        },
        Scenario { renews: true, horizon: pick(2, 3), ..on("u>w r, renewed", &[U, R], NONE) },
        on("u>w r w, loss", &[U, R, W], Budget { lose: 1, ..NONE }),
        on("u>w u>w r", &[U, U, R], NONE),
        on("w>r r w, loss", &[W_R, R, W], Budget { lose: few(0, 1), ..NONE }),
        Scenario {
            horizon: pick(2, 3),
            ..on("w>u>w r, doubled", &[W_U_W, R], Budget { double: 1, lose: few(0, 1), ..NONE })
        },
        Scenario {
            horizon: pick(2, 3),
            ..on("u>w r, memory is full", &[U, R], Budget { fill: 1, lose: few(0, 1), ..NONE })
        },
    ]
}
