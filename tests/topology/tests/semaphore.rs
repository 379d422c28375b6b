//! The semaphore over all topologies that have it: all but a quorum.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use leasehold::{LockOptions, LossCause, Permit, Semaphore};
use leasehold_topology_test::scene::{SOON, Scene, ms, renewed, until};
use leasehold_topology_test::{Single, suite};

suite! {
    permits_are_as_many_as_the_limit_and_have_slots
    release_lets_a_waiter_in
    request_for_all_is_not_overtaken
    no_slot_has_two_holders_and_its_tokens_grow
    lease_is_renewed_and_its_loss_reported
    resize_is_in_force_for_all_clients
    limit_of_zero_lasts_for_an_hour_after_the_last_request
    ended_permit_is_granted_again
    commands_apply_only_while_it_is_held
    close_gives_permits_back
    key_of_another_kind_is_an_error_and_not_touched
}

const LIMIT: u32 = 3;

/// The test's semaphore, with a client of its own.
fn gpus_with<T: Single>(scene: &Scene<'_, T>, options: LockOptions) -> Semaphore {
    scene.client().semaphore_with(scene.name("x"), LIMIT, options).expect("a semaphore")
}

fn gpus<T: Single>(scene: &Scene<'_, T>) -> Semaphore {
    gpus_with(scene, LockOptions::new())
}

fn in_line(gpus: &Semaphore, count: usize) {
    until("they stand in the line", || gpus.inspect().unwrap().waiting() == Some(count));
}

fn permits_are_as_many_as_the_limit_and_have_slots<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (gpus(scene), gpus(scene));
    let mut held: Vec<Permit> =
        [&here, &there, &here].map(|gpus| gpus.acquire().unwrap()).into_iter().collect();
    assert_eq!(held.iter().map(Permit::slot).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(here.try_acquire().unwrap().is_none() && there.last_blocker().is_none());
    assert_eq!((there.available().unwrap(), there.holders().unwrap().len()), (0, 3));
    held.remove(1).release().unwrap();
    assert_eq!(there.acquire().unwrap().slots(), [1]);
    drop(held);
    assert_eq!(here.acquire_many(LIMIT).unwrap().slots(), [0, 1, 2]);
}

/// Long before the lease of 30 s is over.
fn release_lets_a_waiter_in<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (gpus(scene), gpus(scene));
    let held = here.acquire_many(LIMIT).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let permit = there.acquire().unwrap();
            (Instant::now(), permit.fencing_token())
        });
        in_line(&here, 1);
        let (token, released) = (held.fencing_token(), Instant::now());
        held.release().unwrap();
        let (got, later) = waiter.join().unwrap();
        assert!(later > token && got - released < SOON, "{:?}", got - released);
    });
}

fn request_for_all_is_not_overtaken<T: Single>(scene: &Scene<'_, T>) {
    let [here, large, small] = [(); 3].map(|()| gpus(scene));
    let mut held: Vec<Permit> = (0..LIMIT).map(|_| here.acquire().unwrap()).collect();
    thread::scope(|scope| {
        let all = scope.spawn(|| large.acquire_many(LIMIT).unwrap());
        in_line(&here, 1);
        let one = scope.spawn(|| small.acquire().unwrap().fencing_token());
        in_line(&here, 2);
        held.pop().unwrap().release().unwrap();
        assert!(small.try_acquire().unwrap().is_none(), "one is free, and kept for the first");
        held.drain(..).for_each(|permit| permit.release().unwrap());
        let all = all.join().unwrap();
        let token = all.fencing_token();
        all.release().unwrap();
        assert!(one.join().unwrap() > token);
    });
}

fn no_slot_has_two_holders_and_its_tokens_grow<T: Single>(scene: &Scene<'_, T>) {
    let (busy, last) = (Mutex::new(BTreeSet::new()), Mutex::new([0; LIMIT as usize]));
    let clients = [(); 4].map(|()| gpus(scene));
    thread::scope(|scope| {
        for gpus in &clients {
            for _ in 0..2 {
                scope.spawn(|| {
                    for round in 0..15 {
                        let permit = gpus.acquire_many(1 + round % 2).unwrap();
                        let token = permit.fencing_token().get();
                        for slot in permit.slots() {
                            assert!(busy.lock().unwrap().insert(*slot), "two holders of {slot}");
                            let before = &mut last.lock().unwrap()[*slot as usize];
                            assert!(std::mem::replace(before, token) < token, "of slot {slot}");
                        }
                        thread::yield_now();
                        for slot in permit.slots() {
                            busy.lock().unwrap().remove(slot);
                        }
                        permit.release().unwrap();
                    }
                });
            }
        }
    });
    assert_eq!(clients[0].available().unwrap(), LIMIT);
}

