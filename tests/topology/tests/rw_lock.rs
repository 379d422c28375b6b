//! The read-write lock over all topologies that have it: all but a quorum.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use leasehold::{Access, LockOptions, LossCause, RwLock, UpgradableReadGuard, WriteGuard};
use leasehold_topology_test::scene::{SOON, Scene, ms, renewed, until};
use leasehold_topology_test::{Single, suite};

suite! {
    readers_hold_together_and_a_writer_alone
    attempt_ends_in_time_and_names_the_holder
    release_lets_a_writer_in_and_its_token_is_greater
    reader_behind_a_waiting_writer_waits
    writers_exclude_readers_and_each_other
    downgrade_lets_readers_in_and_keeps_writers_out
    upgrade_goes_before_a_waiting_writer
    upgrade_out_of_time_returns_the_guard
    leases_are_renewed_and_their_loss_reported
    evicted_holder_has_lost_it_and_the_others_have_not
    ended_lease_of_a_reader_lets_a_writer_in
    commands_apply_only_while_it_is_held
    cancel_and_close_end_waits_and_holds
    key_of_another_kind_is_an_error_and_not_touched
}

/// The test's lock, with a client of its own.
fn lock_with<T: Single>(scene: &Scene<'_, T>, options: LockOptions) -> RwLock {
    scene.client().rw_lock_with(scene.name("x"), options).expect("a lock")
}

fn lock<T: Single>(scene: &Scene<'_, T>) -> RwLock {
    lock_with(scene, LockOptions::new())
}

fn in_line(lock: &RwLock, count: usize) {
    until("they stand in the line", || lock.inspect().unwrap().waiting() == Some(count));
}

fn accesses(lock: &RwLock) -> Vec<Option<Access>> {
    lock.holders().unwrap().iter().map(|holder| holder.access()).collect()
}

fn readers_hold_together_and_a_writer_alone<T: Single>(scene: &Scene<'_, T>) {
    let [here, there, third] = [(); 3].map(|()| lock(scene));
    let (first, second) = (here.read().unwrap(), there.try_read().unwrap().unwrap());
    let upgradable = third.try_upgradable_read().unwrap().unwrap();
    assert_eq!(accesses(&here).len(), 3);
    let other = lock(scene);
    assert!(other.try_write().unwrap().is_none() && other.try_upgradable_read().unwrap().is_none());
    first.release().unwrap();
    second.release().unwrap();
    assert_eq!(accesses(&here), [Some(Access::UpgradableRead)]);
    upgradable.release().unwrap();
    let writer = there.write().unwrap();
    assert!(here.try_read().unwrap().is_none() && here.try_write().unwrap().is_none());
    assert_eq!(accesses(&here), [Some(Access::Write)]);
    writer.release().unwrap();
    assert!(!here.is_locked().unwrap());
}

fn attempt_ends_in_time_and_names_the_holder<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (lock(scene), lock(scene));
    let reader = here.read().unwrap();
    let begin = Instant::now();
    assert!(there.try_write_for(ms(300)).unwrap().is_none());
    assert!(begin.elapsed() >= ms(300));
    assert_eq!(there.last_blocker().unwrap().pid(), Some(std::process::id()));
    in_line(&here, 0);
    let beside = there.try_read_until(Instant::now() + SOON).unwrap().expect("nobody waits");
    beside.release().unwrap();
    reader.release().unwrap();
    let writer = there.try_write_for(SOON).unwrap().expect("nobody has it");
    assert!(here.try_read_for(ms(50)).unwrap().is_none());
    assert_eq!(here.last_blocker().unwrap().pid(), Some(std::process::id()));
    writer.release().unwrap();
}

/// Long before the lease of 30 s is over.
fn release_lets_a_writer_in_and_its_token_is_greater<T: Single>(scene: &Scene<'_, T>) {
    let [here, there, other] = [(); 3].map(|()| lock(scene));
    let (first, second) = (here.read().unwrap(), other.read().unwrap());
    thread::scope(|scope| {
        let writes = scope.spawn(|| {
            let writer = there.write().unwrap();
            (Instant::now(), writer.fencing_token())
        });
        in_line(&here, 1);
        let before = first.fencing_token().max(second.fencing_token());
        first.release().unwrap();
        assert!(!writes.is_finished(), "one reader is left");
        let released = Instant::now();
        second.release().unwrap();
        let (got, token) = writes.join().unwrap();
        assert!(token > before && got - released < SOON, "{:?}", got - released);
    });
}

fn reader_behind_a_waiting_writer_waits<T: Single>(scene: &Scene<'_, T>) {
    let [here, there, late] = [(); 3].map(|()| lock(scene));
    let first = here.read().unwrap();
    thread::scope(|scope| {
        let writes = scope.spawn(|| {
            let writer = there.write().unwrap();
            let token = writer.fencing_token();
            writer.release().unwrap();
            token
        });
        in_line(&here, 1);
        assert!(late.try_read().unwrap().is_none(), "the writer is overtaken");
        let reads = scope.spawn(|| late.read().unwrap().fencing_token());
        in_line(&here, 2);
        first.release().unwrap();
        assert!(writes.join().unwrap() < reads.join().unwrap());
    });
}

