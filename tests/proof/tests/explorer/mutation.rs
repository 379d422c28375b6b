//! Bugs planted into the protocol one at a time, each of which the explorer must find.
//!
//! A bug of a client is a [`Mutation`], which the client looks for. A bug of a script replaces a piece of its
//! text. Where the library departs from the letter of a rule, the bug is planted where the library keeps its
//! spirit; `note` says so.

use Invariant::{
    Fence, Fifo, Ghost, Immortal, Overlap, Place, Repeat, Served, Starved, Token, Touch,
};
use Mutation::*;

use crate::invariant::Invariant;

/// What is wrong with the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    AttemptReused,
    ValidityFromReceipt,
    BeatUnnoted,
    LeaveOnce,
    ResendUnnoted,
    NoReconciliation,
    LargeBlock,
    ReplyUnmatched,
    NoDriftAllowance,
    GrantFromReceipt,
    NoHeartbeat,
    LeaveForgotten,
    ReleaseDatedByAnswer,
    CleanUpForEver,
    GoneIgnored,
}

/// One line of the table of planted bugs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planted {
    /// What is wrong with the clients.
    pub(crate) mutation: Option<Mutation>,
    /// The name of the patches that put a bug into the scripts.
    pub(crate) script_bug: Option<&'static str>,
    pub(crate) name: &'static str,
    pub(crate) rule: u8,
    /// Where it is looked for.
    pub(crate) scenario: &'static str,
    /// Which promises it may break first.
    pub(crate) breaks: &'static [Invariant],
    pub(crate) note: &'static str,
}

const fn planted(
    mutation: Mutation,
    name: &'static str,
    rule: u8,
    scenario: &'static str,
    breaks: &'static [Invariant],
    note: &'static str,
) -> Planted {
    Planted { mutation: Some(mutation), script_bug: None, name, rule, scenario, breaks, note }
}

const fn in_script(
    name: &'static str,
    rule: u8,
    scenario: &'static str,
    breaks: &'static [Invariant],
) -> Planted {
    Planted { mutation: None, script_bug: Some(name), name, rule, scenario, breaks, note: "" }
}

/// Bugs of the scripts besides those in `tests/proof/tests/mutation/script.rs`: name, script, the piece to replace,
/// and its replacement.
pub(crate) const PATCHES: &[(&str, &str, &str, &str)] = &[
    (
        "repeated-grant-mints",
        "kind/mutex/wait.lua",
        "return granted(left, redis.pcall('GET', KEYS[2]))",
        "return granted(left)",
    ),
    (
        "skipped-waiter-stays-skipped",
        "kind/mutex/wait.lua",
        "    if place < 0 then",
        "    if false then",
    ),
];

/// All of them.
pub(crate) const TABLE: &[Planted] = &[
    in_script("full-ttl-on-a-repeated-grant", 3, "fixed lease", &[Overlap]),
    in_script("releasers-ttl-for-the-next-owner", 7, "mixed ttls", &[Overlap]),
    planted(AttemptReused, "attempt reused after leave", 5, "broken connection", &[Overlap], ""),
    planted(ValidityFromReceipt, "validity from receipt", 3, "fixed lease", &[Overlap], ""),
    in_script("renewal-that-shortens", 14, "extension", &[Overlap]),
    Planted {
        mutation: Some(BeatUnnoted),
        script_bug: Some("beat-that-may-join"),
        name: "beat that may join",
        rule: 1,
        scenario: "broken connection",
        breaks: &[Ghost],
        note: "planted with what rule 1 is for: unanswered beats are then not waited for in the clean-up \
             (the library waits for every unanswered request, which alone makes such a beat harmless)",
    },
    planted(LeaveOnce, "leave sent once only", 6, "broken connection", &[Ghost], ""),
    in_script("no-request-deadline", 2, "delay", &[Ghost]),
    planted(
        ResendUnnoted,
        "resend before the answer",
        2,
        "broken connection",
        &[Ghost],
        "the library does resend at once after a broken connection, and notes until when the first \
         request may still run; planted is a resend that does not note it",
    ),
    planted(NoReconciliation, "no reconciliation after release", 6, "spin", &[Ghost], ""),
    planted(
        LargeBlock,
        "large block + FLUSHALL",
        19,
        "tokens",
        &[Token],
        "the library reserves one token and lets the server's clock pay for more; planted is a \
         block without regard to the clock",
    ),
    in_script("short-counter-ttl", 19, "token burst", &[Token]),
    planted(ReleaseDatedByAnswer, "release dated by its answer", 6, "spin", &[Ghost], ""),
    planted(
        ReplyUnmatched,
        "late reply taken for the next one's",
        2,
        "delay",
        &[Overlap, Ghost],
        "",
    ),
    planted(NoDriftAllowance, "no drift allowance", 10, "drift", &[Overlap], ""),
    planted(GrantFromReceipt, "grant dated by its receipt", 10, "fixed lease", &[Overlap], ""),
    in_script("delete-without-a-look", 15, "delay", &[Touch]),
    in_script("renewal-makes-the-key-again", 14, "delay", &[Ghost, Touch]),
    in_script("repeated-grant-mints", 19, "loss", &[Repeat]),
    in_script("newcomer-barges", 4, "crash", &[Fifo]),
    in_script("skipped-waiter-loses-its-place", 11, "stopped server", &[Place]),
    in_script("silent-waiter-not-skipped", 8, "dead waiters", &[Starved, Served]),
    planted(
        NoHeartbeat,
        "waiter that waits for its message only",
        8,
        "loss",
        &[Starved, Served],
        "",
    ),
    in_script("skipped-waiter-stays-skipped", 11, "deaf", &[Starved, Served, Fifo]),
    planted(
        LeaveForgotten,
        "no leave after giving up",
        5,
        "give up",
        &[Ghost, Starved, Served],
        "",
    ),
    planted(CleanUpForEver, "clean-up that never ends", 6, "give up", &[Served], ""),
    in_script("queue-without-an-end", 8, "loss", &[Immortal]),
    planted(GoneIgnored, "gone taken for busy", 1, "FLUSHALL", &[Starved, Served], ""),
    in_script("grant-withdrawn-by-its-count", 12, "listener at a replica", &[Overlap]),
    in_script("newcomer-overtakes-the-skipped", 11, "deaf, newcomer", &[Fifo]),
    in_script("fence-of-the-giver", 19, "mixed ttls", &[Fence]),
    in_script("leave-without-leaving", 5, "give up", &[Ghost]),
    in_script("renewal-of-anothers-lock", 14, "delay", &[Touch]),
    in_script("counter-not-renewed", 19, "extension", &[Fence]),
    in_script("token-of-the-clock-alone", 19, "token burst", &[Token]),
];
