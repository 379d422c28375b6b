//! The scenarios, each in three sizes.
//!
//! | size | for | bound |
//! | --- | --- | --- |
//! | small | `cargo test`, and the search for planted bugs | 2 or 3 clients, few faults |
//! | large | the long run, under a minute | more faults, more rounds, more clients |
//! | deep | a developer with ten minutes and 4 GB | as large, with faults of two kinds together |
//!
//! A tick is a heartbeat, and a command's time-out too; a lease lasts four, a claim three. The
//! rules compare times with each other, so what matters is which is longer, not by how much.

use crate::protocol::Time;
use crate::scenario::{Budget, Listeners, Scenario, Setting};

/// How much is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Small,
    Large,
    Deep,
}

/// Of today's size, and with as many digits behind the second as there can be, as nearly always.
const EPOCH: i64 = 1_700_000_000_123_456;
/// The same, just after a second has begun: `TIME` then returns fewer digits.
const EARLY_IN_A_SECOND: i64 = 1_700_000_000_000_456;

pub(crate) const USUAL: Setting = Setting {
    heartbeat: 1,
    exchange: 1,
    allowance: 0,
    epoch: EPOCH,
    tokens_per_tick: 4,
    extension: 0,
    hold: 2,
    tail: 0,
    tailless: 0,
    listeners: Listeners::Counted,
    is_election: false,
    mutation: None,
    script_bug: None,
};

/// With a clock that is off by up to a tick, every span must be longer than that.
const DRIFTING: Setting = Setting { exchange: 2, allowance: 1, hold: 6, ..USUAL };

/// A lease of two ticks, whose key lives for three more. A thread needs the lock for longer than the lease.
const TAILED: Setting = Setting { tail: 3, hold: 4, ..USUAL };
/// The same where clocks drift.
const TAILED_DRIFTING: Setting = Setting { tail: 3, ..DRIFTING };

/// With the scripts of an election.
const ELECTION: Setting = Setting { is_election: true, ..USUAL };

const NONE: Budget = Budget {
    lose: 0,
    delay: 0,
    duplicate: 0,
    cut: 0,
    pause: 0,
    crash: 0,
    die: 0,
    flush: 0,
    drift: 0,
    deafen: 0,
    demote: 0,
    stop_server: 0,
    give_up: 0,
    pass_on: 0,
    extend: 0,
};

/// A client: the time to live it asks for, and how often it takes the lock.
type Wish = (Time, u8);

const TWO: &[Wish] = &[(4, 1), (4, 1)];
const AGAIN: &[Wish] = &[(4, 2), (4, 1)];
const THREE: &[Wish] = &[(4, 1), (4, 1), (4, 1)];
const AGAIN_THREE: &[Wish] = &[(4, 2), (4, 1), (4, 1)];
const MIXED: &[Wish] = &[(2, 2), (6, 1)];
const SHORT: &[Wish] = &[(2, 1), (2, 1)];
const SHORT_AGAIN: &[Wish] = &[(2, 2), (2, 1)];
const SHORT_THREE: &[Wish] = &[(2, 1), (2, 1), (2, 1)];

/// Rule 13: heartbeat + claim + command time-out, when only messages are lost…
fn lost_messages(setting: Setting) -> Time {
    setting.heartbeat + setting.claim() + setting.exchange
}

/// …and the rest of a vanished holder's lease, when more goes wrong.
fn vanished_holder(setting: Setting, ttl: Time) -> Time {
    lost_messages(setting) + ttl
}