fn writers_exclude_readers_and_each_other<T: Single>(scene: &Scene<'_, T>) {
    let (writing, last) = (AtomicBool::new(false), AtomicU64::new(0));
    let reading = AtomicUsize::new(0);
    let locks = [(); 4].map(|()| lock(scene));
    thread::scope(|scope| {
        for lock in &locks {
            for number in 0..2 {
                let (writing, last, reading) = (&writing, &last, &reading);
                scope.spawn(move || {
                    for round in 0..15 {
                        if (number + round) % 3 > 0 {
                            let reader = lock.read().unwrap();
                            reading.fetch_add(1, Ordering::SeqCst);
                            assert!(!writing.load(Ordering::SeqCst), "a reader beside a writer");
                            thread::yield_now();
                            reading.fetch_sub(1, Ordering::SeqCst);
                            reader.release().unwrap();
                            continue;
                        }
                        let writer = lock.write().unwrap();
                        assert!(!writing.swap(true, Ordering::SeqCst), "two writers");
                        assert_eq!(reading.load(Ordering::SeqCst), 0, "a writer beside a reader");
                        let token = writer.fencing_token().get();
                        assert!(last.swap(token, Ordering::SeqCst) < token, "tokens must grow");
                        thread::yield_now();
                        writing.store(false, Ordering::SeqCst);
                        writer.release().unwrap();
                    }
                });
            }
        }
    });
    assert!(!locks[0].is_locked().unwrap());
}

fn downgrade_lets_readers_in_and_keeps_writers_out<T: Single>(scene: &Scene<'_, T>) {
    let [here, there, third] = [(); 3].map(|()| lock(scene));
    let writer = here.write().unwrap();
    thread::scope(|scope| {
        let reads = scope.spawn(|| there.read().unwrap().into_owned().unwrap());
        in_line(&here, 1);
        let writes = scope.spawn(|| third.write().unwrap().release());
        in_line(&here, 2);
        let token = writer.fencing_token();
        let upgradable = WriteGuard::downgrade_to_upgradable(writer).unwrap();
        let reader = reads.join().unwrap();
        assert_eq!(upgradable.fencing_token(), token);
        reader.check().unwrap();
        upgradable.check().unwrap();
        assert!(!writes.is_finished(), "it came in beside readers");
        reader.release().unwrap();
        upgradable.release().unwrap();
        writes.join().unwrap().unwrap();
    });
    let reader = WriteGuard::downgrade(here.write().unwrap()).unwrap();
    assert_eq!(accesses(&there), [Some(Access::Read)]);
    assert!(there.try_read().unwrap().is_some());
    reader.release().unwrap();
}

fn upgrade_goes_before_a_waiting_writer<T: Single>(scene: &Scene<'_, T>) {
    let [here, there, third] = [(); 3].map(|()| lock(scene));
    let reader = there.read().unwrap();
    let ((acquired, has), (go, goes)) = (mpsc::channel(), mpsc::channel());
    thread::scope(|scope| {
        let here = &here;
        let upgrades = scope.spawn(move || {
            let guard = here.upgradable_read().unwrap();
            acquired.send(guard.fencing_token()).unwrap();
            goes.recv().unwrap();
            let writer = UpgradableReadGuard::upgrade(guard).unwrap();
            let token = writer.fencing_token();
            writer.release().unwrap();
            token
        });
        let before = has.recv().unwrap();
        let writes = scope.spawn(|| third.write().unwrap().fencing_token());
        in_line(&there, 1);
        go.send(()).unwrap();
        in_line(&there, 2);
        reader.release().unwrap();
        let (upgraded, written) = (upgrades.join().unwrap(), writes.join().unwrap());
        assert!(before < upgraded && upgraded < written, "{before} {upgraded} {written}");
    });
}

fn upgrade_out_of_time_returns_the_guard<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (lock(scene), lock(scene));
    let (reader, guard) = (there.read().unwrap(), here.upgradable_read().unwrap());
    let token = guard.fencing_token();
    let guard = UpgradableReadGuard::try_upgrade_for(guard, ms(100)).unwrap().unwrap_err();
    assert!(guard.is_valid() && guard.fencing_token() == token);
    assert_eq!(accesses(&there).len(), 2);
    assert!(there.try_read().unwrap().is_some(), "nobody waits to write any more");
    reader.release().unwrap();
    let writer = UpgradableReadGuard::try_upgrade_for(guard, SOON).unwrap().expect("alone");
    assert!(writer.fencing_token() > token);
    assert_eq!(accesses(&there), [Some(Access::Write)]);
}

