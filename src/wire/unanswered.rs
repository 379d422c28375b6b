//! The commands about channels whose replies are due.
//!
//! A confirmation names its channel, a refusal does not. Replies come in the order of the commands, so a
//! refusal is about the oldest of them. A channel may be left and asked for anew before the first
//! confirmation comes: only the reply to the last command about a channel says whether it is heard.

use std::collections::VecDeque;

use crate::wire::script::Call;

pub(super) const SUBSCRIBE: &[u8] = b"SUBSCRIBE";
pub(super) const UNSUBSCRIBE: &[u8] = b"UNSUBSCRIBE";

/// A command about a channel.
#[derive(Debug, PartialEq, Eq)]
struct Command {
    verb: &'static [u8],
    channel: Vec<u8>,
}

impl Command {
    fn pack(&self) -> Vec<u8> {
        Call::plain(&[self.verb, &self.channel]).pack()
    }
}

/// The commands about channels that are neither confirmed nor refused.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    /// In the order of sending…
    commands: VecDeque<Command>,
    /// …and how many of them were sent before the last question.
    before_question: usize,
}

impl Unanswered {
    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// A command is to be sent. Returns it packed.
    pub(super) fn add(&mut self, verb: &'static [u8], channel: &[u8]) -> Vec<u8> {
        let command = Command { verb, channel: channel.to_vec() };
        let packed = command.pack();
        self.commands.push_back(command);
        packed
    }

    /// A question is sent, to which there is a reply of its own.
    pub(super) fn ask(&mut self) {
        self.before_question = self.commands.len();
    }

    /// A command is confirmed. Returns whether that was the last about its channel.
    pub(super) fn confirm(&mut self, verb: &[u8], channel: &[u8]) -> bool {
        let is_it = |command: &Command| command.verb == verb && command.channel == channel;
        // A repeated command may be confirmed twice.
        if let Some(place) = self.commands.iter().position(is_it) {
            self.remove(place);
        }
        !self.commands.iter().any(|command| command.channel == channel)
    }

    /// The oldest command is refused. Returns its channel.
    pub(super) fn refuse(&mut self) -> Option<Vec<u8>> {
        self.remove(0).map(|command| command.channel)
    }

    fn remove(&mut self, place: usize) -> Option<Command> {
        let command = self.commands.remove(place)?;
        if place < self.before_question {
            self.before_question -= 1;
        }
        Some(command)
    }

    /// The question is answered. What was sent before and is still unanswered was refused, and the driver
    /// has skipped the refusal. Returns these commands packed; they are to be sent again.
    pub(super) fn answer(&mut self) -> Vec<u8> {
        let skipped = std::mem::take(&mut self.before_question);
        if mutated!("skipped-refusal-not-noticed") {
            return Vec::new();
        }
        let packed = self.commands.iter().take(skipped).flat_map(Command::pack).collect();
        self.commands.rotate_left(skipped);
        packed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confirmation_of_an_earlier_question_is_not_the_last() {
        let mut unanswered = Unanswered::default();
        for verb in [SUBSCRIBE, UNSUBSCRIBE, SUBSCRIBE] {
            unanswered.add(verb, b"x");
        }
        unanswered.add(SUBSCRIBE, b"y");
        assert!(!unanswered.confirm(SUBSCRIBE, b"x"));
        assert!(!unanswered.confirm(UNSUBSCRIBE, b"x"));
        assert!(unanswered.confirm(SUBSCRIBE, b"x"));
        assert!(unanswered.confirm(SUBSCRIBE, b"y") && unanswered.is_empty());
    }

    #[test]
    fn refusal_is_about_the_oldest_command() {
        let mut unanswered = Unanswered::default();
        for channel in [b"x", b"y", b"z"] {
            unanswered.add(SUBSCRIBE, channel);
        }
        assert!(unanswered.confirm(SUBSCRIBE, b"x"));
        assert_eq!(unanswered.refuse().as_deref(), Some(&b"y"[..]));
        assert_eq!(unanswered.refuse().as_deref(), Some(&b"z"[..]));
        assert_eq!(unanswered.refuse(), None);
    }

    #[test]
    fn skipped_refusals_are_repeated_behind_later_commands() {
        let mut unanswered = Unanswered::default();
        let first = unanswered.add(SUBSCRIBE, b"x");
        unanswered.ask();
        unanswered.add(SUBSCRIBE, b"y");
        assert_eq!(unanswered.answer(), first);
        assert_eq!(unanswered.refuse().as_deref(), Some(&b"y"[..]));
        assert_eq!(unanswered.refuse().as_deref(), Some(&b"x"[..]));
    }
}
