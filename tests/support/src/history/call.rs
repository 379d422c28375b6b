//! The events of one call, from its beginning to the end of its hold.

use std::collections::BTreeMap;

use super::event::{Event, Outcome, What};

/// The end of a call without a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Another holder had it.
    Busy,
    /// With an error.
    Failed(Outcome),
}

/// A time in which a hold was not valid, and could come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// The end of its validity, as far as was known.
    pub from: u64,
    /// When it was valid again, or at least still the owner in Redis; `None` if it never was.
    pub to: Option<u64>,
}

/// One call for a lock and, if it was granted, its hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The caller: process, thread, number of the call in the thread.
    pub who: (u32, u32, u64),
    /// The lock, by name.
    pub lock: u32,
    /// When it began.
    pub invoked: u64,
    /// How long it may take, in ns.
    pub budget: u64,
    /// Whether it waits in line.
    pub waits: bool,
    /// When it returned.
    pub returned: Option<u64>,
    /// How, if it was not granted.
    pub ended: Option<Ended>,
    /// The token, if it was granted.
    pub token: Option<u64>,
    /// The moment that the hold was known to be valid until when it was granted.
    pub first_valid_until: u64,
    /// The last moment that it was known to be valid until.
    pub valid_until: u64,
    /// When it was silent, in order.
    pub silences: Vec<Silence>,
    /// When the loss was signalled.
    pub lost: Option<u64>,
    /// When the release began, whether the hold was valid just before, and how long it may take.
    pub releasing: Option<(u64, bool, u64)>,
    /// When it ended and how.
    pub released: Option<(u64, Outcome)>,
    /// When the resource let it in or did not.
    pub entered: Option<(u64, bool)>,
    /// When the resource took its write or did not.
    pub wrote: Option<(u64, bool)>,
    /// The entry added to the list of the lock, and the reported outcome.
    pub transacted: Option<(u64, u64, Outcome)>,
    /// When nothing of it went on any more.
    pub over: Option<u64>,
}

impl Call {
    fn new(event: &Event, budget: u64, waits: bool) -> Self {
        Self {
            who: (event.process, event.thread, event.call),
            lock: event.lock,
            invoked: event.at,
            budget,
            waits,
            returned: None,
            ended: None,
            token: None,
            first_valid_until: 0,
            valid_until: 0,
            silences: Vec::new(),
            lost: None,
            releasing: None,
            released: None,
            entered: None,
            wrote: None,
            transacted: None,
            over: None,
        }
    }

    fn add(&mut self, at: u64, what: &What) {
        match what {
            What::Granted { token, valid_until } => {
                (self.returned, self.token) = (Some(at), Some(*token));
                (self.first_valid_until, self.valid_until) = (*valid_until, *valid_until);
            }
            What::Silent => {
                let from = self.valid_until.min(at);
                self.silences.push(Silence { from, to: None });
            }
            What::Valid { until } => {
                self.came_back(at);
                self.valid_until = self.valid_until.max(*until);
            }
            What::Busy => self.end(at, Ended::Busy),
            What::Failed(outcome) => self.end(at, Ended::Failed(*outcome)),
            What::Entered { accepted, .. } => self.entered = Some((at, *accepted)),
            What::Wrote { accepted, .. } => self.wrote = Some((at, *accepted)),
            What::Transacted { id, outcome } => self.transacted = Some((at, *id, *outcome)),
            What::Releasing { valid, budget } => {
                if *valid {
                    self.came_back(at);
                }
                self.releasing = Some((at, *valid, *budget));
            }
            What::Released(outcome) => {
                // The release has found it the owner.
                if let (Outcome::Done, Some((begun, ..))) = (outcome, self.releasing) {
                    self.came_back(begun);
                }
                (self.released, self.over) = (Some((at, *outcome)), Some(at));
            }
            _ => {}
        }
    }

    fn came_back(&mut self, at: u64) {
        if let Some(silence) = self.silences.last_mut().filter(|silence| silence.to.is_none()) {
            silence.to = Some(at);
        }
    }

    fn end(&mut self, at: u64, how: Ended) {
        (self.returned, self.ended, self.over) = (Some(at), Some(how), Some(at));
    }

