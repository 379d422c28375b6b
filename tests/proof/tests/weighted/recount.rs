//! A sum that is too high because somebody has taken a holder out by hand (rule 24).

use crate::lab::{Lab, on_both, permits, reader, upgradable, writer};
use crate::request::{ALL, Attempt, Become, LOCK, Mode, Reply};

/// What an operator does who knows no better.
fn take_out(lab: &mut Lab, attempt: Attempt) {
    lab.ask(&["ZREM", LOCK, &attempt.text()]);
}

#[track_caller]
fn is_granted(reply: &Reply, slots: &[u32]) {
    match reply {
        Reply::Granted { slots: granted, .. } => assert_eq!(granted, slots),
        other => panic!("{other:?}"),
    }
}

#[test]
pub(crate) fn refusal_counts_the_holders_again() {
    on_both(2, |lab| {
        lab.take(permits(0, 2));
        lab.wait(permits(1, 1));
        lab.wait(permits(2, 1));
        take_out(lab, permits(0, 2));
        lab.messages();
        // One of those who wait asks, and all who fit are served.
        is_granted(&lab.acquire(permits(2, 1), Mode::Beat), &[1]);
        assert_eq!(lab.granted(), [(1, 1)]);
        assert_eq!(lab.content().used, 2);
        // The same where nobody waits, and for what is held beside.
        take_out(lab, permits(1, 1));
        is_granted(&lab.acquire(permits(3, 1), Mode::Try), &[0]);
        assert!(matches!(lab.acquire(permits(4, 1), Mode::Join), Reply::Busy { .. }));
        // The one that was taken out has nothing to give back.
        assert_eq!(lab.release(permits(1, 1)), Reply::NotHeld);
        assert_eq!(lab.waiting(), 1);
        lab.release(permits(3, 1));
        assert_eq!(lab.content().used, 2);
    });
}

/// Weights are what changes have made of them.
#[test]
pub(crate) fn weights_are_counted_as_they_were_changed() {
    on_both(ALL, |lab| {
        lab.take(upgradable(0));
        assert!(matches!(lab.change(upgradable(0), 1, Become::Writer), Reply::Changed { .. }));
        // A writer that asked for less is no reader.
        for mode in [Mode::Try, Mode::Join, Mode::Beat] {
            assert!(matches!(lab.acquire(reader(1), mode), Reply::Busy { .. }), "{mode:?}");
        }
        lab.change(upgradable(0), 2, Become::Reader);
        lab.take(reader(2));
        lab.wait(writer(3));
        lab.messages();
        take_out(lab, reader(2));
        assert!(matches!(lab.acquire(writer(3), Mode::Beat), Reply::Busy { .. }));
        // That one has counted: what is left is the weight of those that hold.
        assert_eq!(lab.content().used, 2, "readers 0 and 1");
        lab.release(upgradable(0));
        lab.release(reader(1));
        assert_eq!(lab.granted(), [(3, 1)]);
    });
}

/// The change of a holder that was taken out goes with it.
#[test]
pub(crate) fn upgrade_counts_the_holders_again() {
    on_both(ALL, |lab| {
        lab.take(writer(0));
        lab.change(writer(0), 1, Become::Reader);
        lab.take(upgradable(1));
        assert!(matches!(lab.change(upgradable(1), 1, Become::Writer), Reply::Busy { .. }));
        take_out(lab, writer(0));
        let reply = lab.change(upgradable(1), 1, Become::StillWriter);
        assert!(matches!(reply, Reply::Changed { token: 1.., .. }), "{reply:?}");
        lab.release(upgradable(1));
    });
}

/// A script looks at so many holders at most, and a sum that it has not counted stays.
#[test]
pub(crate) fn sum_of_more_than_64_holders_stays() {
    on_both(140, |lab| {
        let holder = |number| Attempt { number, ..permits(0, 2) };
        for number in 1..=70 {
            lab.take(holder(number));
        }
        assert!(matches!(lab.acquire(permits(1, 1), Mode::Try), Reply::Busy { .. }));
        assert_eq!(lab.content().used, 140);
        for number in 65..=70 {
            lab.release(holder(number));
        }
        take_out(lab, holder(1));
        let free: Vec<u32> = [0, 1].into_iter().chain(128..140).collect();
        is_granted(&lab.acquire(permits(2, 14), Mode::Try), &free);
    });
}

/// So many it does look at.
#[test]
pub(crate) fn sum_of_64_holders_is_counted_again() {
    on_both(130, |lab| {
        let holder = |number| Attempt { number, ..permits(0, 2) };
        for number in 1..=65 {
            lab.take(holder(number));
        }
        take_out(lab, holder(1));
        is_granted(&lab.acquire(permits(1, 2), Mode::Try), &[0, 1]);
        assert_eq!(lab.content().used, 130);
    });
}

#[test]
pub(crate) fn sum_is_mended_when_memory_is_full() {
    on_both(1, |lab| {
        lab.take(permits(0, 1));
        lab.wait(permits(1, 1));
        take_out(lab, permits(0, 1));
        lab.fill(true);
        is_granted(&lab.acquire(permits(1, 1), Mode::Beat), &[0]);
        lab.fill(false);
    });
}
