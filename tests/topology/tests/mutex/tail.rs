//! Leases with a tail: a holder that is not heard of comes back, or another has the lock. A quorum has none.

use std::sync::mpsc::{Sender, channel};

use leasehold::observe::{ConfirmedAgain, Unconfirmed};
use leasehold::{Holder, Observer};
use leasehold_support::Child;
use leasehold_support::child::{hear, tell};
use leasehold_topology_test::scene::{SOON, Scene, TAIL, ms, tailed, until};
use leasehold_topology_test::{Builder, Client, Topology};

const LEASE: u64 = 2_000;

/// Whether a lock with a tail is refused there, with the reason.
fn is_refused<T: Topology>(scene: &Scene<'_, T>) -> bool {
    if T::TAILS {
        return false;
    }
    let client = scene.builder().build().unwrap();
    let error = client.mutex_with(&scene.name("x"), tailed(LEASE)).unwrap_err();
    let (text, parts) = (error.to_string(), ["recoverable_for", "over several servers"]);
    assert!(error.is_config() && parts.iter().all(|part| text.contains(part)), "{error:?}");
    assert_eq!(scene.found(&scene.name("x")), 0);
    true
}

/// A process that has the lock, and the token.
fn holder<T: Topology>(scene: &Scene<'_, T>) -> (Child, u64) {
    let name = String::from_utf8(scene.name("x")).unwrap();
    let child = Child::role(std::any::type_name::<T>()).test("roles");
    let child = child.env("ADDRESS", scene.address()).env("TAILED", &name);
    let mut child = child.start().expect("a child");
    let token = child.expect_line("holds", SOON).parse().unwrap();
    (child, token)
}

/// What the child does.
pub(crate) fn play<T: Topology>(address: &str, name: &str) {
    let builder = T::builder(address).timeout(ms(3_000));
    let client = builder.give_up_after(SOON * 2).build().unwrap();
    let guard = client.mutex_with(name.as_bytes(), tailed(LEASE)).unwrap().lock().unwrap();
    tell(&format!("holds {}", guard.fencing_token()));
    hear();
    until("it is known", || guard.is_valid() || guard.loss().is_some());
    match guard.loss() {
        None => tell(&format!("valid {}", guard.fencing_token())),
        Some(loss) => tell(&format!("lost {:?}", loss.cause())),
    }
    hear();
}

fn is_overdue(holder: &Holder) -> bool {
    holder.overdue().is_some()
}

pub(crate) fn stopped_holder_comes_back_with_its_token<T: Topology>(scene: &Scene<'_, T>) {
    if is_refused(scene) {
        return;
    }
    let lock = scene.lock();
    let (mut child, token) = holder(scene);
    let holder = || lock.holder().unwrap().expect("a holder");
    assert!(!is_overdue(&holder()));
    child.stop();
    until("its lease is over", || is_overdue(&holder()));
    let seen = lock.inspect().unwrap();
    let [shown] = seen.holders() else { panic!("{seen}") };
    assert_eq!((shown.pid(), shown.ttl()), (Some(child.pid()), Some(ms(0))));
    assert_eq!(shown.token().map(|token| token.get()), Some(token));
    child.cont();
    child.say("go on");
    assert_eq!(child.expect_line("valid", SOON), token.to_string());
    until("it is heard of again", || !is_overdue(&holder()));
    assert!(lock.try_lock().unwrap().is_none());
}

pub(crate) fn lock_of_a_stopped_holder_is_free_to_others<T: Topology>(scene: &Scene<'_, T>) {
    if is_refused(scene) {
        return;
    }
    let lock = scene.lock();
    let (mut child, token) = holder(scene);
    child.stop();
    // As one that waits: it asks when the lease is over, and not when the key ends.
    let guard = lock.try_lock_for(SOON).unwrap().expect("its lease is over");
    assert!(guard.fencing_token().get() > token);
    child.cont();
    child.say("go on");
    assert_eq!(child.expect_line("lost", SOON), "Taken");
    guard.check().unwrap();
    guard.release().unwrap();
    assert!(!lock.is_locked().unwrap(), "the one that lost it has left it alone");
}

/// Whether a hold is confirmed.
struct Told(Sender<bool>);

impl Observer for Told {
    fn unconfirmed(&self, _: &Unconfirmed<'_>) {
        let _ = self.0.send(false);
    }

    fn confirmed_again(&self, _: &ConfirmedAgain<'_>) {
        let _ = self.0.send(true);
    }
}

/// Those who wait could not ask while the server stood still, and it is before their requests.
pub(crate) fn renewal_that_comes_late_is_left_to_those_who_wait<T: Topology>(scene: &Scene<'_, T>) {
    if is_refused(scene) {
        return;
    }
    let name = scene.name("x");
    let [queue, beats] = [&b"}:queue"[..], b"}:beats"].map(|end| [b"{", &name[..], end].concat());
    let (sender, receiver) = channel();
    let client = scene.builder().observer(Told(sender)).build().unwrap();
    let guard = client.mutex_with(&name, tailed(LEASE)).unwrap().lock().unwrap();
    let token = guard.fencing_token();
    let is_confirmed = || receiver.recv_timeout(SOON).expect("its observer is told");
    // The server counts as if the renewals of the time until then had been stuck.
    let late = || scene.ask::<()>(&name, &[b"PEXPIRE", &name, b"30000"]);
    let is_renewed = || scene.ask::<i64>(&name, &[b"PTTL", &name])[0] > TAIL.as_millis() as i64;
    assert!(is_renewed());

    // One that stands in the queue and lives, and does not ask.
    scene.ask::<()>(&name, &[b"ZADD", &queue, b"1", b"somebody"]);
    scene.ask::<()>(&name, &[b"ZADD", &beats, b"9000000000000000", b"somebody"]);
    late();
    assert!(!is_confirmed(), "its renewals are left to the one that waits");
    assert!(guard.loss().is_none());
    scene.delete(&queue);
    scene.delete(&beats);
    assert!(is_confirmed());
    assert!(is_renewed());

    // Nobody waits.
    late();
    until("it is renewed", is_renewed);
    guard.check().unwrap();
    assert!(guard.is_valid() && guard.loss().is_none());
    assert_eq!(guard.fencing_token(), token);
    guard.release().unwrap();
    assert_eq!(scene.found(&name), 0);
}
