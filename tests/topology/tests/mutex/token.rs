//! Fencing tokens.

use leasehold_topology_test::scene::{SOON, Scene, fixed, until};
use leasehold_topology_test::{Client, Topology};

/// However the hold before was ended.
pub(crate) fn tokens_grow_from_hold_to_hold<T: Topology>(scene: &Scene<'_, T>) {
    let clients = [scene.client(), scene.client(), scene.client()];
    let mut last = 0;
    for round in 0..12 {
        let client = &clients[round % clients.len()];
        let lock = client.mutex_with(&scene.name("x"), fixed(20_000)).unwrap();
        let guard = lock.try_lock_for(SOON).unwrap().expect("free");
        let token = guard.fencing_token().get();
        assert!(token > last, "round {round}: {token} after {last}");
        last = token;
        match round % 4 {
            0 => guard.release().unwrap(),
            1 => drop(guard),
            2 => assert!(clients[0].mutex(&scene.name("x")).unwrap().force_release().unwrap()),
            _ => scene.delete(&scene.name("x")),
        }
    }
}

pub(crate) fn token_exceeds_that_of_an_expired_lease<T: Topology>(scene: &Scene<'_, T>) {
    let first = scene.lock_with(fixed(1_500)).lock().unwrap();
    let lock = scene.lock();
    let mut next = None;
    until("it ran out", || {
        next = lock.try_lock().unwrap();
        next.is_some()
    });
    assert!(next.unwrap().fencing_token() > first.fencing_token());
}
