//! The interface of the articles: lock and unlock by key, also behind `dyn`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{SOON, ask, exists, hasty, ms, names, open, pttl, server, until};
use leasehold::{DistributedLock, Lease, LockClient};

const NOW: Duration = Duration::ZERO;

fn lease() -> Lease {
    Lease::fixed(ms(20_000))
}

/// An application that does not know which implementation it has.
struct Application {
    locks: Box<dyn DistributedLock>,
}

#[test]
fn a_key_is_locked_and_unlocked() {
    let server = server();
    let (locks, others) = (open(&server), open(&server));
    assert!(!locks.is_held("x"));
    assert!(locks.try_lock("x", NOW, lease()).unwrap());
    assert!(locks.is_held("x") && !others.is_held("x"));
    assert!(pttl(&server, "x") > 19_000);
    assert!(!others.try_lock("x", NOW, lease()).unwrap());
    assert!(!others.try_lock("x", ms(900), lease()).unwrap());
    locks.unlock("x").unwrap();
    assert!(!locks.is_held("x") && !exists(&server, "x"));
    assert!(others.try_lock("x", NOW, lease()).unwrap());
    others.unlock("x").unwrap();
}

#[test]
fn trait_object_locks_and_unlocks() {
    let server = server();
    let application = Application { locks: Box::new(open(&server)) };
    let locks = &*application.locks;
    assert!(locks.try_lock("x", NOW, lease()).unwrap() && locks.is_held("x"));
    assert!(exists(&server, "x"));
    locks.unlock("x").unwrap();
    assert!(server.keys().iter().all(|key| key.ends_with(b"fence")));
    let borrowed: &dyn DistributedLock = &open(&server);
    assert!(borrowed.try_lock("x", NOW, lease()).unwrap());
    borrowed.unlock("x").unwrap();
}

#[test]
fn references_and_pointers_implement_the_trait() {
    fn once(locks: impl DistributedLock) {
        assert!(locks.try_lock("x", NOW, lease()).unwrap() && locks.is_held("x"));
        locks.unlock("x").unwrap();
        assert!(!locks.is_held("x"));
    }
    let server = server();
    let locks = open(&server);
    once(&locks);
    once(Box::new(locks.clone()));
    once(Arc::new(locks.clone()));
    once(Arc::new(locks.clone()) as Arc<dyn DistributedLock + Send + Sync>);
    once(&locks as &dyn DistributedLock);
}

#[test]
fn with_lock_works_on_dyn_send_sync_objects() {
    let server = server();
    let locks = open(&server);
    let held = || locks.is_held("x");
    let local: Box<dyn DistributedLock> = Box::new(locks.clone());
    assert!(local.with_lock("x", NOW, lease(), held).unwrap());
    let sent: Box<dyn DistributedLock + Send> = Box::new(locks.clone());
    assert!(sent.with_lock("x", NOW, lease(), held).unwrap());
    let shared: Arc<dyn DistributedLock + Send + Sync> = Arc::new(locks.clone());
    assert!(shared.with_lock("x", NOW, lease(), held).unwrap());
    assert!(!locks.is_held("x"));
}

#[test]
fn each_lock_needs_its_own_unlock() {
    let server = server();
    let locks = open(&server);
    for _ in 0..3 {
        assert!(locks.try_lock("x", NOW, lease()).unwrap());
    }
    for left in (0..3).rev() {
        assert!(exists(&server, "x"));
        locks.unlock("x").unwrap();
        assert_eq!(locks.is_held("x"), left > 0);
    }
    assert!(!exists(&server, "x"));
    assert!(locks.unlock("x").unwrap_err().is_not_held());
}

#[test]
fn unlock_without_a_hold_is_an_error_and_touches_nothing() {
    let server = server();
    let (locks, others) = (open(&server), open(&server));
    assert!(locks.unlock("x").unwrap_err().is_not_held());
    assert!(locks.try_lock("x", NOW, lease()).unwrap());
    let error = others.unlock("x").unwrap_err();
    assert!(error.is_not_held() && !error.is_lost() && error.to_string().contains("\"x\""));
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(!locks.is_held("x"));
            assert!(locks.unlock("x").unwrap_err().is_not_held());
        });
    });
    assert!(exists(&server, "x") && locks.is_held("x"));
    locks.unlock("x").unwrap();
}

#[test]
fn unlock_after_expiry_is_a_loss_and_frees_the_key() {
    let server = server();
    let (locks, others) = (open(&server), open(&server));
    assert!(locks.try_lock("x", NOW, Lease::fixed(ms(1_500))).unwrap());
    until("it is over", || !locks.is_held("x") && !exists(&server, "x"));
    assert!(others.try_lock("x", NOW, lease()).unwrap());
    assert!(locks.unlock("x").unwrap_err().is_lost());
    assert!(exists(&server, "x"));
    others.unlock("x").unwrap();
    assert!(locks.try_lock("x", NOW, lease()).unwrap());
    locks.unlock("x").unwrap();
}

