//! Bugs planted into the protocol one at a time, each of which the explorer must find.
//!
//! A bug of a client is a [`Mutation`], which the client looks for. A bug of a script replaces a
//! piece of its text. Where the library departs from the letter of a rule, the bug is planted where
//! the library keeps its spirit; `note` says so.

use Invariant::{
    Back, Fence, Fifo, Ghost, Immortal, Nonsense, Overlap, Place, Repeat, Served, Starved, Token,
    Touch, Word,
};
use Mutation::*;

use crate::invariant::Invariant;

/// The planted bug of the clients.
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
    WindowWithoutTail,
    KeyWithoutTail,
    TailTakenForLease,
    RenewedFromReceipt,
    UnsettledComesBack,
    ComesBackAfterLoss,
}

/// One line of the table of planted bugs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planted {
    /// The planted bug of the clients.
    pub(crate) mutation: Option<Mutation>,
    /// The name of the patches that put a bug into the scripts.
    pub(crate) script_bug: Option<&'static str>,
    pub(crate) name: &'static str,
    pub(crate) rule: u8,
    /// The scenario that finds it.
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

/// Bugs of the scripts besides those in `tests/proof/tests/mutation/script.txt`: name, script, the
/// piece to replace, and its replacement.
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
    // Spans that are less than a tick too short.
    (
        "claim-999-ms-short",
        "kind/mutex/hand_over.lua",
        "redis.call('SET', KEYS[1], attempt, 'PX', window)",
        "redis.call('SET', KEYS[1], attempt, 'PX', window - 999)",
    ),
    (
        "lease-999-ms-short",
        "kind/mutex/acquire.lua",
        "'NX', 'GET', 'PX', ARGV[2])",
        "'NX', 'GET', 'PX', ARGV[2] - 999)",
    ),
    (
        "repeated-lease-999-ms-short",
        "kind/mutex/wait.lua",
        "    redis.call('PEXPIRE', KEYS[1], ARGV[2])",
        "    redis.call('PEXPIRE', KEYS[1], ARGV[2] - 999)",
    ),
    (
        "queue-999-ms-short",
        "kind/mutex/wait.lua",
        "    redis.call('PEXPIRE', KEYS[3], ARGV[7])",
        "    redis.call('PEXPIRE', KEYS[3], ARGV[7] - 999)",
    ),
    (
        "fence-999-ms-short-in-acquire",
        "kind/mutex/acquire.lua",
        "'SET', KEYS[2], digits, 'GET', 'PX', ARGV[4])",
        "'SET', KEYS[2], digits, 'GET', 'PX', ARGV[4] - 999)",
    ),
    (
        "fence-999-ms-short-in-renew",
        "kind/renew.lua",
        "redis.call('PEXPIRE', KEYS[2], ARGV[4], 'GT')",
        "redis.call('PEXPIRE', KEYS[2], ARGV[4] - 999, 'GT')",
    ),
    (
        "fence-999-ms-short-in-mint",
        "kind/token.lua",
        "'SET', KEYS[2], now, 'GET', 'PX', keep)",
        "'SET', KEYS[2], now, 'GET', 'PX', keep - 999)",
    ),
    // Numbers of today's size, with six digits behind the second or fewer.
    (
        "time-of-a-hand-over-swapped",
        "kind/token.lua",
        "time[1] .. time[2] or",
        "time[2] .. time[1] or",
    ),
    (
        "time-of-a-hand-over-unpadded",
        "kind/token.lua",
        "string.format('%.0f%06.0f'",
        "string.format('%.0f%.0f'",
    ),
    (
        "time-of-a-request-swapped",
        "kind/mutex/acquire.lua",
        "time[1] .. time[2] or",
        "time[2] .. time[1] or",
    ),
    (
        "time-of-a-request-unpadded",
        "kind/mutex/acquire.lua",
        "string.format('%.0f%06.0f'",
        "string.format('%.0f%.0f'",
    ),
    (
        "digits-with-an-exponent",
        "kind/token.lua",
        "  return string.format('%.0f', number)",
        "  return '' .. number",
    ),
    // Rule 12, for a user without permission for `PUBSUB`.
    ("unasked-listener-taken-for-deaf", "kind/line.lua", "channel)[2] ~= 0", "channel)[2] == 1"),
    ("refusal-ends-the-script", "kind/line.lua", "redis.pcall('PUBSUB'", "redis.call('PUBSUB'"),
    // Rule 47.
    (
        "tail-taken-past-the-line",
        "kind/mutex/wait.lua",
        "    owner = hand_over(digits, keep, me)\n    if not owner",
        "    owner = wrote and hand_over(digits, keep, me) or me\n    if not owner",
    ),
    // The grant is not published.
    (
        "silent-grant-to-the-last",
        "kind/mutex/hand_over.lua",
        "      redis.pcall('PUBLISH', channel, grant) -- last, and may be forbidden\n",
        "",
    ),
    (
        "silent-grant-to-the-last",
        "kind/mutex/hand_over.lua",
        "redis.pcall('ZRANGE', KEYS[3], '(0', '+inf', 'BYSCORE', 'LIMIT', '0', '1')[1]",
        "redis.pcall('ZRANGE', KEYS[3], '-1', '-1')[1]",
    ),
    (
        "silent-grant-of-an-old-token",
        "kind/mutex/hand_over.lua",
        "      redis.pcall('PUBLISH', channel, grant) -- last, and may be forbidden\n",
        "",
    ),
    (
        "silent-grant-of-an-old-token",
        "kind/mutex/hand_over.lua",
        "      local token = mint(now, keep)\n",
        "      local token = redis.call('GET', KEYS[2])\n      redis.call('PEXPIRE', KEYS[2], keep)\n",
    ),
];

