//! The swaps that change nothing that matters.

use std::path::Path;

/// File, a piece that stands once in it, the piece with the swap, and why no test can tell them apart.
pub(super) const EQUIVALENT: &[(&str, &str, &str, &str)] = &[
    (
        "src/engine/slot/background_release.rs",
        "if end > self.context.now() ||",
        "if end >= self.context.now() ||",
        "what ends now has ended when its release comes",
    ),
    (
        "src/engine/slot/background_release.rs",
        "if settled <= now {",
        "if settled < now {",
        "a removal is sent that finds nothing, as the last request is over",
    ),
    (
        "src/engine/slot/state/share.rs",
        "if hold.limit() != Moment::FAR {",
        "if hold.limit() == Moment::FAR {",
        "the worker comes once more at the end of that hold, and finds when the next one ends",
    ),
    (
        "src/engine/worker/runner.rs",
        "if now < self.announces_from {",
        "if now <= self.announces_from {",
        "nobody needs a rest of just that length",
    ),
    (
        "src/engine/slot/mod.rs",
        "if deadline <= now {",
        "if deadline < now {",
        "the next look is later, as the clock goes on",
    ),
    (
        "src/engine/slot/mod.rs",
        "if long_wait.due <= now {",
        "if long_wait.due < now {",
        "the next look is later, as the clock goes on",
    ),
    (
        "src/engine/slot/pause.rs",
        "state.is_quiet() && self.context.now() < until",
        "state.is_quiet() && self.context.now() <= until",
        "the next look is later, as the clock goes on",
    ),
    (
        "src/engine/slot/state/message.rs",
        "for_all || heard.number == number)",
        "for_all || heard.number != number)",
        "attempts travel along only where holds overlap, and there a message is for all",
    ),
    (
        "src/engine/slot/state/watch.rs",
        "self.announce_at < self.slot_due",
        "self.announce_at <= self.slot_due",
        "the worker is told the moment that it knows",
    ),
    (
        "src/engine/slot/upgrade.rs",
        "self.context.now() < until",
        "self.context.now() <= until",
        "the next look is later, as the clock goes on",
    ),
    (
        "src/engine/slot/watch.rs",
        "if due < lease.due() {",
        "if due <= lease.due() {",
        "the worker is told the moment that it knows",
    ),
    (
        "src/engine/worker/runner.rs",
        "if next <= now {",
        "if next < now {",
        "a wait of no length comes before the same turn",
    ),
    (
        "src/engine/worker/runner.rs",
        "if now < task.gone_by =>",
        "if now <= task.gone_by =>",
        "the removal of a value that is just gone removes nothing",
    ),
    (
        "src/engine/worker/runner.rs",
        "if looks > MAX_ANNOUNCED {",
        "if looks >= MAX_ANNOUNCED {",
        "where all have room their order does not matter",
    ),
    (
        "src/engine/worker/runner.rs",
        "timeout(end) <= most * MAX_TIMEOUT_RATIO",
        "timeout(end) < most * MAX_TIMEOUT_RATIO",
        "whether a renewal with just so much time travels along or next is all one",
    ),
    (
        "src/engine/worker/task_queue.rs",
        "deadline <= now {",
        "deadline < now {",
        "the next look is later, as the clock goes on",
    ),
    (
        "src/kind/mutex/hand_over.lua",
        "if window - keep > 0 then",
        "if window - keep >= 0 then",
        "the greater of two equal times is either",
    ),
    (
        "src/kind/mutex/wait.lua",
        "left < tonumber(ARGV[2])",
        "left <= tonumber(ARGV[2])",
        "it is lengthened to what it has",
    ),
    (
        "src/kind/mutex/wait.lua",
        "if left >= 0 and owner then",
        "if left > 0 and owner then",
        "of nothing no tail can be taken away",
    ),
    ("src/kind/mutex/wait.lua", "if place < 0 then", "if place <= 0 then", "a place is not 0"),
    (
        "src/kind/reentrant/acquire.lua",
        "if left < ttl then",
        "if left <= ttl then",
        "it is lengthened to what it has",
    ),
    (
        "src/kind/weighted/acquire.lua",
        "limit_ttl > 0",
        "limit_ttl >= 0",
        "the greater of 0 and the time to live is the latter",
    ),
    (
        "src/kind/weighted/change.lua",
        "  if number > last then\n    leave(me)",
        "  if number >= last then\n    leave(me)",
        "a change that is made again notes what is noted",
    ),
    (
        "src/kind/weighted/change.lua",
        "  if number > last then\n    note(ALL",
        "  if number >= last then\n    note(ALL",
        "a change that is made again notes what is noted",
    ),
    (
        "src/kind/weighted/change.lua",
        "  if number > last then\n    note(before",
        "  if number >= last then\n    note(before",
        "a change that is made again notes what is noted",
    ),
    (
        "src/kind/weighted/change.lua",
        "used - before + ALL > limit",
        "used - before + ALL >= limit",
        "where it fits there is nothing to count again: who holds alone has the whole sum",
    ),
    (
        "src/kind/weighted/give.lua",
        "if i > free then",
        "if i >= free then",
        "the search begins at the slot that it found, which has enough free ones below it, and finds it again",
    ),
    (
        "src/kind/weighted/serve.lua",
        "if limit_ttl > 0 then",
        "if limit_ttl >= 0 then",
        "PEXPIRE with GT and no time to live changes nothing",
    ),
    (
        "src/kind/weighted/serve.lua",
        "if sum >= used then",
        "if sum > used then",
        "a sum that is right is written again, and all members belong to holders",
    ),
    (
        "src/kind/weighted/serve.lua",
        "tonumber(till) > now",
        "tonumber(till) >= now",
        "a holder whose lease ends now was taken out before",
    ),
    (
        "src/kind/weighted/serve.lua",
        "tonumber(place) < 1",
        "tonumber(place) <= 1",
        "a place is 0.5 or a time",
    ),
    (
        "src/kind/weighted/serve.lua",
        "tonumber(place) >= 1",
        "tonumber(place) > 1",
        "a place is 0.5 or a time",
    ),
    (
        "src/kind/weighted/transaction.lua",
        "at <= #ARGV",
        "at < #ARGV",
        "words stand after the last number of words",
    ),
    (
        "src/kind/weighted/wait.lua",
        "if used + weight > limit then",
        "if used + weight >= limit then",
        "what fits is granted, whether the sum is counted again or not",
    ),
    ("src/kind/weighted/wait.lua", "place < 0", "place <= 0", "a place is not 0"),
];

/// Why the swap that makes this of a file's text is equivalent, if it is listed.
pub(super) fn reason(path: &Path, swapped: &str, text: &str) -> Option<&'static str> {
    let mut rows = EQUIVALENT.iter().filter(|(listed, ..)| path == Path::new(listed));
    rows.find(|(_, from, to, _)| text.replace(from, to) == swapped).map(|(.., why)| *why)
}
