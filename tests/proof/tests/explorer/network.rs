//! What is under way between clients and the server: a bag, from which anything may come next.
//!
//! A real connection keeps its order; the bag allows more, which can only find more. It is kept
//! sorted, so that two ways to the same bag are one state.

use crate::protocol::{Reply, Request, Wake};

/// Who of a client waits for a reply; one at most each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Line {
    /// The thread that acquires or releases.
    Thread,
    /// The worker's renewal.
    Renewal,
    /// The holder's own extension.
    Extension,
    /// The worker giving back an attempt.
    PendingRelease(u8),
    /// Nobody any longer: it timed out, or its connection broke.
    Nobody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Load {
    Request(Line, Request),
    Reply(Line, Reply),
    Push(Wake),
}

/// One message: whose it is (the sender of a request, the receiver of all else).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Message {
    pub(crate) client: u8,
    pub(crate) load: Load,
    /// Whether time may pass before it arrives.
    pub(crate) delayed: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Network(Vec<Message>);

impl Network {
    pub(crate) fn all(&self) -> &[Message] {
        &self.0
    }

    pub(crate) fn send(&mut self, client: u8, load: Load) {
        self.put(Message { client, load, delayed: false });
    }

    pub(crate) fn put(&mut self, message: Message) {
        let at = self.0.partition_point(|other| *other < message);
        self.0.insert(at, message);
    }

    pub(crate) fn take(&mut self, index: usize) -> Message {
        self.0.remove(index)
    }

    pub(crate) fn drop_if(&mut self, unwanted: impl Fn(&Message) -> bool) {
        self.0.retain(|message| !unwanted(message));
    }

    /// Nobody waits for this reply any longer. The request may still reach the server.
    pub(crate) fn abandon(&mut self, client: u8, line: Line) {
        let mine = |message: &Message| message.client == client;
        self.0.retain(|message| {
            !(mine(message) && matches!(message.load, Load::Reply(of, _) if of == line))
        });
        for message in &mut self.0 {
            if message.client == client
                && let Load::Request(of, _) = &mut message.load
                && *of == line
            {
                *of = Line::Nobody;
            }
        }
        self.0.sort_unstable();
    }
}
