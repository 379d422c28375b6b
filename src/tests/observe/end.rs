//! Ends of holds in odd places.

use super::{Event, Recorder, SECOND, aside};
use crate::base::option::{Lease, LockOptions};
use crate::base::sync::{Arc, Mutex};
use crate::client::LockClient;
use crate::kind::OwnedLease;
use crate::observe::{Acquired, Lost, Observer, Released};
use crate::testing::Server;
use crate::tests::double::until;

/// Drops a hold when another is lost.
struct Cleaner(Arc<Mutex<Option<OwnedLease>>>);

impl Observer for Cleaner {
    fn lost(&self, _event: &Lost<'_>) {
        let lease = self.0.lock().take();
        drop(lease);
    }
}

#[test]
fn hold_that_ends_inside_an_observer_ends_for_observers() {
    let (server, recorder) = (Server::standing_still(), Recorder::default());
    let kept = Arc::new(Mutex::new(None));
    let settings = LockClient::builder("redis://memory")
        .observer(recorder.clone())
        .observer(Cleaner(Arc::clone(&kept)));
    let client = server.connect(settings).unwrap();
    let guard = client.mutex("a").unwrap().lock().unwrap();
    *kept.lock() = client.mutex("b").unwrap().lock().unwrap().into_owned().ok();
    assert!(kept.lock().is_some());
    assert!(server.delete("a"));
    assert!(guard.check().unwrap_err().is_lost());
    until(|| kept.lock().is_none());
    recorder.settle();
}

/// The names with which holds began and ended.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Vec<HoldName>>>);

/// The number of a hold, and its name.
type HoldName = (u64, Vec<u8>);

impl Observer for Names {
    fn acquired(&self, event: &Acquired<'_>) {
        self.0.lock().push((event.hold, event.name.to_vec()));
    }

    fn released(&self, event: &Released<'_>) {
        self.0.lock().push((event.hold, event.name.to_vec()));
    }
}

/// The later part is granted, and what began as one lock must not end as another.
#[test]
fn part_after_one_that_came_too_late_is_given_back_as_itself() {
    let (server, names) = (Server::standing_still(), Names::default());
    let settings = LockClient::builder("redis://memory").observer(names.clone());
    let client = server.connect(settings).unwrap();
    let brief = LockOptions::new().max_hold(SECOND / 4);
    let second = client.mutex_with("b", brief).unwrap();
    let all = [client.mutex("a").unwrap(), second, client.mutex("c").unwrap()];
    let link = server.link(&client);
    link.delay_answers(1, SECOND / 2);
    let taken = {
        let client = client.clone();
        aside(move || client.lock_all(&all).map(drop))
    };
    until(|| link.faults() == 1);
    server.advance(SECOND / 2);
    assert!(taken.recv().unwrap().is_err());
    let seen = names.0.lock().clone();
    assert!(!seen.is_empty());
    for (hold, name) in &seen {
        let of_hold: Vec<_> = seen.iter().filter(|it| it.0 == *hold).collect();
        assert_eq!(of_hold.len(), 2, "{seen:?}");
        assert!(of_hold.iter().all(|it| it.1 == *name), "{seen:?}");
    }
    assert!(
        server.keys().iter().all(|key| !["a", "b", "c"].map(str::as_bytes).contains(&&key[..]))
    );
}

/// Its lease is over, and nobody else has taken the lock meanwhile.
#[test]
fn observers_are_told_of_a_hold_that_comes_back() {
    let (server, recorder) = (Server::standing_still(), Recorder::default());
    let client = recorder.client(&server);
    let lease = Lease::renewed(SECOND * 3).recoverable_for(SECOND * 27);
    let guard = client.mutex_with("a", LockOptions::new().lease(lease)).unwrap().lock().unwrap();
    let link = server.link(&client);
    let is_told = |event: Event| recorder.all().contains(&event);
    link.cut();
    server.advance(SECOND * 5);
    until(|| is_told(Event::Unconfirmed(guard.fencing_token())));
    assert!(!is_told(Event::ConfirmedAgain(guard.fencing_token())));
    link.restore();
    server.advance(SECOND);
    until(|| is_told(Event::ConfirmedAgain(guard.fencing_token())));
    guard.release().unwrap();
    recorder.settle();
}
