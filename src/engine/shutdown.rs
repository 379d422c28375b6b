//! How a client ends before its time: no waits, no renewals, everything given back.

use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::loss::LossCause;
use crate::base::sync::{self, Arc, Ordering};
use crate::engine::Engine;
use crate::engine::lease::LiveLease;
use crate::engine::release::{give_back, lost};
use crate::protocol::Target;

/// What is under way in threads of the user is looked at this often.
const LOOK: Duration = Duration::from_millis(1);

/// Calls off all waits, takes all locks from their holders, and gives them back, waiting for that at
/// most `within`.
pub(crate) fn shut_down(engine: &Engine, within: Duration) -> Result<()> {
    let deadline = engine.now().after(within);
    engine.shut_down.store(true, Ordering::SeqCst);
    let left = loop {
        // An exchange that is under way may still bring a lease.
        let mut left = end_all(engine);
        left.extend(engine.worker().wait_given_back(deadline));
        if left.is_empty() || engine.now() >= deadline {
            break left;
        }
        sync::sleep(LOOK);
    };
    engine.feeds().close();
    if left.is_empty() {
        return Ok(());
    }
    Err(Error::unreachable(format!(
        "{} locks could not be given back within {within:?} ({}); they end with their leases, and the \
         worker goes on trying",
        left.len(),
        shown(&left)
    )))
}

/// Ends what slots have and wait for. Answers those whose threads are talking to Redis.
fn end_all(engine: &Engine) -> Vec<Arc<Target>> {
    let mut talking = Vec::new();
    for slot in engine.table().all() {
        slot.cancel();
        if let Some(lease) = slot.lease() {
            shut_down_lease(&lease);
        }
        if let Some(lease) = slot.end_linger() {
            give_back(&lease);
        }
        if slot.is_talking() {
            talking.push(Arc::clone(slot.target()));
        }
    }
    talking
}

/// The names of a few locks.
fn shown(targets: &[Arc<Target>]) -> String {
    const FEW: usize = 5;
    let mut names: Vec<String> =
        targets.iter().map(|target| format!("\"{}\"", target.name())).collect();
    names.sort();
    if names.len() > FEW {
        names.truncate(FEW);
        names.push("…".to_owned());
    }
    names.join(", ")
}

/// Takes a lock from its holder: renewals stop first, then it is given back.
pub(crate) fn shut_down_lease(lease: &Arc<LiveLease>) {
    if let Some(loss) = lease.lose(LossCause::ShutDown, lease.slot().engine().now()) {
        give_back(lease);
        lost(lease, loss);
    }
}

#[cfg(all(test, not(leasehold_shuttle)))]
mod tests {
    use super::*;
    use crate::base::option::LockOptions;
    use crate::engine::slot::PassedOn;
    use crate::testing::Server;

    const SOON: Duration = Duration::from_secs(10);

    /// Its thread stands still between the end of validity and what becomes of the lease.
    #[test]
    fn a_release_that_has_begun_is_waited_for_and_does_not_end_in_a_linger() {
        let server = Server::new();
        let client = server.client();
        let engine = client.engine();
        let lock = client.mutex_with("x", LockOptions::new().linger(SOON)).unwrap();
        let owned = lock.lock().unwrap().into_owned().unwrap();
        while !engine.hub().is_live() {
            sync::sleep(LOOK);
        }
        let slot = engine.table().all().pop().unwrap();
        let lease = slot.lease().unwrap();
        assert!(lease.begin_release().is_some());
        let error = shut_down(engine, LOOK * 50).unwrap_err();
        assert!(error.to_string().contains("\"x\""), "{error}");
        assert_eq!(slot.pass_on(&lease), PassedOn::No);
        lease.end();
        give_back(&lease);
        slot.vacate(None);
        shut_down(engine, SOON).unwrap();
        assert!(!server.keys().contains(&b"x".to_vec()));
        drop(owned);
    }
}
