//! Whether a client may still begin: made by one thread, and shut by another, which ends the program.

use std::sync::{Mutex, PoisonError};

/// The client goes through once it is made, unless the gate was shut before. Who shuts it has the client then, or knows
/// that none will come.
#[derive(Debug)]
pub(crate) struct Gate<T>(Mutex<State<T>>);

#[derive(Debug)]
enum State<T> {
    Open,
    Passed(T),
    Shut,
}

impl<T: Clone> Gate<T> {
    pub(crate) fn open() -> Gate<T> {
        Gate(Mutex::new(State::Open))
    }

    /// Lets it through. Returns whether it may go on.
    pub(crate) fn pass(&self, one: &T) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = matches!(*state, State::Open);
        if is_open {
            *state = State::Passed(one.clone());
        }
        is_open
    }

    /// Lets nothing through from now on. Returns what went through.
    pub(crate) fn shut(&self) -> Option<T> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, State::Shut) {
            State::Passed(one) => Some(one),
            State::Open | State::Shut => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_passes_a_shut_gate() {
        let gate = Gate::open();
        assert_eq!(gate.shut(), None);
        assert!(!gate.pass(&1));
        assert_eq!(gate.shut(), None);
    }

    #[test]
    fn what_has_passed_is_known_to_who_shuts() {
        let gate = Gate::open();
        assert!(gate.pass(&1) && !gate.pass(&2));
        assert_eq!(gate.shut(), Some(1));
        assert!(!gate.pass(&1));
    }
}