fn leases_are_renewed_and_their_loss_reported<T: Single>(scene: &Scene<'_, T>) {
    let (name, elsewhere) = (scene.name("x"), lock(scene));
    let [here, there] = [(); 2].map(|()| lock_with(scene, renewed(2_400)));
    let (reader, upgradable) = (here.read().unwrap(), there.upgradable_read().unwrap());
    let end = Instant::now() + ms(4_000);
    while Instant::now() < end {
        assert!(reader.is_valid() && upgradable.is_valid(), "{:?}", reader.loss());
        assert!(elsewhere.try_write().unwrap().is_none());
        thread::sleep(ms(20));
    }
    reader.check().unwrap();
    upgradable.check().unwrap();
    scene.delete(&name);
    until("both are told", || reader.loss().is_some() && upgradable.loss().is_some());
    assert_eq!(reader.loss().unwrap().cause(), LossCause::Deleted);
    assert!(reader.release().unwrap_err().is_lost() && upgradable.release().unwrap_err().is_lost());
    assert!(elsewhere.try_write().unwrap().is_some());
}

fn evicted_holder_has_lost_it_and_the_others_have_not<T: Single>(scene: &Scene<'_, T>) {
    let [here, there, third] = [(); 3].map(|()| lock(scene));
    let (evicted, other) = (here.upgradable_read().unwrap(), there.read().unwrap());
    thread::scope(|scope| {
        let writes = scope.spawn(|| third.write().unwrap().release());
        in_line(&there, 1);
        let holders = there.holders().unwrap();
        let first = holders.iter().find(|it| it.access() == Some(Access::UpgradableRead));
        assert!(there.force_release(first.unwrap()).unwrap());
        assert!(evicted.check().unwrap_err().is_lost());
        other.check().unwrap();
        assert!(!writes.is_finished(), "a reader is left");
        other.release().unwrap();
        writes.join().unwrap().unwrap();
    });
    assert!(evicted.release().unwrap_err().is_lost());
    assert!(here.try_write().unwrap().is_some());
}

/// Its holder says nothing, as after a kill, and no message tells of the end.
fn ended_lease_of_a_reader_lets_a_writer_in<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (lock_with(scene, renewed(2_000).max_renewals(0)), lock(scene));
    let begin = Instant::now();
    let ends = here.read().unwrap();
    let writer = there.write().unwrap();
    assert!(begin.elapsed() >= ms(1_950) && !ends.is_valid(), "{:?}", begin.elapsed());
    assert!(writer.fencing_token() > ends.fencing_token());
    writer.check().unwrap();
}

fn commands_apply_only_while_it_is_held<T: Single>(scene: &Scene<'_, T>) {
    let (name, lock) = (scene.name("x"), lock(scene));
    let work = [b"{".as_slice(), &name, b"}work"].concat();
    let writer = lock.write().unwrap();
    writer.transaction(|pipe| _ = pipe.cmd("INCR").arg(&work)).unwrap();
    scene.delete(&name);
    let error = writer.transaction(|pipe| _ = pipe.cmd("INCR").arg(&work)).unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(scene.ask::<u32>(&name, &[b"GET", &work]), [1]);
}

fn cancel_and_close_end_waits_and_holds<T: Single>(scene: &Scene<'_, T>) {
    let (client, there) = (scene.client(), lock(scene));
    let here = client.rw_lock(scene.name("x")).unwrap();
    let reader = there.read().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| here.write().map(drop));
        in_line(&there, 1);
        assert_eq!(here.cancel_waits(), 1);
        assert!(waits.join().unwrap().unwrap_err().is_cancelled());
    });
    in_line(&there, 0);
    let held = here.read().unwrap();
    let report = client.close(ms(10), SOON);
    assert_eq!((report.cancelled(), report.taken().len()), (0, 1));
    assert!(held.release().unwrap_err().is_lost());
    assert_eq!(there.holders().unwrap().len(), 1);
    reader.release().unwrap();
}

fn key_of_another_kind_is_an_error_and_not_touched<T: Single>(scene: &Scene<'_, T>) {
    let name = scene.name("x");
    let client = scene.client();
    let (mutex, lock) = (client.mutex(&name).unwrap(), client.rw_lock(&name).unwrap());
    let guard = mutex.lock().unwrap();
    assert!(lock.try_read().unwrap_err().is_wrong_type());
    assert!(lock.try_write().unwrap_err().is_wrong_type());
    guard.release().unwrap();
    let reader = lock.read().unwrap();
    assert!(mutex.try_lock().unwrap_err().is_wrong_type());
    // Both are sorted sets, and each script is told its kind.
    let gpus = client.semaphore(&name, 3).unwrap();
    assert!(gpus.try_acquire().unwrap_err().is_wrong_type());
    assert!(gpus.holders().unwrap_err().is_wrong_type());
    reader.check().unwrap();
    reader.release().unwrap();
}
