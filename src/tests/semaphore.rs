//! How long the limit of a semaphore is remembered, and what a refusal heals.

use std::any::Any;
use std::time::Duration;

use crate::base::option::{Lease, LockOptions};
use crate::base::sync::channel::unbounded;
use crate::base::sync::spawn;
use crate::client::LockClient;
use crate::kind::{Guard, Semaphore};
use crate::testing::Server;
use crate::tests::double::{listen, until};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn limit_of_a_resize_lasts_for_an_hour_after_the_last_use() {
    let server = Server::standing_still();
    let gpus = server.client().semaphore("gpu", 2).unwrap();
    gpus.resize(0).unwrap();
    // Each request that is refused begins the hour anew.
    for _ in 0..3 {
        server.advance(59 * MINUTE);
        assert!(gpus.try_acquire().unwrap_err().is_config());
    }
    server.advance(61 * MINUTE);
    gpus.try_acquire().unwrap().unwrap().release().unwrap();

    gpus.resize(1).unwrap();
    server.advance(50 * MINUTE);
    let permit = gpus.acquire().unwrap();
    server.advance(50 * MINUTE);
    drop(permit);
    server.advance(50 * MINUTE);
    assert_eq!(gpus.limit().unwrap(), 1);
    server.advance(11 * MINUTE);
    assert_eq!(gpus.limit().unwrap(), 2);
}

#[test]
fn resize_for_names_the_time_and_no_lease_outlives_it() {
    let server = Server::standing_still();
    let client = server.client();
    let gpus = client.semaphore("gpu", 2).unwrap();
    for (keep, shown) in [
        (Duration::ZERO, "too short"),
        (Duration::from_secs(31 * 24 * 60 * 60), "too long"),
        (Duration::MAX, "too long"),
    ] {
        let error = gpus.resize_for(1, keep).unwrap_err();
        let text = error.to_string();
        assert!(error.is_config() && text.contains("keep") && text.contains(shown), "{text}");
    }
    assert!(gpus.resize_for(1 << 31, MINUTE).unwrap_err().is_config());
    gpus.resize_for(0, 7 * 24 * 60 * MINUTE).unwrap();
    server.advance(6 * 24 * 60 * MINUTE);
    assert!(gpus.try_acquire().unwrap_err().is_config());
    gpus.resize_for(1, 2 * MINUTE).unwrap();
    server.advance(3 * MINUTE);
    assert_eq!(gpus.limit().unwrap(), 2, "nobody used it, so the week is over, too");
    // The lease of the handle is longer.
    let lease = LockOptions::new().lease(Lease::renewed(10 * MINUTE));
    let slow = client.semaphore_with("slow", 2, lease).unwrap();
    slow.resize_for(1, MINUTE).unwrap();
    server.advance(9 * MINUTE);
    assert_eq!(slow.limit().unwrap(), 1);
    server.advance(2 * MINUTE);
    assert_eq!(slow.limit().unwrap(), 2);
}

/// A client that listens, so that its leases linger and it hears of waiters.
fn listening(server: &Server) -> LockClient {
    let client = server.client();
    listen(&client);
    client
}

/// Takes so many permits of four, one by one, and gives them back, until all of them linger.
fn lingering(server: &Server, client: &LockClient, count: usize) -> Semaphore {
    let options = LockOptions::new().linger(12 * SECOND);
    let gpus = client.semaphore_with("gpu", 4, options).unwrap();
    until(|| {
        // What is taken again needs a token that the server's clock has reached.
        server.advance(Duration::from_millis(1));
        let permits: Vec<_> = (0..count).map(|_| gpus.acquire().unwrap()).collect();
        drop(permits);
        gpus.holders().unwrap().len() == count
    });
    gpus
}

/// The time stands still, so that no linger ends by itself.
#[test]
fn permits_that_linger_do_not_keep_their_own_process_out() {
    let server = Server::standing_still();
    let client = listening(&server);
    let gpus = lingering(&server, &client, 2);
    let (sender, taken) = unbounded();
    let waits = gpus.clone();
    spawn("waiter", move || sender.send(waits.acquire_many(3).unwrap().slots().to_vec()).unwrap())
        .unwrap();
    assert_eq!(taken.recv().unwrap().len(), 3);
    until(|| gpus.holders().unwrap().len() <= 1);
}

