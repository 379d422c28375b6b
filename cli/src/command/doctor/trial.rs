//! A lock, taken and released as a program would.

use std::time::Instant;

use leasehold::LockClient;

use super::check::Check;
use super::finding::Finding;
use super::probe::Probe;
use super::rule;

pub(super) fn check(client: &LockClient, probe: &Probe<'_>) -> Finding {
    const CHECK: Check = Check::Lock;
    let start = Instant::now();
    let taken = client.mutex(&probe.name).and_then(|lock| {
        let Some(guard) = lock.try_lock()? else { return Ok(None) };
        let token = guard.fencing_token();
        guard.release()?;
        Ok(Some(token))
    });
    match taken {
        Ok(Some(token)) => Finding::fine(
            CHECK,
            format!("taken with token {token} and released in {:.1?}", start.elapsed()),
        ),
        Ok(None) => {
            Finding::fine(CHECK, "somebody else has the lock of this name, so none was taken")
        }
        Err(error) => {
            let text = error.to_string();
            let fault = Finding::fault(CHECK, &text).so("no mutex can be had here");
            match rule::missing(&text) {
                Some(rule) => fault.mend(format!("ACL SETUSER {} {rule}", probe.user())),
                None => fault,
            }
        }
    }
}
