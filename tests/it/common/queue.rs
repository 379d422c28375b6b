//! Those who wait: threads of ours, and what Redis has of them.

use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use leasehold::LockClient;
use leasehold_support::Server;

use super::kind::Lock;
use super::{ask, exists, ms, until, within};

/// How many stand in a lock's queue.
pub(crate) fn waiting(server: &Server, name: &str) -> usize {
    ask(server, &["ZCARD", &format!("{{{name}}}:queue")])
}

/// Waits until nobody stands in the queue. Whoever gives up in time has left before its caller is
/// told; where the machine stalled, and this call came back late by `late`, the worker does it after
/// that. By itself a place ends after six seconds.
#[track_caller]
pub(crate) fn all_have_left(server: &Server, name: &str, late: Duration) {
    let span = if late < ms(20) { Duration::ZERO } else { ms(3_000) };
    within(span, "they have left", || waiting(server, name) == 0);
    assert!(!exists(server, &format!("{{{name}}}:queue")), "the queue has a key");
    assert!(!exists(server, &format!("{{{name}}}:beats")), "they still beat");
}

/// Makes sure that the client hears wake-ups, so that its next wait joins at once, and its leases may
/// be passed on and linger.
pub(crate) fn listens(server: &Server, client: &LockClient) {
    let heard = || ask::<Vec<String>>(server, &["PUBSUB", "CHANNELS", "leasehold:*"]);
    let before = heard();
    ask::<()>(server, &["SET", "listens", "foreign", "NX", "PX", "60000"]);
    let lock = client.mutex("listens").expect("a lock");
    until("it listens", || {
        let _ = lock.try_lock_for(ms(30));
        heard().iter().any(|channel| !before.contains(channel))
    });
    thread::sleep(ms(30));
    ask::<()>(server, &["DEL", "listens", "{listens}:queue", "{listens}:beats"]);
}

/// Waits for a lock on a thread of its own, and answers when it was served and with which token.
pub(crate) fn wait_for<'scope>(
    scope: &'scope Scope<'scope, '_>,
    lock: &(impl Lock + Clone + 'static),
) -> ScopedJoinHandle<'scope, (Instant, u64)> {
    let lock = lock.clone();
    scope.spawn(move || {
        let guard = lock.lock().expect("a wait without trouble");
        let served = (Instant::now(), guard.fencing_token().get());
        guard.check().expect("what was handed over is held in Redis too");
        assert!(guard.is_valid());
        served
    })
}
