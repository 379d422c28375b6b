//! Slots of permits (rule 29).

use std::collections::BTreeSet;

use crate::lab::{on_both, permits};
use crate::request::{Attempt, Message, Reply, Says, Weight};

#[test]
pub(crate) fn lowest_free_slots_are_given() {
    on_both(8, |lab| {
        for (client, count) in [(0, 2), (1, 1), (2, 2), (3, 1)] {
            lab.take(permits(client, count));
        }
        // 0 and 1, 2, 3 and 4, 5.
        lab.release(permits(1, 1));
        lab.release(permits(3, 1));
        assert_eq!(lab.take(permits(4, 3)).1, [2, 5, 6]);
        lab.release(permits(0, 2));
        assert_eq!(lab.take(permits(5, 3)).1, [0, 1, 7]);
    });
}

#[test]
pub(crate) fn slot_given_by_a_message_is_a_free_one() {
    on_both(2, |lab| {
        lab.take(permits(0, 1));
        lab.take(permits(1, 1));
        lab.wait(permits(2, 1));
        lab.messages();
        lab.release(permits(0, 1));
        let [Message { says: Says::Granted { slots, .. }, .. }] = &lab.messages()[..] else {
            panic!("one message")
        };
        assert_eq!(slots, &[0]);
    });
}

/// At random, against a set of numbers.
#[test]
pub(crate) fn slots_are_the_lowest_free_ones_in_any_order() {
    on_both(40, |lab| {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut held: Vec<(Attempt, Vec<u32>)> = Vec::new();
        for number in 1..200 {
            let count = rng.u16(1..5);
            let attempt = Attempt { number, weight: Weight::Permits(count), ..permits(0, 1) };
            let busy: BTreeSet<u32> = held.iter().flat_map(|(_, slots)| slots.clone()).collect();
            if busy.len() + usize::from(count) <= 40 {
                let (_, slots) = lab.take(attempt);
                let free = (0..40).filter(|slot| !busy.contains(slot));
                assert_eq!(slots, free.take(count.into()).collect::<Vec<u32>>());
                held.push((attempt, slots));
            }
            if held.len() > 8 || (rng.bool() && !held.is_empty()) {
                let (attempt, _) = held.swap_remove(rng.usize(..held.len()));
                assert_eq!(lab.release(attempt), Reply::Done(0));
            }
        }
    });
}

#[test]
pub(crate) fn a_thousand_permits_at_once_are_possible() {
    on_both(2_000, |lab| {
        lab.take(permits(0, 1));
        lab.take(permits(1, 1));
        lab.release(permits(0, 1));
        let (_, slots) = lab.take(permits(2, 1_000));
        assert_eq!((slots[0], slots[1], slots[999]), (0, 2, 1_000));
        assert!(matches!(
            lab.acquire(permits(2, 1_000), crate::request::Mode::Join),
            Reply::Granted { slots: again, .. } if again == slots
        ));
        assert_eq!(lab.release(permits(2, 1_000)), Reply::Done(0));
        assert_eq!(lab.content().used, 1);
    });
}
