//! What callers and the threads that listen share: the servers, the channels, and which of them are heard.

use std::collections::HashMap;

use crate::base::sync::{Arc, Weak};
use crate::base::time::Moment;
use crate::protocol::wake_message::Publisher;
use crate::wire::failure::Failure;

/// Waits for releases that are published on a channel: a slot.
pub(crate) trait ReleaseListener: Send + Sync {
    /// Whether anybody waits here.
    fn has_waiters(&self) -> bool;

    /// Somebody released the lock, perhaps this process.
    fn on_release(&self);

    /// The client listens for releases anew.
    fn on_resubscribe(&self);

    /// Makes the acquirer ask again at once.
    fn request_retry(&self);
}

#[derive(Default)]
pub(super) struct State {
    /// By which version of the publishers these are the servers; `None` before anybody waited.
    pub(super) seen: Option<u64>,
    pub(super) servers: Vec<ServerState>,
    /// How many servers there were so far.
    pub(super) count: u64,
    /// Why this user may not listen, if so, and how often that was tried again because somebody waits.
    pub(super) refused: Option<Failure>,
    pub(super) retries: u64,
    pub(super) channels: HashMap<Vec<u8>, Channel>,
    /// Grows with every wish for a channel, and every one that ends.
    pub(super) wishes: u64,
    /// When the channels were last looked through for those that nobody waits at.
    pub(super) swept: Moment,
}

/// One server that is listened to.
pub(super) struct ServerState {
    pub(super) number: u64,
    pub(super) publisher: Arc<dyn Publisher>,
    pub(super) link: ServerLink,
    /// Whether something may be said there before it is heard, of which no other tells.
    pub(super) late: bool,
    /// The channels it was asked for on this connection: by which wish, and its reply.
    pub(super) asked: HashMap<Vec<u8>, (u64, SubscribeReply)>,
    /// The versions of the wishes and of the publishers by which it was asked.
    pub(super) seen: Option<(u64, u64)>,
}

/// Whether the client's own channel is heard at a server.
pub(super) enum ServerLink {
    Connecting,
    Listening,
    Down(Failure),
}

/// A server's reply about a channel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SubscribeReply {
    Due,
    Confirmed,
    Refused,
}

/// A channel on which releases are published.
pub(super) struct Channel {
    /// The slots that wait there. Locks may share a channel: `orders` and `{orders}` do.
    pub(super) slots: Vec<Weak<dyn ReleaseListener>>,
    pub(super) state: ChannelState,
    /// Tells the present wish for it from an earlier one.
    pub(super) wish: u64,
    /// Whether it was heard before and has not been since.
    pub(super) missed: bool,
}

pub(super) enum ChannelState {
    Wished,
    Confirmed,
    Refused(Failure),
}

impl State {
    pub(super) fn server(&mut self, number: u64) -> Option<&mut ServerState> {
        self.servers.iter_mut().find(|server| server.number == number)
    }

    /// Wishes for a channel that a slot waits at, `anew` where it was refused before: the user may be allowed to
    /// listen there by now.
    pub(super) fn wish<S>(&mut self, name: &[u8], slot: &Arc<S>, anew: bool) -> &ChannelState
    where
        S: ReleaseListener + 'static,
    {
        let State { channels, wishes, .. } = self;
        let channel = channels.entry(name.to_vec()).or_insert_with(Channel::new);
        let is_refused = matches!(channel.state, ChannelState::Refused(_));
        if channel.slots.is_empty() || anew && is_refused {
            *wishes += 1;
            (channel.state, channel.wish) = (ChannelState::Wished, *wishes);
        }
        let slot: Weak<dyn ReleaseListener> = Arc::<S>::downgrade(slot);
        if !channel.slots.iter().any(|other| other.ptr_eq(&slot)) {
            channel.slots.push(slot);
        }
        &channel.state
    }

    /// How many of the servers that have a channel gave a reply to the present wish for it, and how many
    /// have it.
    pub(super) fn replies(&self, name: &[u8], wish: u64, reply: SubscribeReply) -> (usize, usize) {
        let able = || self.servers.iter().filter(|server| server.publisher.serves(name));
        let replied = able().filter(|server| server.asked.get(name) == Some(&(wish, reply)));
        (replied.count(), able().count())
    }

    pub(super) fn listening(&self) -> usize {
        self.servers.iter().filter(|server| matches!(server.link, ServerLink::Listening)).count()
    }

    /// No channel is heard any more.
    pub(super) fn forget(&mut self) {
        for channel in self.channels.values_mut() {
            channel.missed |= matches!(channel.state, ChannelState::Confirmed);
            channel.state = ChannelState::Wished;
        }
    }
}

impl Channel {
    fn new() -> Channel {
        Channel { slots: Vec::new(), state: ChannelState::Wished, wish: 0, missed: false }
    }

    /// The slots that exist. The caller drops them when the state is unlocked, since it may hold the last
    /// reference to one.
    pub(super) fn waiters(&self) -> Vec<Arc<dyn ReleaseListener>> {
        self.slots.iter().filter_map(Weak::upgrade).collect()
    }
}