/// All of them.
pub(crate) const TABLE: &[Planted] = &[
    in_script("full-ttl-on-a-repeated-grant", 3, "fixed lease", &[Overlap]),
    in_script("releasers-ttl-for-the-next-owner", 7, "mixed ttls", &[Overlap]),
    planted(
        AttemptReused,
        "attempt reused after leave",
        5,
        "broken connection",
        &[Overlap, Back],
        "",
    ),
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
    in_script("claim-999-ms-short", 7, "mixed ttls", &[Nonsense]),
    in_script("lease-999-ms-short", 3, "loss", &[Nonsense]),
    in_script("repeated-lease-999-ms-short", 3, "loss", &[Nonsense]),
    in_script("queue-999-ms-short", 8, "loss", &[Nonsense]),
    in_script("fence-999-ms-short-in-acquire", 19, "loss", &[Fence]),
    in_script("fence-999-ms-short-in-renew", 19, "loss", &[Fence]),
    in_script("fence-999-ms-short-in-mint", 19, "mixed ttls", &[Fence]),
    in_script("time-of-a-hand-over-swapped", 20, "loss", &[Nonsense]),
    in_script("time-of-a-hand-over-unpadded", 20, "three in the queue", &[Nonsense]),
    in_script("time-of-a-request-swapped", 20, "loss", &[Nonsense]),
    in_script("time-of-a-request-unpadded", 20, "three in the queue", &[Nonsense]),
    in_script("token-with-an-exponent", 20, "token burst", &[Nonsense]),
    in_script("digits-with-an-exponent", 20, "loss", &[Nonsense]),
    in_script(
        "unasked-listener-taken-for-deaf",
        12,
        "at a replica, refused",
        &[Fifo, Starved, Served],
    ),
    in_script("refusal-ends-the-script", 12, "at a replica, refused", &[Nonsense]),
    in_script("silent-grant-to-the-last", 4, "three in the queue", &[Fifo]),
    in_script("silent-grant-of-an-old-token", 19, "loss", &[Token]),
    planted(KeyWithoutTail, "key without its tail", 46, "tail, loss", &[Overlap, Touch], ""),
    in_script("tail-taken-a-tick-early", 47, "tail, loss", &[Touch]),
    in_script("tail-taken-never", 47, "tail, crash", &[Starved, Served]),
    in_script("tail-taken-past-the-line", 47, "tail, crash", &[Fifo]),
    planted(
        WindowWithoutTail,
        "window without its tail",
        49,
        "tail, crash",
        &[Overlap, Touch],
        "a client hands over, and writes the key of the next owner for what its value says",
    ),
    planted(TailTakenForLease, "tail taken for the lease", 50, "tail, loss", &[Overlap, Back], ""),
    planted(
        RenewedFromReceipt,
        "valid again from the receipt",
        50,
        "tail, delay",
        &[Overlap, Back],
        "",
    ),
    planted(
        UnsettledComesBack,
        "unsettled attempt comes back",
        50,
        "tail, unsettled",
        &[Back],
        "a join that was on its way has made it the owner once more, after another's hold",
    ),
    planted(
        ComesBackAfterLoss,
        "comes back though another has it",
        51,
        "tail, pause",
        &[Overlap, Back],
        "",
    ),
    in_script("term-begins-without-its-word", 59, "election, cut", &[Word]),
    in_script("word-not-renewed", 59, "election, cut", &[Word]),
    in_script("word-shorter-than-a-repeated-grant", 59, "election, in a cluster", &[Word]),
];
