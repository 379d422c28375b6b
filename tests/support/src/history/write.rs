//! C3: no fenced write is corrupt.

use super::event::What;
use super::{History, Violation};

/// Checks that each write the resource accepted was made from what was there: one more than before,
/// so that no write was lost.
pub fn c3(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for event in history.events() {
        let What::Accepted(touches) = &event.what else { continue };
        let mut value = 0;
        for touch in touches {
            let due = value + u64::from(touch.wrote);
            if touch.value != due {
                let (lock, at) = (event.lock, touch.at);
                let text = format!(
                    "lock {lock}: {} was written at {at} with token {}, where {due} was due",
                    touch.value, touch.token
                );
                found.push(Violation::new("C3", text));
            }
            value = touch.value;
        }
    }
    found
}

/// Counts critical sections that overlapped in fact: one was still at work when the next was let
/// in. A pause longer than the lease does that, and the token is what protects then; so it is
/// reported and is no violation.
pub fn raw_overlaps(history: &History) -> usize {
    let mut count = 0;
    for lock in history.locks() {
        let mut sections: Vec<(u64, u64)> = history
            .holds()
            .filter(|hold| hold.lock == lock)
            .filter_map(|hold| {
                let (begin, _) = hold.entered.filter(|(_, accepted)| *accepted)?;
                Some((begin, hold.wrote.map_or(begin, |(at, _)| at)))
            })
            .collect();
        sections.sort_unstable();
        count += sections.windows(2).filter(|pair| pair[0].1 > pair[1].0).count();
    }
    count
}

#[cfg(test)]
mod tests {
    use super::super::call::doctored::{MS, clean, history};
    use super::*;

    fn with_touch(place: usize, new: u64) -> History {
        let mut events = clean();
        for event in &mut events {
            if let What::Accepted(touches) = &mut event.what {
                touches[place].value = new;
            }
        }
        history(events)
    }

    #[test]
    fn a_write_made_from_an_old_number_is_found() {
        assert_eq!(c3(&history(clean())), []);
        // The second write again writes 1: the first is lost.
        let found = c3(&with_touch(3, 1));
        assert!(found[0].text.contains("1 was written"), "{found:?}");
        assert!(!c3(&with_touch(19, 11)).is_empty());
    }

    #[test]
    fn overlapping_sections_are_counted_not_reported() {
        assert_eq!(raw_overlaps(&history(clean())), 0);
        let mut events = clean();
        for event in events.iter_mut().filter(|event| event.call == 2) {
            if let What::Wrote { .. } = event.what {
                event.at += 15 * MS;
            }
        }
        let history = history(events);
        assert_eq!((raw_overlaps(&history), c3(&history).len()), (1, 0));
    }
}
