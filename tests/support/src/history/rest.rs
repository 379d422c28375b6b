//! C5: every call has a verdict, and in the end nothing is left.

use super::event::What;
use super::{History, Violation};

/// Checks that every call returned and every hold was given back, unless its process was killed,
/// and that one lease after the end no key, queue entry or channel was left.
pub fn c5(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for call in history.calls() {
        if history.killed(call.who.0).is_some() {
            continue;
        }
        let missing = match (call.returned, call.token, call.released) {
            (None, ..) => "has no verdict",
            (Some(_), Some(_), None) => "was not given back",
            _ => continue,
        };
        found.push(Violation::new("C5", format!("{}: {missing}", call.shown())));
    }
    for event in history.events() {
        if let What::Left(left) = &event.what {
            let texts = left.iter().map(|what| format!("one lease later there is still {what}"));
            found.extend(texts.map(|text| Violation::new("C5", text)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::call::doctored::{clean, event, history};
    use super::*;

    #[test]
    fn call_without_an_outcome_and_endless_hold_are_found() {
        assert_eq!(c5(&history(clean())), []);
        for missing in [1, 5] {
            // The events of a hold: without those from here on.
            let mut events = clean();
            let mut seen = 0;
            events.retain(|event| {
                seen += usize::from(event.call == 6 && event.process == 1);
                !(event.call == 6 && event.process == 1 && seen > missing)
            });
            assert_eq!(c5(&history(events.clone())).len(), 1);
            events.push(event(900, 1, 0, What::Killed));
            assert_eq!(c5(&history(events)), []);
        }
    }

    #[test]
    fn leftover_key_is_found() {
        let mut events = clean();
        events.push(event(900, 0, 0, What::Left(vec!["key x".to_owned()])));
        assert_eq!(c5(&history(events)).len(), 1);
    }
}
