//! Bugs planted into the protocol one at a time, each of which the explorer must find.
//!
//! The first twelve are those of the queue protocol's own list. Where the library departs from the
//! letter of a rule, the mutation is planted where the library keeps its spirit; `note` says so.

use Invariant::{
    Fence, Fifo, Ghost, Immortal, Overlap, Place, Repeat, Served, Starved, Token, Touch,
};
use Mutation::*;

use crate::invariant::Invariant;

/// What is wrong with the protocol under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    FullTtlOnRepeat,
    ReleasersTtl,
    AttemptReused,
    ValidityFromReceipt,
    RenewalShortens,
    BeatJoins,
    LeaveOnce,
    NoDeadline,
    ResendUnnoted,
    NoReconciliation,
    LargeBlock,
    ShortCounterTtl,
    ReplyUnmatched,
    NoDriftAllowance,
    GrantFromReceipt,
    UncheckedRelease,
    RenewalRevives,
    RepeatMints,
    NewcomerBarges,
    DeadThrownOut,
    DeadServed,
    NoHeartbeat,
    SkippedNotHeard,
    LeaveForgotten,
    ReleaseDatedByAnswer,
    CleanUpForEver,
    QueueWithoutEnd,
    GoneIgnored,
    GiversFence,
    GrantWithdrawn,
    NewcomerOvertakesSkipped,
}

/// One line of the table of mutations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planted {
    pub(crate) mutation: Mutation,
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
    Planted { mutation, name, rule, scenario, breaks, note }
}

/// All of them.
pub(crate) const TABLE: &[Planted] = &[
    planted(FullTtlOnRepeat, "full ttl on a repeated grant", 3, "fixed lease", &[Overlap], ""),
    planted(ReleasersTtl, "releaser's ttl for the next owner", 7, "mixed ttls", &[Overlap], ""),
    planted(AttemptReused, "attempt reused after leave", 5, "broken connection", &[Overlap], ""),
    planted(ValidityFromReceipt, "validity from receipt", 3, "fixed lease", &[Overlap], ""),
    planted(RenewalShortens, "renewal that shortens", 14, "extension", &[Overlap], ""),
    planted(
        BeatJoins,
        "beat that may join",
        1,
        "broken connection",
        &[Ghost],
        "planted with what rule 1 is for: unanswered beats are then not waited for in the clean-up \
         (the library waits for every unanswered request, which alone makes such a beat harmless)",
    ),
    planted(LeaveOnce, "leave sent once only", 6, "broken connection", &[Ghost], ""),
    planted(NoDeadline, "no request deadline", 2, "delay", &[Ghost], ""),
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
    planted(ShortCounterTtl, "short counter ttl", 19, "token burst", &[Token], ""),
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
    planted(UncheckedRelease, "release that does not look whose it is", 15, "delay", &[Touch], ""),
    planted(RenewalRevives, "renewal that brings back", 14, "delay", &[Ghost, Touch], ""),
    planted(RepeatMints, "new token on a repeated grant", 19, "loss", &[Repeat], ""),
    planted(NewcomerBarges, "newcomer passes the queue", 4, "crash", &[Fifo], ""),
    planted(DeadThrownOut, "the dead lose their place", 11, "stopped server", &[Place], ""),
    planted(
        DeadServed,
        "the dead are served one after another",
        8,
        "dead waiters",
        &[Starved, Served],
        "",
    ),
    planted(
        NoHeartbeat,
        "waiter that waits for its message only",
        8,
        "loss",
        &[Starved, Served],
        "",
    ),
    planted(
        SkippedNotHeard,
        "who was skipped and beats stays skipped",
        11,
        "deaf",
        &[Starved, Served, Fifo],
        "",
    ),
    planted(
        LeaveForgotten,
        "no leave after giving up",
        5,
        "give up",
        &[Ghost, Starved, Served],
        "",
    ),
    planted(CleanUpForEver, "clean-up that never ends", 6, "give up", &[Served], ""),
    planted(QueueWithoutEnd, "queue without an end", 8, "loss", &[Immortal], ""),
    planted(GoneIgnored, "gone taken for busy", 1, "FLUSHALL", &[Starved, Served], ""),
    planted(
        GrantWithdrawn,
        "grant withdrawn by its count",
        12,
        "listener at a replica",
        &[Overlap],
        "",
    ),
    planted(
        NewcomerOvertakesSkipped,
        "newcomer overtakes the skipped",
        11,
        "deaf, newcomer",
        &[Fifo],
        "",
    ),
    planted(GiversFence, "giver's ttl for the next one's fence", 19, "mixed ttls", &[Fence], ""),
];
