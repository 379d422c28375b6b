//! The backend that is a cluster: each call goes to the node that has the hash slot of the lock at that
//! moment.
//!
//! A call that a node refused is sent to another node, until its deadline. A call without a reply
//! is not. All keys of a lock are in one hash slot and move together: the first script after a move sees
//! what the last one before it left. During a move, most scripts do not run. Each script declares
//! one key that never exists, so that a node without the whole hash slot refuses the script as a whole.
//! Without that key, a script could fail half-way: at a queue that is gone because the script
//! itself removed the last waiter from it. Only renewals run during a move: what they touch exists
//! on one side or the other.
//!
//! The client [receives messages](listener) from all masters. But `PUBLISH` counts only the
//! subscribers at its own node. A grant in a message is dated from the last reply that found its
//! waiter still queued, because the message does not name the node whose clock it was written by; and it is believed only
//! if its time is one of the node that has the slot now.

pub(crate) mod address;
mod cluster_node;
mod directory;
mod hash_slot_map;
mod listener;
mod route;
#[cfg(test)]
mod tests;

use crate::base::error::Error;
use crate::base::glob::Glob;
use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::sync::Arc;
use crate::base::tag::{hash_slot, hashed};
use crate::base::time::Moment;
use crate::protocol::backend::{Backend, RoundTrips, Sending, TransportServer};
use crate::protocol::index::ScanPosition;
use crate::protocol::lock_kind::LockKind;
use crate::protocol::target::Target;
use crate::protocol::wake_message::{self, GrantMessage, Publishers};
use crate::topology::cluster::listener::ClusterPublishers;
use crate::wire::Value;
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

    /// Makes sure that the cluster serves this user. Any node can show that, since all have the
    /// same users.
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
        // The hash tags are compared, not the hash slots: two tags may share a hash slot by chance, and
        // whether a name works must not depend on that.
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
        keys: &[&[u8]],
        calls: &[Call],
        sending: Sending,
        deadline: Moment,
    ) -> Vec<Result<Reply, Failure>> {
        self.directory.call_all(calls, |number| hash_slot(keys[number]), sending, deadline)
    }

    fn scan(
        &self,
        position: &mut ScanPosition,
        pattern: &Glob,
        deadline: Moment,
    ) -> Result<Option<Value>, Failure> {
        let masters = self.directory.masters(deadline)?;
        let names: Vec<String> =
            masters.iter().map(|master| master.address().to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let Some(place) = position.choose(&names)? else { return Ok(None) };
        let reply = masters[place].transport()?.call(&position.call(pattern), deadline)?;
        Ok(Some(reply.value))
    }

    fn keep_worker_connections(&self, until: Moment) -> bool {
        let nodes = self.directory.nodes_of_callers();
        // Every node is told, even if an earlier one has no connection.
        let connected = nodes.iter().map(|node| node.keep_worker_connection(until));
        connected.filter(|has_one| !has_one).count() == 0
    }

    fn connect_worker(&self) {
        self.directory.nodes_of_callers().iter().for_each(|node| node.connect_worker());
    }

    fn discard_connections(&self, key: &[u8]) -> String {
        let Some(member) = self.directory.known_master(hash_slot(key)) else {
            return "a node of the cluster".to_owned();
        };
        member.discard_connections();
        member.address().to_string()
    }

    fn publishers(&self) -> Arc<dyn Publishers> {
        Arc::new(ClusterPublishers::new(&self.directory))
    }

    /// Sends a message to the thread that listens at the master of the channel's hash slot. It blocks on
    /// its socket, and finds the new channel when it wakes.
    fn listen_to(&self, channel: &[u8], deadline: Moment) -> Result<(), Failure> {
        let nudge = wake_message::wake_listener(&self.identity);
        let slot = hash_slot(channel);
        // Any node will do if that master is gone: nodes forward the message to all of the client's
        // threads, one of which then listens for that hash slot.
        self.directory
            .on_any_node(Some(slot), deadline, |node| node.call(&nudge, deadline).map(drop))
    }

    fn is_timed_by(&self, target: &Target, clock: u64) -> bool {
        let master = self.directory.known_master(hash_slot(target.key()));
        let known = master.and_then(|master| master.made_transport());
        known.is_none_or(|transport| transport.server_clock().number() == clock)
    }

    fn unbroken_since(&self, target: &Target) -> Moment {
        let master = self.directory.known_master(hash_slot(target.key()));
        let transport = master.and_then(|master| master.made_transport());
        transport.map_or(Moment::PAST, |it| it.server_clock().epochs().unbroken_since())
    }

    /// Dates a grant from the last request whose reply found the attempt still in the queue. The
    /// grant is newer than that, whichever node wrote it. But its lease ends by the clock of that node: the message is
    /// believed only if its time is one of the node that has the slot, by that node's last reading.
    fn granted_after(
        &self,
        target: &Target,
        grant: &GrantMessage,
        received: Moment,
        queued: Option<Moment>,
    ) -> Option<Moment> {
        let master = self.directory.known_master(hash_slot(target.key()))?;
        let transport = master.made_transport()?;
        queued.filter(|&sent| transport.server_clock().confirms(grant.micros, sent, received))
    }
}
