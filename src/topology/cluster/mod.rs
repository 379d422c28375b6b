//! The backend that is a cluster: each call goes to the node that has the slot of the lock, wherever it
//! is at the moment.
//!
//! What a server refused is asked of another, until the call's deadline; what brought no answer is
//! not. A lock has one slot, and its keys are moved together with it: its last scripts before a move
//! and the first ones after it see the same. In between there is none. Every script is told of one key
//! that is never there, so that a server that has not everything of the slot refuses the script as a
//! whole; without it, a script could fail half-way, at a key that is gone because the script itself took
//! the last out of it. Renewals alone go on: what they touch is there, on one side or the other.
//!
//! Messages are [heard](listener) at all masters, but who publishes is told only of those who listen at the
//! same. A grant by message is dated by when its waiter was last told to wait, as it does not tell by which
//! node's clock it was minted.

pub(crate) mod address;
mod cluster_node;
mod directory;
mod listener;
mod route;
mod slot_map;
#[cfg(test)]
mod tests;

use crate::base::error::Error;
use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::sync::Arc;
use crate::base::tag::{hash_slot, hashed};
use crate::base::time::Moment;
use crate::protocol::backend::{Backend, RoundTrips, TransportServer};
use crate::protocol::lock_kind::LockKind;
use crate::protocol::target::Target;
use crate::protocol::wake_message::{self, GrantMessage, Publishers};
use crate::topology::cluster::listener::ClusterPublishers;
use crate::wire::connection::Reply;
use crate::wire::failure::Failure;
use crate::wire::script::Call;

pub(crate) use crate::topology::multi_node::node::NodeSettings;
pub(crate) use directory::Directory;

/// A cluster, on behalf of one client.
#[derive(Debug)]
pub(crate) struct Cluster {
    directory: Arc<Directory>,
    identity: Arc<Identity>,
}

impl Cluster {
    pub(crate) fn new(directory: Directory, identity: Arc<Identity>) -> Cluster {
        Cluster { directory: Arc::new(directory), identity }
    }

    /// Makes sure that the cluster serves this user.
    pub(crate) fn check(&self, deadline: Moment) -> Result<(), Failure> {
        self.directory.on_any_node(None, deadline, |node| node.check(deadline))
    }
}

impl Backend for Cluster {
    type Server<'a> = TransportServer<'a>;

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn target(&self, kind: &'static dyn LockKind, name: Name) -> Arc<Target> {
        Target::in_cluster(kind, name)
    }

    fn check_keys(&self, name: &Name, keys: &[Vec<u8>]) -> Result<(), Error> {
        let slot = hashed(name.as_bytes());
        if keys.iter().all(|key| hashed(key) == slot) {
            return Ok(());
        }
        Err(Error::config(
            "name",
            format_args!("not all keys of {name:?} would be in one slot of a cluster"),
            "no braces but those around the hash tag, {tag}",
        ))
    }

    fn with_server<T>(
        &self,
        target: &Target,
        trips: RoundTrips,
        deadline: Moment,
        mut operation: impl FnMut(&TransportServer<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.directory.follow(hash_slot(target.key()), trips, deadline, |transport, asking| {
            operation(&TransportServer { transport, asking })
        })
    }

    fn call_many(
        &self,
        targets: &[&Target],
        calls: &[Call],
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        let slot = |number: usize| hash_slot(targets[number].key());
        self.directory.call_all(calls, slot, deadline)
    }

    fn discard_connections(&self, target: &Target) {
        if let Some(member) = self.directory.known_master(hash_slot(target.key())) {
            member.discard_connections();
        }
    }

    fn publishers(&self) -> Arc<dyn Publishers> {
        Arc::new(ClusterPublishers::new(&self.directory))
    }

    /// The threads that listen wait for a message, so one is sent to the thread at the node that has the
    /// slot of the channel.
    fn listen_to(&self, channel: &[u8], deadline: Moment) -> Result<(), Failure> {
        let nudge = wake_message::wake_listener(&self.identity);
        let slot = hash_slot(channel);
        self.directory
            .on_any_node(Some(slot), deadline, |node| node.call(&nudge, deadline).map(drop))
    }

    /// A grant does not tell by which node's clock it was made. It was made after the last request that
    /// found the attempt still in the queue.
    fn granted_after(
        &self,
        _grant: &GrantMessage,
        _received: Moment,
        queued: Option<Moment>,
    ) -> Option<Moment> {
        queued
    }
}
