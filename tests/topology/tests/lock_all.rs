//! Several locks at once over all topologies that have it: all but a quorum.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use leasehold::redis::cmd;
use leasehold::{LockClient, LossCause, MultiGuard, Mutex, Part};
use leasehold_support::fault::{Injection, Operation};
use leasehold_support::{Action, Cluster as Nodes, Fault, Proxy, Server};
use leasehold_topology_test::scene::{ClientOf, SOON, Scene, until};
use leasehold_topology_test::{Cluster, Single, suite};

suite! {
    all_are_taken_or_none
    refused_lock_is_waited_for_with_those_before_it
    threads_with_any_order_exclude_each_other
    loss_of_one_is_the_loss_of_all
    transaction_needs_all_locks
    claim_takes_those_that_are_free
}

/// In a cluster these are in slots of several nodes.
const ENDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn locks<T: Single>(scene: &Scene<'_, T>, client: &ClientOf<T>) -> Vec<Mutex> {
    ENDS.iter().map(|end| client.mutex(scene.name(end)).expect("a lock")).collect()
}

fn is_any_locked(locks: &[Mutex]) -> bool {
    locks.iter().any(|lock| lock.is_locked().expect("an answer"))
}

fn all_are_taken_or_none<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (scene.client(), scene.client());
    let (ours, theirs) = (locks(scene, &here), locks(scene, &there));
    let guard: MultiGuard = here.lock_all(ours.iter().rev()).unwrap();
    assert_eq!(guard.guards().len(), ENDS.len());
    guard.check().unwrap();
    assert!(there.try_lock_all(&theirs).unwrap().is_none());
    for (lock, other) in ours.iter().zip(&theirs) {
        assert!(lock.is_held_by_current_thread() && other.try_lock().unwrap().is_none());
    }
    guard.release().unwrap();
    assert!(!is_any_locked(&ours));
    let held = theirs[3].lock().unwrap();
    assert!(here.try_lock_all(&ours).unwrap().is_none());
    assert_eq!(ours[3].last_blocker().unwrap().token(), Some(held.fencing_token()));
    held.release().unwrap();
    assert!(!is_any_locked(&ours));
}

fn refused_lock_is_waited_for_with_those_before_it<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (scene.client(), scene.client());
    let (ours, theirs) = (locks(scene, &here), locks(scene, &there));
    let held = theirs[2].lock().unwrap();
    thread::scope(|threads| {
        let taken = threads.spawn(|| here.lock_all(&ours).and_then(MultiGuard::release));
        until("it waits", || scene.queueing(&scene.name("c")) == 1);
        let free = theirs.iter().map(|lock| lock.try_lock().unwrap().is_some());
        assert_eq!(free.collect::<Vec<_>>(), [false, false, true, true, true, true]);
        held.release().unwrap();
        taken.join().unwrap().unwrap();
    });
    assert!(!is_any_locked(&theirs));
}

fn threads_with_any_order_exclude_each_other<T: Single>(scene: &Scene<'_, T>) {
    let clients = [scene.client(), scene.client()];
    let inside = [(); ENDS.len()].map(|()| AtomicBool::new(false));
    thread::scope(|threads| {
        for number in 0..6_usize {
            let (client, inside) = (&clients[number % 2], &inside);
            let all = locks(scene, client);
            threads.spawn(move || {
                for round in 0..10 {
                    let chosen: Vec<usize> =
                        (0..3).map(|step| (number + round + step * (1 + number % 2)) % 6).collect();
                    let guard = client.lock_all(chosen.iter().map(|&it| &all[it])).unwrap();
                    for &lock in &chosen {
                        assert!(!inside[lock].swap(true, Ordering::SeqCst), "two holders");
                    }
                    thread::yield_now();
                    chosen.iter().for_each(|&it| inside[it].store(false, Ordering::SeqCst));
                    guard.release().unwrap();
                }
            });
        }
    });
}

fn loss_of_one_is_the_loss_of_all<T: Single>(scene: &Scene<'_, T>) {
    let client = scene.client();
    let guard = client.lock_all(&locks(scene, &client)).unwrap();
    scene.delete(&scene.name("e"));
    assert!(guard.check().unwrap_err().is_lost());
    assert!(!guard.is_valid() && guard.loss().unwrap().cause() == LossCause::Deleted);
    let error = guard.release().unwrap_err();
    assert!(error.is_lost(), "{error:?}");
    assert!(!is_any_locked(&locks(scene, &client)));
}