#[test]
fn single_attempt_is_not_refused_for_permits_that_linger() {
    let server = Server::standing_still();
    let client = listening(&server);
    let gpus = lingering(&server, &client, 2);
    assert_eq!(gpus.try_acquire_many(3).unwrap().unwrap().slots(), [0, 1, 2]);

    let server = Server::standing_still();
    let client = listening(&server);
    lingering(&server, &client, 4);
    // It cannot use a lease of another length.
    let lease = LockOptions::new().lease(Lease::renewed(7 * SECOND));
    let other = client.semaphore_with("gpu", 4, lease).unwrap();
    assert!(other.try_acquire().unwrap().is_some());
}

/// How many permits a process takes that it had let linger, once it has itself set the limit to one. No message reaches it.
fn taken_over_a_limit_of_one(server: &Server, gpus: &Semaphore) -> usize {
    // What is taken again needs a token that the server's clock has reached.
    server.advance(Duration::from_millis(1));
    let taken: Vec<_> = (0..2).filter_map(|_| gpus.try_acquire().unwrap()).collect();
    taken.len()
}

/// The message about the new limit comes a moment after the reply, or never. The process that has set it needs none.
#[test]
fn process_that_lowers_the_limit_takes_nothing_again_over_it() {
    let server = Server::standing_still();
    let client = listening(&server);
    let gpus = lingering(&server, &client, 2);
    server.link(&client).lose_messages(1_000);
    gpus.resize(1).unwrap();
    assert_eq!(taken_over_a_limit_of_one(&server, &gpus), 1, "{:?}", gpus.holders().unwrap());

    let server = Server::standing_still();
    let client = listening(&server);
    let options = LockOptions::new().local_handoffs(1_000);
    let gpus = client.semaphore_with("gpu", 2, options).unwrap();
    let mut held: Vec<_> = (0..2).map(|_| gpus.acquire().unwrap()).collect();
    let (sender, passed) = unbounded();
    let waits = gpus.clone();
    spawn("waiter", move || sender.send(waits.acquire().unwrap().slot()).unwrap()).unwrap();
    until(|| held[0].waiters() == 1);
    server.link(&client).lose_messages(1_000);
    gpus.resize(1).unwrap();
    server.advance(Duration::from_millis(1));
    held.remove(0).release().unwrap();
    assert_eq!(gpus.holders().unwrap().len(), 1, "it was passed on");
    held.pop().unwrap().release().unwrap();
    server.run_until(|| !passed.is_empty());
}

/// The limit is in force, and the reply is not here yet.
#[test]
fn process_takes_nothing_again_while_it_lowers_the_limit() {
    const LATE: Duration = Duration::from_millis(50);
    let server = Server::standing_still();
    let client = listening(&server);
    let gpus = lingering(&server, &client, 2);
    let link = server.link(&client);
    link.lose_messages(1_000);
    // Those of two releases, and that of the resize.
    link.delay_answers(3, LATE);
    let (sender, done) = unbounded();
    let sets = gpus.clone();
    spawn("resize", move || sender.send(sets.resize(1)).unwrap()).unwrap();
    let other = server.client().semaphore("gpu", 4).unwrap();
    server.run_until(|| other.limit().unwrap() == 1);
    assert!(done.is_empty(), "the reply is late");
    assert_eq!(taken_over_a_limit_of_one(&server, &gpus), 1, "{:?}", other.holders().unwrap());
    server.run_until(|| !done.is_empty());
    done.recv().unwrap().unwrap();
}

/// A permit that was granted while the request was on its way lingers when the limit comes into force.
#[test]
fn process_takes_nothing_again_that_came_while_it_lowered_the_limit() {
    const LATE: Duration = Duration::from_millis(50);
    let server = Server::standing_still();
    let client = listening(&server);
    let options = LockOptions::new().linger(12 * SECOND);
    let gpus = client.semaphore_with("gpu", 4, options).unwrap();
    let link = server.link(&client);
    link.lose_messages(1_000);
    link.delay_requests(1, LATE);
    let (sender, done) = unbounded();
    let sets = gpus.clone();
    spawn("resize", move || sender.send(sets.resize(1)).unwrap()).unwrap();
    until(|| link.faults() == 1);
    drop((gpus.acquire().unwrap(), gpus.acquire().unwrap()));
    assert_eq!(gpus.holders().unwrap().len(), 2, "they linger");
    server.run_until(|| !done.is_empty());
    done.recv().unwrap().unwrap();
    assert_eq!(taken_over_a_limit_of_one(&server, &gpus), 1, "{:?}", gpus.holders().unwrap());
}

