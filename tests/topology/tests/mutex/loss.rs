//! A lock that is lost: how its holder is told.

use std::sync::mpsc;

use leasehold::LossCause;
use leasehold_topology_test::scene::{SOON, Scene, renewed, until};
use leasehold_topology_test::{Builder, Client, Topology};

/// By its guard, by the guard's callback, and by the client's.
pub(crate) fn deleted_lock_is_reported_in_every_way<T: Topology>(scene: &Scene<'_, T>) {
    let name = scene.name("x");
    let (sender, receiver) = mpsc::channel();
    let to_client = sender.clone();
    let builder = scene.builder().on_loss(move |loss| to_client.send(loss.clone()).unwrap());
    let client = builder.build().unwrap();
    let guard = client.mutex_with(&name, renewed(2_000)).unwrap().lock().unwrap();
    guard.on_loss(move |loss| sender.send(loss.clone()).unwrap());
    assert!(guard.loss().is_none());
    scene.delete(&name);
    // The next renewal sees it.
    let loss = receiver.recv_timeout(SOON).expect("a loss");
    assert!(!guard.is_valid(), "the guard is invalid before anybody is called");
    assert_eq!(loss.cause(), LossCause::Deleted);
    assert_eq!((loss.name(), loss.fencing_token()), (&name[..], guard.fencing_token()));
    assert_eq!(receiver.recv_timeout(SOON).expect("the client's too"), loss);
    assert_eq!(guard.loss(), Some(loss));
    assert!(guard.release().unwrap_err().is_lost());
}

pub(crate) fn stolen_lock_is_reported_as_taken<T: Topology>(scene: &Scene<'_, T>) {
    let name = scene.name("x");
    let guard = scene.lock_with(renewed(2_000)).lock().unwrap();
    scene.ask::<()>(&name, &[b"SET", &name, b"somebody else", b"PX", b"60000"]);
    until("it is told", || guard.loss().is_some());
    assert_eq!(guard.loss().unwrap().cause(), LossCause::Taken);
    assert!(guard.release().unwrap_err().is_lost());
    // Whoever has it was not touched.
    let values = scene.ask::<Option<String>>(&name, &[b"GET", &name]);
    assert!(values.iter().all(|value| value.as_deref() == Some("somebody else")), "{values:?}");
    let lock = scene.lock();
    assert!(lock.try_lock().unwrap().is_none());
    let holder = lock.holder().unwrap().expect("a holder");
    assert_eq!((holder.owner(), holder.pid()), (&b"somebody else"[..], None));
    scene.delete(&name);
}

pub(crate) fn check_asks_the_servers<T: Topology>(scene: &Scene<'_, T>) {
    let guard = scene.lock().lock().unwrap();
    guard.check().unwrap();
    scene.delete(&scene.name("x"));
    // Nobody has told it yet: its next renewal is ten seconds away.
    assert!(guard.is_valid());
    assert!(guard.check().unwrap_err().is_lost());
    assert!(!guard.is_valid());
    assert_eq!(guard.loss().unwrap().cause(), LossCause::Deleted);
}