/// All scenarios.
pub(crate) fn all(size: Size) -> Vec<Scenario> {
    let small = size == Size::Small;
    let few = |small: u8, large: u8, deep: u8| match size {
        Size::Small => small,
        Size::Large => large,
        Size::Deep => deep,
    };
    let deep = |faults: u8| few(0, 0, faults);
    let pick = |few: &'static [Wish], more: &'static [Wish]| if small { few } else { more };
    let line = |clients: &'static [usize]| if small { clients } else { &[] };
    let usual = |name, clients, budget| Scenario {
        name,
        clients,
        renewed: true,
        spin: false,
        lined_up: &[],
        budget,
        setting: USUAL,
        healed: if small { 4 } else { 5 },
        longest_unheld: vanished_holder(USUAL, 4),
    };
    let mut scenarios = vec![
        Scenario {
            longest_unheld: lost_messages(USUAL),
            ..usual("loss", pick(TWO, AGAIN), Budget { lose: few(1, 2, 3), ..NONE })
        },
        usual("delay", pick(TWO, AGAIN), Budget { delay: few(1, 1, 2), ..NONE }),
        usual(
            "duplicate",
            pick(TWO, AGAIN),
            Budget { duplicate: few(1, 2, 2), delay: deep(1), ..NONE },
        ),
        Scenario {
            healed: few(2, 5, 5).into(),
            ..usual("broken connection", TWO, Budget { cut: few(1, 1, 2), delay: 1, ..NONE })
        },
        Scenario {
            spin: true,
            ..usual("spin", TWO, Budget { cut: few(1, 2, 2), delay: 1, lose: deep(1), ..NONE })
        },
        usual(
            "give up",
            pick(TWO, THREE),
            Budget { give_up: few(1, 2, 2), lose: few(1, 0, 1), ..NONE },
        ),
        usual("pause", pick(TWO, AGAIN), Budget { pause: 1, lose: deep(1), ..NONE }),
        Scenario {
            lined_up: line(&[0, 1]),
            ..usual("crash", THREE, Budget { crash: 1, lose: deep(1), ..NONE })
        },
        Scenario {
            // All die at once: those who die one after another cost a claim each.
            healed: 1,
            lined_up: line(&[0, 1, 2]),
            longest_unheld: lost_messages(USUAL),
            ..usual("dead waiters", AGAIN_THREE, Budget { die: 2, lose: few(0, 1, 1), ..NONE })
        },
        Scenario {
            healed: few(3, 4, 5).into(),
            lined_up: line(&[0, 1, 2]),
            ..usual("deaf", AGAIN_THREE, Budget { deafen: 1, ..NONE })
        },
        Scenario {
            // One who has not queued up yet comes before those in the order of the bytes.
            renewed: false,
            setting: Setting { hold: 1, ..USUAL },
            healed: few(1, 2, 2).into(),
            lined_up: &[1, 2, 3],
            ..usual(
                "deaf, newcomer",
                &[(3, 1), (3, 2), (3, 1), (3, 1)],
                Budget { deafen: 2, ..NONE },
            )
        },
        Scenario {
            healed: few(3, 4, 5).into(),
            lined_up: line(&[0, 1]),
            ..usual("listener at a replica", THREE, Budget { demote: few(1, 2, 2), ..NONE })
        },
        Scenario {
            // A script in a cluster takes everybody for a listener.
            setting: Setting { listeners: Listeners::InACluster, ..USUAL },
            healed: few(3, 4, 5).into(),
            lined_up: line(&[0, 1]),
            ..usual("at a replica, unasked", THREE, Budget { demote: 1, lose: deep(1), ..NONE })
        },
        Scenario {
            // So does a script of a user without permission for `PUBSUB`.
            setting: Setting { listeners: Listeners::Refused, ..USUAL },
            healed: few(3, 4, 5).into(),
            lined_up: line(&[0, 1]),
            ..usual("at a replica, refused", THREE, Budget { demote: 1, lose: deep(1), ..NONE })
        },
        usual(
            "FLUSHALL",
            pick(TWO, AGAIN),
            Budget { flush: 1, delay: few(0, 1, 1), pause: deep(1), ..NONE },
        ),
        Scenario {
            lined_up: line(&[0, 1]),
            healed: 4,
            ..usual("stopped server", TWO, Budget { stop_server: 1, ..NONE })
        },
        Scenario {
            setting: Setting { epoch: EARLY_IN_A_SECOND, ..USUAL },
            ..usual("three in the queue", THREE, Budget { delay: few(0, 1, 2), ..NONE })
        },
        Scenario {
            longest_unheld: vanished_holder(DRIFTING, 5),
            setting: DRIFTING,
            renewed: false,
            healed: 7,
            ..usual(
                "drift",
                &[(5, 1), (5, 1)],
                Budget { drift: few(1, 2, 2), delay: few(0, 1, 1), ..NONE },
            )
        },
        Scenario {
            longest_unheld: vanished_holder(DRIFTING, 5),
            setting: DRIFTING,
            ..usual(
                "drift, renewed",
                &[(5, 1), (5, 1)],
                Budget { drift: few(1, 2, 2), lose: few(0, 1, 2), ..NONE },
            )
        },
        Scenario {
            lined_up: line(&[0, 1]),
            longest_unheld: vanished_holder(USUAL, 6),
            setting: Setting { hold: 3, ..USUAL },
            ..usual("mixed ttls", MIXED, Budget { lose: few(1, 1, 2), ..NONE })
        },
        Scenario {
            lined_up: if size == Size::Deep { &[] } else { &[0, 1] },
            setting: Setting { extension: 6, hold: 6, ..USUAL },
            longest_unheld: vanished_holder(USUAL, 6),
            healed: 6,
            ..usual("extension", TWO, Budget { extend: 1, pause: 1, lose: few(0, 1, 1), ..NONE })
        },
        Scenario {
            lined_up: line(&[0, 1]),
            renewed: false,
            healed: 6,
            setting: Setting { hold: 4, ..USUAL },
            ..usual("fixed lease", &[(3, 2), (3, 1)], Budget { delay: few(1, 1, 2), ..NONE })
        },
        Scenario {
            setting: Setting { tokens_per_tick: 2, ..USUAL },
            ..usual("tokens", TWO, Budget { pass_on: 3, flush: 1, delay: few(0, 1, 2), ..NONE })
        },
        Scenario {
            setting: Setting { tokens_per_tick: 1, ..USUAL },
            ..usual(
                "token burst",
                pick(&[(2, 3), (2, 1)], &[(2, 3), (2, 3)]),
                Budget { delay: deep(1), ..NONE },
            )
        },
    ];
    let election =
        |name, clients, budget| Scenario { setting: ELECTION, ..usual(name, clients, budget) };
    scenarios.extend([
        election(
            "election, duplicate",
            TWO,
            Budget { duplicate: few(1, 2, 2), lose: few(0, 0, 1), ..NONE },
        ),
        Scenario {
            healed: few(2, 5, 5).into(),
            ..election("election, cut", TWO, Budget { cut: 1, delay: few(0, 1, 1), ..NONE })
        },
        Scenario {
            lined_up: line(&[0, 1]),
            ..election("election, crash", THREE, Budget { crash: 1, lose: deep(1), ..NONE })
        },
        election("election, FLUSHALL", TWO, Budget { flush: 1, delay: deep(1), ..NONE }),
        Scenario {
            setting: Setting { listeners: Listeners::InACluster, ..ELECTION },
            healed: few(3, 4, 5).into(),
            lined_up: line(&[0, 1]),
            ..election("election, in a cluster", THREE, Budget { demote: 1, lose: deep(1), ..NONE })
        },
    ]);
    // The lock of a process that is gone is free after its lease, whatever its tail (rule 47).
    let tail = |name, clients, budget| Scenario {
        setting: TAILED,
        lined_up: line(&[0, 1]),
        longest_unheld: vanished_holder(TAILED, 2),
        ..usual(name, clients, budget)
    };
    scenarios.extend([
        Scenario {
            lined_up: &[],
            ..tail("tail, loss", pick(SHORT, SHORT_AGAIN), Budget { lose: few(2, 3, 3), ..NONE })
        },
        tail("tail, delay", SHORT, Budget { delay: few(1, 2, 3), ..NONE }),
        tail(
            "tail, pause",
            pick(SHORT, SHORT_AGAIN),
            Budget { pause: 1, lose: few(0, 1, 1), ..NONE },
        ),
        Scenario {
            setting: Setting { tail: 8, ..TAILED },
            ..tail("tail, crash", SHORT_THREE, Budget { crash: 1, lose: few(0, 1, 2), ..NONE })
        },
        tail("tail, stopped server", SHORT, Budget { stop_server: 1, lose: deep(1), ..NONE }),
        Scenario {
            // A try may still run when the lease is over that a later one of the same attempt was granted.
            spin: true,
            setting: Setting { exchange: 3, hold: 3, ..TAILED },
            lined_up: &[],
            healed: few(2, 3, 4).into(),
            longest_unheld: vanished_holder(Setting { exchange: 3, ..TAILED }, 2),
            ..tail(
                "tail, unsettled",
                SHORT,
                Budget { cut: 1, delay: 1, lose: few(1, 1, 2), ..NONE },
            )
        },
        Scenario {
            setting: Setting { tailless: 0b10, ..TAILED },
            ..tail("tail of one", SHORT, Budget { lose: 2, pause: few(0, 1, 1), ..NONE })
        },
        Scenario {
            setting: TAILED_DRIFTING,
            longest_unheld: vanished_holder(TAILED_DRIFTING, 5),
            ..tail(
                "tail, drift",
                &[(5, 1), (5, 1)],
                Budget { drift: few(1, 2, 2), lose: few(1, 1, 2), ..NONE },
            )
        },
        Scenario {
            setting: Setting { is_election: true, ..TAILED },
            ..tail(
                "tail, election",
                SHORT,
                Budget { lose: few(2, 2, 3), pause: few(0, 1, 1), ..NONE },
            )
        },
    ]);
    if size == Size::Deep {
        scenarios.extend([
            usual("pause, delay", TWO, Budget { pause: 1, delay: 1, ..NONE }),
            usual("pause, cut", TWO, Budget { pause: 1, cut: 1, ..NONE }),
            usual("deaf, delay", TWO, Budget { deafen: 1, delay: 1, ..NONE }),
            usual("deaf, cut", AGAIN, Budget { deafen: 1, cut: 1, ..NONE }),
            usual("crash, delay", AGAIN, Budget { crash: 1, delay: 1, ..NONE }),
            usual("give up, cut, delay", TWO, Budget { give_up: 1, cut: 1, delay: 1, ..NONE }),
            usual("FLUSHALL, cut, delay", TWO, Budget { flush: 1, cut: 1, delay: 1, ..NONE }),
            usual("tokens, cut", TWO, Budget { pass_on: 2, flush: 1, cut: 1, ..NONE }),
            Scenario {
                spin: true,
                ..usual("spin, FLUSHALL", TWO, Budget { flush: 1, cut: 1, delay: 1, ..NONE })
            },
            Scenario {
                setting: DRIFTING,
                longest_unheld: vanished_holder(DRIFTING, 5),
                ..usual("drift, pause", &[(5, 1), (5, 1)], Budget { drift: 2, pause: 1, ..NONE })
            },
        ]);
    }
    scenarios
}