fn lease_is_renewed_and_its_loss_reported<T: Single>(scene: &Scene<'_, T>) {
    let (name, elsewhere) = (scene.name("x"), gpus(scene));
    let all = gpus_with(scene, renewed(2_400)).acquire_many(LIMIT).unwrap();
    let end = Instant::now() + ms(4_000);
    while Instant::now() < end {
        assert!(all.is_valid() && elsewhere.try_acquire().unwrap().is_none(), "{:?}", all.loss());
        thread::sleep(ms(20));
    }
    all.check().unwrap();
    scene.delete(&name);
    until("it is told", || all.loss().is_some());
    assert_eq!(all.loss().unwrap().cause(), LossCause::Deleted);
    assert!(all.release().unwrap_err().is_lost());
}

fn resize_is_in_force_for_all_clients<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (gpus(scene), gpus(scene));
    let held = here.acquire_many(LIMIT).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| there.acquire().unwrap());
        in_line(&here, 1);
        here.resize(LIMIT + 1).unwrap();
        assert_eq!(waiter.join().unwrap().slot(), LIMIT);
    });
    here.resize(1).unwrap();
    assert_eq!((there.limit().unwrap(), there.available().unwrap()), (1, 0));
    assert!(there.acquire_many(2).unwrap_err().is_config());
    held.release().unwrap();
    assert_eq!(there.acquire().unwrap().slot(), 0);
    let other = scene.client().semaphore(scene.name("x"), LIMIT + 1).unwrap();
    assert!(other.try_acquire().unwrap_err().is_config());
}

/// Leases are far shorter.
fn limit_of_zero_lasts_for_an_hour_after_the_last_request<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (gpus_with(scene, renewed(2_000)), gpus_with(scene, renewed(2_000)));
    let name = scene.name("x");
    let left = || scene.ask::<i64>(&name, &[b"PTTL", &name]);
    let is_long = |left: Vec<i64>| !left.is_empty() && left.iter().all(|left| *left > 3_000_000);
    here.resize(0).unwrap();
    assert!(is_long(left()), "{:?}", left());
    scene.ask::<i64>(&name, &[b"PEXPIRE", &name, b"60000"]);
    assert!(there.try_acquire().unwrap_err().is_config());
    assert!(is_long(left()), "{:?}", left());
    here.resize_for(1, ms(1)).unwrap();
    let shortened = left();
    assert!(shortened.iter().all(|left| *left <= 2_000), "{shortened:?}");
}

/// Its holder says nothing, and no message tells of the end.
fn ended_permit_is_granted_again<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (gpus_with(scene, renewed(2_000).max_renewals(0)), gpus(scene));
    let begin = Instant::now();
    let ends = here.acquire_many(LIMIT - 1).unwrap();
    let other = there.acquire().unwrap();
    assert_eq!(there.acquire().unwrap().slot(), 0);
    assert!(begin.elapsed() >= ms(1_950) && !ends.is_valid(), "{:?}", begin.elapsed());
    other.check().unwrap();
}

fn commands_apply_only_while_it_is_held<T: Single>(scene: &Scene<'_, T>) {
    let (name, gpus) = (scene.name("x"), gpus(scene));
    let work = [b"{".as_slice(), &name, b"}work"].concat();
    let permit = gpus.acquire().unwrap();
    permit.transaction(|pipe| _ = pipe.cmd("INCR").arg(&work)).unwrap();
    scene.delete(&name);
    let error = permit.transaction(|pipe| _ = pipe.cmd("INCR").arg(&work)).unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(scene.ask::<u32>(&name, &[b"GET", &work]), [1]);
}

fn close_gives_permits_back<T: Single>(scene: &Scene<'_, T>) {
    let (client, there) = (scene.client(), gpus(scene));
    let gpus = client.semaphore(scene.name("x"), LIMIT).unwrap();
    let held = gpus.acquire_many(LIMIT).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| gpus.acquire().map(drop));
        until("it waits", || held.waiters() > 0);
        let report = client.close(ms(10), SOON);
        assert!(waits.join().unwrap().unwrap_err().is_cancelled());
        assert_eq!((report.cancelled(), report.taken().len()), (1, 1));
    });
    assert_eq!(there.available().unwrap(), LIMIT);
    assert!(held.release().unwrap_err().is_lost());
}

fn key_of_another_kind_is_an_error_and_not_touched<T: Single>(scene: &Scene<'_, T>) {
    let name = scene.name("x");
    let client = scene.client();
    let (mutex, gpus) = (client.mutex(&name).unwrap(), client.semaphore(&name, LIMIT).unwrap());
    let guard = mutex.lock().unwrap();
    assert!(gpus.try_acquire().unwrap_err().is_wrong_type());
    guard.release().unwrap();
    let permit = gpus.acquire().unwrap();
    assert!(mutex.try_lock().unwrap_err().is_wrong_type());
    permit.release().unwrap();
}
