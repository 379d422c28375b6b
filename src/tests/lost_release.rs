//! A lock is taken away, and the first request of its release has no reply: no kind says that it was released.
//!
//! Such a request is repeated. If the lock is not found then, the first one may have released it, or it was lost before
//! (rule 15).

use std::time::Duration;

use crate::base::error::Result;
use crate::base::option::Lease;
use crate::client::{DistributedLock as _, LockClient};
use crate::testing::Server;

const KEY: &str = "x";

/// Takes a lock, lets what comes between happen, and releases it.
type Holding = fn(&LockClient, &dyn Fn()) -> Result<()>;
type Forcing = fn(&LockClient);

const HOLDINGS: [(&str, Holding, Forcing); 12] = [
    (
        "mutex",
        |client, between| hold(client.mutex(KEY)?.lock()?, between, |it| it.release()),
        force,
    ),
    (
        "owned",
        |client, between| {
            let owned = client.mutex(KEY)?.lock()?.into_owned().expect("the only hold");
            hold(owned, between, |it| it.release())
        },
        force,
    ),
    ("with", |client, between| client.mutex(KEY)?.with(|_| between()), force),
    (
        "by key",
        |client, between| {
            assert!(client.try_lock(KEY, Duration::ZERO, Lease::default())?);
            hold((), between, |()| client.unlock(KEY))
        },
        force,
    ),
    (
        "by key, with",
        |client, between| client.with_lock(KEY, Duration::ZERO, Lease::default(), between),
        force,
    ),
    (
        "several",
        |client, between| {
            let locks = [client.mutex(KEY)?, client.mutex("y")?];
            hold(client.lock_all(&locks)?, between, |it| it.release())
        },
        force,
    ),
    (
        "reentrant",
        |client, between| hold(client.reentrant(KEY)?.lock()?, between, |it| it.release()),
        |client| assert!(client.reentrant(KEY).unwrap().force_release().unwrap()),
    ),
    (
        "leader",
        |client, between| hold(client.election(KEY)?.campaign()?, between, |it| it.resign()),
        |client| assert!(client.election(KEY).unwrap().force_release().unwrap()),
    ),
    (
        "permit",
        |client, between| hold(client.semaphore(KEY, 2)?.acquire()?, between, |it| it.release()),
        |client| {
            let gpus = client.semaphore(KEY, 2).unwrap();
            assert!(gpus.force_release(&gpus.holders().unwrap()[0]).unwrap());
        },
    ),
    (
        "reader",
        |client, between| hold(client.rw_lock(KEY)?.read()?, between, |it| it.release()),
        force_rw,
    ),
    (
        "upgradable reader",
        |client, between| hold(client.rw_lock(KEY)?.upgradable_read()?, between, |it| it.release()),
        force_rw,
    ),
    (
        "writer",
        |client, between| hold(client.rw_lock(KEY)?.write()?, between, |it| it.release()),
        force_rw,
    ),
];

fn hold<T>(guard: T, between: &dyn Fn(), release: impl FnOnce(T) -> Result<()>) -> Result<()> {
    between();
    release(guard)
}

fn force(client: &LockClient) {
    assert!(client.mutex(KEY).unwrap().force_release().unwrap());
}

fn force_rw(client: &LockClient) {
    let lock = client.rw_lock(KEY).unwrap();
    assert!(lock.force_release(&lock.holders().unwrap()[0]).unwrap());
}

/// What becomes of the lock before its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Kept,
    Deleted,
    Flushed,
    Forced,
    /// To a server without the last writes, where another takes it.
    FailedOver,
}

/// What becomes of the first request of the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    RequestLost,
    ReplyLost,
}

#[test]
fn no_kind_says_that_it_released_what_may_have_been_lost() {
    for (name, holding, force) in HOLDINGS {
        for fate in [Fate::Kept, Fate::Deleted, Fate::Flushed, Fate::Forced, Fate::FailedOver] {
            for fault in [Fault::None, Fault::RequestLost, Fault::ReplyLost] {
                let server = Server::standing_still();
                let (client, other) = (server.client(), server.client());
                let link = server.link(&client);
                // The loss is to be found by the release.
                link.lose_messages(10);
                let outcome = holding(&client, &|| {
                    match fate {
                        Fate::Kept => {}
                        Fate::Deleted => assert!(server.delete(KEY)),
                        Fate::Flushed => server.flush(),
                        Fate::Forced => force(&other),
                        Fate::FailedOver => {
                            server.flush();
                            server.steal(KEY, Duration::from_secs(60));
                        }
                    }
                    match fault {
                        Fault::None => {}
                        Fault::RequestLost => link.lose_requests(1),
                        Fault::ReplyLost => link.lose_answers(1),
                    }
                });
                let case = format!("{name}, {fate:?}, {fault:?}: {outcome:?}");
                assert_eq!(link.faults() > 0, fault != Fault::None, "{case}");
                match (fate, fault) {
                    (Fate::Kept, Fault::None | Fault::RequestLost) => {
                        assert!(outcome.is_ok(), "{case}")
                    }
                    (_, Fault::None) => assert!(outcome.is_err_and(|it| it.is_lost()), "{case}"),
                    _ => {
                        let error = outcome.expect_err(&case);
                        assert!(error.is_unknown_outcome() && !error.is_lost(), "{case}");
                        // What was found is the source.
                        assert!(error.may_be_lost(), "{case}");
                    }
                }
            }
        }
    }
}