    /// The validity window of a hold: from the grant known to the first of release, end of validity
    /// and loss signal. `None` if it was not granted.
    pub fn window(&self) -> Option<(u64, u64)> {
        self.token?;
        let begin = self.returned?;
        // A renewed lease may have been valid for longer than was noted.
        let end = match self.releasing {
            Some((at, true, _)) => at,
            Some((at, false, _)) => at.min(self.valid_until),
            None => self.valid_until,
        };
        Some((begin, end.min(self.lost.unwrap_or(u64::MAX)).max(begin)))
    }

    /// The windows in which it was valid, one after the other: its [`window`](Self::window) without its silences.
    pub fn windows(&self) -> Vec<(u64, u64)> {
        let Some((mut begin, end)) = self.window() else { return Vec::new() };
        let mut windows = Vec::new();
        for (from, to) in self.returns() {
            windows.push((begin, from.min(end)));
            begin = to;
        }
        windows.push((begin, end));
        windows.retain(|(begin, end)| begin < end);
        windows
    }

    /// The silences from which it came back.
    pub(crate) fn returns(&self) -> impl Iterator<Item = (u64, u64)> {
        self.silences.iter().filter_map(|silence| Some((silence.from, silence.to?)))
    }

    /// The caller, for people.
    pub(crate) fn shown(&self) -> String {
        let (process, thread, call) = self.who;
        let token = self.token.map_or(String::new(), |token| format!(" token {token}"));
        format!("lock {} process {process} thread {thread} call {call}{token}", self.lock)
    }
}

/// Puts the events of each call together.
pub(crate) fn assemble(events: &[Event]) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut places = BTreeMap::new();
    let mut tokens = BTreeMap::new();
    for event in events {
        let who = (event.process, event.thread, event.call);
        match &event.what {
            What::Invoked { budget, waits } => {
                places.insert(who, calls.len());
                calls.push(Call::new(event, *budget, *waits));
            }
            // Another thread reports it, by the token.
            What::Lost { token } => {
                let place = tokens.get(&(event.process, event.lock, *token));
                if let Some(call) = place.and_then(|&place: &usize| calls.get_mut(place)) {
                    call.lost = Some(call.lost.unwrap_or(event.at).min(event.at));
                }
            }
            what => {
                let Some(&place) = places.get(&who) else { continue };
                calls[place].add(event.at, what);
                if let What::Granted { token, .. } = what {
                    tokens.insert((event.process, event.lock, *token), place);
                }
            }
        }
    }
    calls
}

#[cfg(test)]
pub(crate) mod doctored {
    //! Histories as they should be, to spoil.

    use super::*;
    use crate::history::{History, Touch};

    pub(crate) const MS: u64 = 1_000_000;

    pub(crate) fn event(at: u64, process: u32, call: u64, what: What) -> Event {
        Event { at: at * MS, process, thread: 0, call, lock: 0, what }
    }

    /// A hold of 10 ms, requested 10 ms before, and valid for 100 ms.
    pub(crate) fn hold(at: u64, process: u32, call: u64, token: u64) -> Vec<Event> {
        let event = |at, what| event(at, process, call, what);
        vec![
            event(at - 10, What::Invoked { budget: 50 * MS, waits: true }),
            event(at, What::Granted { token, valid_until: (at + 100) * MS }),
            event(at + 1, What::Entered { token, accepted: true }),
            event(at + 9, What::Wrote { token, accepted: true }),
            event(at + 10, What::Releasing { valid: true, budget: 50 * MS }),
            event(at + 11, What::Released(Outcome::Done)),
        ]
    }

    /// Ten holds, one after the other, by two processes in turn, and the writes that the resource
    /// accepted.
    pub(crate) fn clean() -> Vec<Event> {
        let holds = (0..10).flat_map(|number| {
            let process = 1 + u32::from(number % 2 == 1);
            hold(20 * number + 20, process, number, 100 + number)
        });
        let touches = (0..10).flat_map(|number| {
            let touch = |at, value, wrote| Touch { at: at * MS, token: 100 + number, value, wrote };
            let at = 20 * number + 20;
            [touch(at + 1, number, false), touch(at + 9, number + 1, true)]
        });
        let accepted = event(900, 0, 0, What::Accepted(touches.collect()));
        holds.chain([accepted]).collect()
    }

    pub(crate) fn history(events: Vec<Event>) -> History {
        History::new(events)
    }

    #[test]
    fn a_clean_history_passes_all_checkers() {
        let history = history(clean());
        assert_eq!(history.holds().count(), 10);
        assert_eq!(history.check(), []);
        assert_eq!(history.contended(), 9);
    }
}
