//! The state of the listener: the servers, the channels, and what is known about each.

use std::collections::{HashMap, HashSet};

use crate::base::sync::{Arc, Weak};
use crate::base::time::Moment;
use crate::protocol::wake_message::Publisher;
use crate::wire::failure::Failure;

/// A slot, as the listener sees it: it waits for releases that are published on a channel.
pub(crate) trait ReleaseListener: Send + Sync {
    /// Whether anybody waits here.
    fn has_waiters(&self) -> bool;

    /// A client released the lock, perhaps this one.
    fn on_release(&self);

    /// The client has subscribed to releases again.
    fn on_resubscribe(&self);

    /// Makes the acquirer ask again at once.
    fn request_retry(&self);
}

#[derive(Default)]
pub(super) struct State {
    /// The version of the publishers from which `servers` was made; `None` before anybody waited.
    pub(super) seen: Option<u64>,
    pub(super) servers: Vec<ServerState>,
    pub(super) scope: Scope,
    /// How many servers there were so far. A server that comes back gets a new number, so that the thread
    /// of its earlier time ends.
    pub(super) count: u64,
    /// Why this user may not listen, if that is so; and how often a waiter asked to try again.
    pub(super) refused: Option<Failure>,
    pub(super) retries: u64,
    /// How often a waiter has found that the client does not listen.
    pub(super) asked: u64,
    pub(super) channels: HashMap<Vec<u8>, Channel>,
    /// Grows with every wish for a channel and with every wish that ends, so that a thread sees by one
    /// number whether there is anything to do.
    pub(super) wishes: u64,
    /// When the channels were last swept.
    pub(super) swept: Moment,
}

/// Which servers are listened to.
#[derive(Debug, Default)]
pub(super) enum Scope {
    /// None yet.
    #[default]
    Nothing,
    /// Those that have these hash slots.
    Homes(HashSet<u16>),
    All,
}

impl Scope {
    /// Makes it all servers. Returns whether it was some.
    pub(super) fn widen(&mut self) -> bool {
        matches!(std::mem::replace(self, Scope::All), Scope::Homes(_))
    }

    /// Adds the server of a hash slot. Returns whether that changes anything.
    pub(super) fn add(&mut self, hash_slot: u16) -> bool {
        match self {
            Scope::Nothing => *self = Scope::Homes(HashSet::from([hash_slot])),
            Scope::Homes(slots) => return slots.insert(hash_slot),
            Scope::All => return false,
        }
        true
    }

    pub(super) fn has(&self, publisher: &dyn Publisher) -> bool {
        match self {
            Scope::Homes(slots) => slots.iter().any(|slot| publisher.is_home(*slot)),
            Scope::Nothing | Scope::All => true,
        }
    }
}

/// One server that is listened to.
pub(super) struct ServerState {
    pub(super) number: u64,
    pub(super) publisher: Arc<dyn Publisher>,
    pub(super) link: ServerLink,
    /// Whether it may have published messages that this client missed and no other server repeats.
    pub(super) late: bool,
    /// The channels that were requested on this connection: by which wish, and the reply.
    pub(super) asked: HashMap<Vec<u8>, (u64, SubscribeReply)>,
    /// The versions of the wishes and of the publishers for which that was last done.
    pub(super) seen: Option<(u64, u64)>,
}

/// Whether a server delivers the client's own channel.
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
    /// Distinguishes this wish from earlier ones for the channel, so that a late reply to one of those
    /// does not count.
    pub(super) wish: u64,
    /// Whether it was confirmed before and is not any more, so that messages may have been missed.
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

    /// Wishes for a channel at which a slot waits. With `anew` also one that was refused: the user may be
    /// allowed to listen there by now.
    pub(super) fn wish<S>(&mut self, name: &[u8], slot: &Arc<S>, anew: bool) -> &ChannelState
    where
        S: ReleaseListener + 'static,
    {
        let State { channels, wishes, .. } = self;
        let channel = channels.entry(name.to_vec()).or_insert_with(Channel::new);
        let is_refused = matches!(channel.state, ChannelState::Refused(_));
        // New, or wished for again after a sweep: a server may have confirmed it before, or be about to
        // leave it. With a new number each must confirm again, whatever is under way.
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

    /// Of the servers that have a channel: how many gave this reply to the wish, and how many there are.
    pub(super) fn replies(&self, name: &[u8], wish: u64, reply: SubscribeReply) -> (usize, usize) {
        let able = || self.servers.iter().filter(|server| server.publisher.serves(name));
        let replied = able().filter(|server| server.asked.get(name) == Some(&(wish, reply)));
        (replied.count(), able().count())
    }

    pub(super) fn listening(&self) -> usize {
        self.servers.iter().filter(|server| matches!(server.link, ServerLink::Listening)).count()
    }

    /// The client does not listen any more: no channel is confirmed.
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

    /// The slots that still exist. The caller drops them once the state is unlocked: it may have the last
    /// reference to one.
    pub(super) fn waiters(&self) -> Vec<Arc<dyn ReleaseListener>> {
        self.slots.iter().filter_map(Weak::upgrade).collect()
    }
}