#[test]
fn lock_by_key_is_the_mutex_of_that_name() {
    let server = server();
    let locks = open(&server);
    assert!(locks.try_lock("x", NOW, lease()).unwrap());
    let lock = locks.mutex("x").unwrap();
    assert_eq!(lock.hold_count(), 1);
    let guard = lock.lock().unwrap();
    locks.unlock("x").unwrap();
    assert!(exists(&server, "x"));
    guard.release().unwrap();
    assert!(!exists(&server, "x"));
}

#[test]
fn try_lock_waits_no_less_than_its_limit() {
    let server = server();
    let (locks, others) = (open(&server), open(&server));
    assert!(locks.try_lock("x", NOW, Lease::fixed(ms(3_000))).unwrap());
    let begin = Instant::now();
    assert!(!matches!(others.try_lock("x", ms(150), lease()), Ok(true)));
    assert!(begin.elapsed() >= ms(150));
    assert!(others.try_lock("x", SOON, lease()).unwrap());
    others.unlock("x").unwrap();
}

#[test]
fn a_held_key_is_renewed_if_its_lease_says_so() {
    let server = server();
    let locks = open(&server);
    assert!(locks.try_lock("x", NOW, Lease::renewed(ms(6_000))).unwrap());
    for _ in 0..2 {
        let mut left = pttl(&server, "x");
        until("it is renewed", || {
            let before = std::mem::replace(&mut left, pttl(&server, "x"));
            left > before
        });
        assert!(locks.is_held("x"));
    }
    locks.unlock("x").unwrap();
}

#[test]
fn with_lock_releases_after_a_panic() {
    let server = server();
    let locks = open(&server);
    let result = catch_unwind(AssertUnwindSafe(|| {
        locks.with_lock("x", NOW, lease(), || panic!("on purpose")).unwrap();
    }));
    assert!(result.is_err());
    assert!(!exists(&server, "x") && !locks.is_held("x"));
}

#[test]
fn with_lock_times_out_without_running_the_work() {
    let server = server();
    let (locks, others) = (open(&server), open(&server));
    assert!(locks.try_lock("x", NOW, lease()).unwrap());
    let error = others.with_lock("x", ms(900), lease(), || panic!("not held")).unwrap_err();
    assert!(error.is_timeout() && error.to_string().contains("\"x\""), "{error}");
    locks.unlock("x").unwrap();
}

#[test]
fn with_lock_timeout_shows_the_name_escaped() {
    let server = server();
    let build = || LockClient::builder(server.url()).name_prefix("shop:").build().unwrap();
    let (locks, others) = (build(), build());
    let long = format!("a\r\n{}", "b".repeat(1_000));
    assert!(locks.try_lock(&long, NOW, lease()).unwrap());
    let behind: &dyn DistributedLock = &others;
    for (error, name) in [
        (others.with_lock(&long, NOW, lease(), || ()).unwrap_err(), "shop:a\\r\\nbbb"),
        (behind.with_lock(&long, NOW, lease(), || ()).unwrap_err(), "a\\r\\nbbb"),
    ] {
        let text = error.to_string();
        assert!(error.is_timeout() && text.starts_with(&format!("lock \"{name}")), "{text}");
        assert!(
            text.ends_with(
                " bytes)\": timed out after 0s, as another holder has it; \
                 wait longer or try again later"
            ) && text.len() < 260,
            "{text}"
        );
    }
    locks.unlock(&long).unwrap();
}

#[test]
fn with_lock_reports_a_loss_during_the_work() {
    let server = server();
    let locks = open(&server);
    let error = locks
        .with_lock("x", NOW, lease(), || {
            ask::<()>(&server, &["SET", "x", "other"]);
        })
        .unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(ask::<String>(&server, &["GET", "x"]), "other");
}

#[test]
fn ending_thread_releases_its_holds() {
    let server = server();
    let locks = open(&server);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(locks.try_lock("x", NOW, lease()).unwrap());
            assert!(locks.try_lock("y", NOW, lease()).unwrap());
            assert!(locks.try_lock("y", NOW, lease()).unwrap());
        });
    });
    until("both are free", || !exists(&server, "x") && !exists(&server, "y"));
}

/// `false` is for a holder; trouble is an error.
#[test]
fn outage_is_an_error_and_not_false() {
    let server = server();
    let locks = hasty(&server.url());
    ask::<()>(&server, &["LPUSH", "list", "a"]);
    assert!(locks.try_lock("list", NOW, lease()).unwrap_err().is_wrong_type());
    server.kill();
    for wait in [NOW, ms(50)] {
        assert!(locks.try_lock("x", wait, lease()).is_err());
    }
    assert!(!locks.is_held("x"));
}

#[test]
fn bad_input_is_rejected_before_any_io() {
    let locks = LockClient::builder("unix:///does/not/exist").build().unwrap();
    let error = locks.try_lock("", NOW, lease()).unwrap_err();
    names(&error, ["name", "empty", "at least one byte"]);
    let error = locks.try_lock("x", NOW, Lease::fixed(NOW)).unwrap_err();
    names(&error, ["lease", "0s", "1ms to 30 days"]);
    assert!(locks.unlock("").unwrap_err().is_config());
    assert!(!locks.is_held(""));
}
