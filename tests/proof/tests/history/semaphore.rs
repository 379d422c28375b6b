//! A semaphore: permits with numbers, while its limit changes.

use leasehold::Permit;
use leasehold_support::history::now;

use crate::worker::Worker;

pub(crate) const LIMIT: u32 = 4;

pub(crate) fn turn(worker: &mut Worker<'_>, object: &str) {
    let options = worker.options();
    let semaphore =
        worker.client.locks().semaphore_with(object, LIMIT, options).expect("valid settings");
    if worker.rng.u8(..100) == 0 {
        let limit = worker.rng.u32(1..=LIMIT + 2);
        worker.call("resize", object, format_args!(" limit={limit}"));
        return match semaphore.resize(limit) {
            Ok(()) => worker.line(now(), "ok", "resize", object, format_args!("")),
            Err(error) => worker.failed("resize", object, &error),
        };
    }
    // More than the limit in force is refused.
    let (permits, wait) = (worker.rng.u32(1..=2), worker.wait());
    let take = || semaphore.try_acquire_many_for(permits, wait);
    let slots = |permit: &Permit| {
        let slots: Vec<String> = permit.slots().iter().map(u32::to_string).collect();
        format!(" slots={}", slots.join(","))
    };
    let rest = format_args!(" permits={permits} limit={LIMIT}");
    if let Some(permit) = worker.acquire("acquire", object, rest, take, slots) {
        // Each number protects something of its own.
        let slot = permit.slots()[worker.rng.usize(..permit.slots().len())];
        worker.change(&format!("{object}/{slot}"), permit.fencing_token().get());
        worker.stay(object, &permit);
        worker.release("release", object, permit);
    }
}
