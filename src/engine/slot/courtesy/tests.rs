use super::*;
use crate::base::driven::DrivenClock;

/// A release that was heard by this client, by others.
fn audience(listens: bool, others: bool) -> Audience {
    let listeners = u32::from(listens) + u32::from(others);
    Audience { listeners, listens, trip: Duration::ZERO }
}

/// Somebody may listen who never takes the lock.
#[test]
fn pauses_in_vain_become_rare_until_somebody_takes_the_lock() {
    let mut courtesy = Courtesy::default();
    let begin = DrivenClock::START;
    let mut now = begin;
    let mut paused = |courtesy: &mut Courtesy, taken: bool| {
        now = now.after(Duration::from_micros(100));
        courtesy.begin_release();
        courtesy.released(audience(false, true), now);
        let pauses = courtesy.until > now;
        courtesy.paused = pauses.then_some(true);
        now = now.max(courtesy.until);
        courtesy.end(taken, now);
        (pauses, now.since(begin))
    };
    let first: Vec<bool> = (0..8).map(|_| paused(&mut courtesy, false).0).collect();
    assert_eq!(first, [true, true, true, true, false, false, false, false]);
    let mut pauses = 0;
    let span = loop {
        let (pauses_now, span) = paused(&mut courtesy, false);
        pauses += u32::from(pauses_now);
        if span > Duration::from_secs(60) {
            break span;
        }
    };
    assert!(TURN * pauses < span / 100, "{pauses} pauses in {span:?}");
    while !paused(&mut courtesy, true).0 {}
    assert!((0..100).all(|_| paused(&mut courtesy, true).0), "a rest without a reason");
}

#[test]
fn late_messages_of_its_own_are_not_anothers() {
    let mut courtesy = Courtesy::default();
    let now = DrivenClock::START;
    for number in 0..VAIN {
        courtesy.begin_release();
        courtesy.released(audience(true, true), now);
        // Those of two releases come together.
        (0..number % 2 * 2).for_each(|_| courtesy.hear_release());
        courtesy.paused = Some(true);
        courtesy.end(false, now);
    }
    assert_eq!(courtesy.vain, VAIN);
}

#[test]
fn release_that_only_this_client_heard_is_its_own() {
    let mut courtesy = Courtesy::default();
    courtesy.begin_release();
    courtesy.released(audience(true, false), DrivenClock::START);
    courtesy.begin_release();
    courtesy.released(audience(true, true), DrivenClock::START);
    (0..2).for_each(|_| courtesy.hear_release());
    assert!(!courtesy.is_over());
    courtesy.hear_release();
    assert!(courtesy.is_over());
}

#[test]
fn lost_message_is_due_until_the_client_listens_anew() {
    let mut courtesy = Courtesy::default();
    courtesy.begin_release();
    courtesy.released(audience(true, true), DrivenClock::START);
    courtesy.listen_anew();
    courtesy.begin_release();
    courtesy.released(audience(true, true), DrivenClock::START);
    courtesy.hear_release();
    assert!(!courtesy.is_over());
    courtesy.hear_release();
    assert!(courtesy.is_over());
}