/// One message reaches a process, however many permits it has.
#[test]
fn lower_limit_ends_all_lingers_of_another_process() {
    const PERMITS: u32 = 50;
    for handed_off in [false, true] {
        let server = Server::standing_still();
        let (here, there) = (listening(&server), server.client());
        let linger = if handed_off { Duration::ZERO } else { 12 * SECOND };
        let options = LockOptions::new().linger(linger).local_handoffs(1_000);
        let gpus = here.semaphore_with("gpu", PERMITS, options).unwrap();
        let mut held: Vec<_> = (0..PERMITS).map(|_| gpus.acquire().unwrap()).collect();
        let (sender, passed) = unbounded();
        if handed_off {
            let waits = gpus.clone();
            spawn("waiter", move || sender.send(waits.acquire().unwrap().slot()).unwrap()).unwrap();
            until(|| held[0].waiters() == 1);
        } else {
            held.clear();
        }
        there.semaphore("gpu", PERMITS).unwrap().resize(1).unwrap();
        if handed_off {
            // The message is for all of them.
            until(|| held.iter().all(|guard| guard.waiters() > 1));
            server.advance(Duration::from_millis(1));
            // The message names one of them, which may be one of these.
            (0..2).for_each(|_| held.pop().unwrap().release().unwrap());
            let left = gpus.holders().unwrap().len();
            assert_eq!(left, PERMITS as usize - 2, "a lease was handed off over the limit");
            held.clear();
            server.run_until(|| !passed.is_empty());
        } else {
            until(|| gpus.holders().unwrap().is_empty());
        }
    }
}

/// With a permit of another client in its way it is refused all the same, after the lingers have ended.
#[test]
fn lingers_end_also_where_that_is_not_enough() {
    let server = Server::standing_still();
    let client = listening(&server);
    let gpus = lingering(&server, &client, 2);
    let other = server.client().semaphore("gpu", 4).unwrap();
    let held = other.acquire_many(2).unwrap();
    assert!(gpus.try_acquire_many(3).unwrap().is_none());
    assert_eq!(gpus.holders().unwrap().len(), 1);
    drop(held);
}

/// One client's place in the line is before the other's, and its threads keep the lock busy.
#[test]
fn waiter_behind_the_holders_own_client_tells_the_holder() {
    let server = Server::standing_still();
    let (here, there) = (listening(&server), listening(&server));
    let gpus = here.semaphore("gpu", 1).unwrap();
    let held = gpus.acquire().unwrap();
    let (sender, taken) = unbounded();
    for (count, client) in [&here, &there].into_iter().enumerate() {
        let (waits, sender) = (client.semaphore("gpu", 1).unwrap(), sender.clone());
        spawn("waiter", move || {
            waits.acquire().unwrap().release().unwrap();
            sender.send(()).unwrap();
        })
        .unwrap();
        until(|| gpus.inspect().unwrap().waiting() == Some(count + 1));
    }
    // No heartbeat comes, as the time stands still.
    until(|| held.waiters() == 2);
    held.release().unwrap();
    for _ in 0..2 {
        taken.recv().unwrap();
    }
}

/// Takes a lock of one of the kinds, by its number. Returns what gives it back when it is dropped.
fn take(client: &LockClient, kind: usize, options: LockOptions) -> Box<dyn Any> {
    let own = |guard: Guard| guard.into_owned().unwrap();
    match kind {
        0 => Box::new(own(client.mutex_with("a", options).unwrap().lock().unwrap())),
        1 => Box::new(own(client.reentrant_with("a", options).unwrap().lock().unwrap())),
        2 => Box::new(client.semaphore_with("a", 1, options).unwrap().acquire().unwrap()),
        _ => Box::new(client.rw_lock_with("a", options).unwrap().write().unwrap()),
    }
}

/// The holder's lease ends in 5 ms, and a reply that says so is no reason to ask in 6.
#[test]
fn no_reply_makes_a_waiter_ask_within_ten_milliseconds() {
    // One that does not queue asks once more after it has subscribed to releases.
    for (kind, requests) in [1, 2, 1, 1].into_iter().enumerate() {
        let server = Server::standing_still();
        let (here, there) = (listening(&server), server.client());
        let brief = LockOptions::new().lease(Lease::fixed(Duration::from_millis(5)));
        // Nobody gives it back.
        std::mem::forget(take(&there, kind, brief));
        let link = server.link(&here);
        let before = link.exchanges();
        let (sender, taken) = unbounded();
        spawn("waiter", move || {
            drop(take(&here, kind, LockOptions::new()));
            sender.send(()).unwrap();
        })
        .unwrap();
        until(|| link.exchanges() - before == requests);
        server.advance(Duration::from_millis(9));
        assert_eq!(link.exchanges() - before, requests, "kind {kind}");
        until(|| {
            server.advance(Duration::from_millis(10));
            taken.try_recv().is_ok()
        });
    }
}