fn claim_takes_those_that_are_free<T: Single>(scene: &Scene<'_, T>) {
    let (here, there) = (scene.client(), scene.client());
    let (ours, theirs) = (locks(scene, &here), locks(scene, &there));
    let held = theirs[2].lock_owned().unwrap();
    let claimed = here.claim(&ours, 4).unwrap();
    let names = [0, 1, 3, 4].map(|number: usize| scene.name(ENDS[number]));
    assert_eq!(
        claimed.iter().map(|it| it.name()).collect::<Vec<_>>(),
        names.each_ref().map(Vec::as_slice)
    );
    claimed.iter().for_each(|lease| lease.check().unwrap());
    let last = there.claim(&theirs, ENDS.len()).unwrap();
    assert_eq!(last.len(), 1);
    held.release().unwrap();
    here.release_all(claimed).unwrap();
    there.release_all(last).unwrap();
    assert!(!is_any_locked(&ours));
}

/// In a cluster only where all names have one hash tag.
fn transaction_needs_all_locks<T: Single>(scene: &Scene<'_, T>) {
    let client = scene.client();
    let tagged = |end: &str| format!("{{{}}}-{end}", scene.test());
    let part = |end: &str| Part::from(&client.mutex(tagged(end)).unwrap());
    let guard = client.lock_all([part("a"), part("b")]).unwrap();
    let count = tagged("count");
    let add = || guard.transaction(|pipe| _ = pipe.cmd("INCR").arg(&count));
    assert_eq!(add().unwrap().len(), 1);
    scene.delete(tagged("b").as_bytes());
    assert!(add().unwrap_err().is_lost());
    assert_eq!(scene.ask::<u64>(count.as_bytes(), &[b"GET", count.as_bytes()]), [1]);
    drop(guard);

    let guard = client.lock_all(&locks(scene, &client)).unwrap();
    let outcome = guard.transaction(|pipe| _ = pipe.cmd("PING"));
    if std::any::type_name::<T>() == std::any::type_name::<Cluster>() {
        let error = outcome.unwrap_err();
        assert!(error.is_config() && error.to_string().contains("hash tag"), "{error:?}");
    } else {
        outcome.unwrap();
    }
}

/// The replies of all nodes are held until all requests have run: nothing is asked after a reply, at no node.
#[test]
fn free_locks_of_several_nodes_take_one_pipeline_a_node_there_and_back() {
    const EACH: usize = 3;
    let cluster = Nodes::start(3, 0).unwrap();
    let proxies: Vec<Proxy> =
        cluster.masters().iter().map(|node| Proxy::start(node).unwrap()).collect();
    for (node, proxy) in cluster.masters().iter().zip(&proxies) {
        let port = proxy.addr().port().to_string();
        let mut set = cmd("CONFIG");
        set.arg("SET").arg("cluster-announce-port").arg(port).exec(&mut node.connection()).unwrap();
    }
    // A client would pass by a proxy of which a node has not heard.
    until("all nodes know the proxies", || {
        cluster.masters().iter().all(|node| {
            let nodes: String = cmd("CLUSTER").arg("NODES").query(&mut node.connection()).unwrap();
            proxies.iter().all(|proxy| nodes.contains(&format!(":{}@", proxy.addr().port())))
        })
    });
    let client = LockClient::builder(proxies[0].url()).cluster([""; 0]).build().unwrap();
    let names = (0..3).flat_map(|node| {
        (0..EACH).map(move |number| (node, format!("round-trip-{number}"))).collect::<Vec<_>>()
    });
    let locks: Vec<Mutex> =
        names.map(|(node, word)| client.mutex(cluster.name_at(node, &word)).unwrap()).collect();
    // The scripts are there and the connections open.
    client.lock_all(&locks).unwrap().release().unwrap();

    let hold = |operation| -> Vec<Injection> {
        let reply = |proxy: &Proxy| proxy.add(Fault::reply("", Action::Hold).at(operation));
        proxies.iter().map(reply).collect()
    };
    let all_run = |held: &[Injection]| {
        for (node, replies) in cluster.masters().iter().zip(held) {
            assert!(replies.wait_fired(SOON));
            until("all requests run", || node.command_calls(&["evalsha"]) == EACH as u64);
        }
        held.iter().for_each(Injection::release);
        cluster.masters().iter().for_each(Server::reset_stats);
    };
    cluster.masters().iter().for_each(Server::reset_stats);
    let acquires = hold(Operation::Acquire);
    let guard = thread::scope(|scope| {
        scope.spawn(|| all_run(&acquires));
        client.lock_all(&locks).unwrap()
    });
    let releases = hold(Operation::Release);
    thread::scope(|scope| {
        scope.spawn(|| all_run(&releases));
        guard.release().unwrap();
    });
    assert!(!is_any_locked(&locks));
}