/// How many threads of a client wait for its locks.
fn waiting(client: &LockClient) -> usize {
    client.engine().table().all().iter().map(|slot| slot.waiters()).sum()
}

/// N of them would else take N round trips.
#[test]
fn threads_that_come_together_share_round_trips() {
    for (threads, wait, way) in [(150, None, 20), (32, Some(20), 2)] {
        let server = Server::standing_still();
        let client = listening(&server);
        let gpus = client.semaphore("gpu", 200).unwrap();
        let link = server.link(&client);
        link.delay_answers(1_000, Duration::from_millis(way));
        let before = link.exchanges();
        let (sender, taken) = unbounded();
        for _ in 0..threads {
            let (gpus, sender) = (gpus.clone(), sender.clone());
            spawn("taker", move || {
                let permit = match wait {
                    None => gpus.try_acquire(),
                    Some(wait) => gpus.try_acquire_for(Duration::from_millis(wait)),
                };
                sender.send(permit.map(|permit| permit.map(|it| it.into_owned()))).unwrap();
            })
            .unwrap();
        }
        // The first asks, and the others wait for it.
        until(|| waiting(&client) >= threads - 1);
        let mut permits = Vec::new();
        until(|| {
            server.advance(Duration::from_millis(way));
            permits.extend(taken.try_iter());
            permits.len() == threads
        });
        for permit in &permits {
            assert!(matches!(permit, Ok(Some(_))), "{permit:?}");
        }
        let trips = link.exchanges() - before;
        assert!(trips <= 2 + threads as u64 / 31, "{trips} round trips for {threads} threads");
        // The time stands still, and so would each release.
        std::mem::forget(permits);
    }
}

/// Redis replies to those before it, and nobody has said that there is nothing left.
#[test]
fn wait_that_ends_before_its_thread_could_ask_is_a_timeout() {
    let server = Server::standing_still();
    let client = listening(&server);
    let gpus = client.semaphore("gpu", 200).unwrap();
    let way = Duration::from_millis(20);
    let link = server.link(&client);
    link.delay_answers(1_000, way);
    let before = link.exchanges();
    let (sender, outcome) = unbounded();
    // None asks for the same as the one before it, so each takes a round trip of its own.
    for number in 0..6 {
        let (gpus, sender) = (gpus.clone(), sender.clone());
        spawn("taker", move || {
            if number < 5 {
                gpus.acquire_many(1 + number % 2).map(std::mem::forget).unwrap();
            } else {
                sender.send(gpus.try_acquire_for(way).map(|permit| permit.is_some())).unwrap();
            }
        })
        .unwrap();
        until(|| waiting(&client) > number as usize);
    }
    until(|| link.exchanges() > before);
    server.advance(way);
    // The reply to the first has come, also to the thread that waits.
    until(|| link.exchanges() > before + 1);
    server.advance(way * 2);
    let error = outcome.recv().unwrap().unwrap_err();
    assert!(error.is_timeout() && error.to_string().contains("other threads"), "{error}");
    server.advance(way * 4);
}

/// Its request travels with that of the thread before it, whose reply comes after its wait.
#[test]
fn permit_of_a_thread_that_left_is_given_back() {
    let server = Server::standing_still();
    let client = listening(&server);
    let gpus = client.semaphore("gpu", 200).unwrap();
    let link = server.link(&client);
    link.delay_answers(2, SECOND / 10);
    let before = link.exchanges();
    let (sender, outcome) = unbounded();
    for number in 0..3 {
        let (gpus, sender) = (gpus.clone(), sender.clone());
        spawn("taker", move || {
            if number < 2 {
                gpus.acquire().map(std::mem::forget).unwrap();
            } else {
                let wait = Duration::from_millis(150);
                sender.send(gpus.try_acquire_for(wait).map(|permit| permit.is_some())).unwrap();
            }
        })
        .unwrap();
        until(|| waiting(&client) > number);
    }
    until(|| link.exchanges() > before);
    let mut ended = None;
    until(|| {
        server.advance(Duration::from_millis(10));
        ended = outcome.try_iter().next();
        ended.is_some()
    });
    ended.unwrap().unwrap_err();
    assert_eq!(link.faults(), 2, "its request was under way");
    server.advance(SECOND);
    until(|| gpus.available().unwrap() == 198);
}
