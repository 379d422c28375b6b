//! The protocol over a cluster: for each call the protocol over the [one server](Single) that has the
//! slot of the lock, wherever it is at the moment.
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

mod listener;

use std::time::Duration;

use crate::base::id::{Holder, Identity};
use crate::base::option::{Copies, Least, ReleaseKind};
use crate::base::sync::Arc;
use crate::base::tag::hash_slot;
use crate::base::time::Moment;
use crate::protocol::cluster::listener::Choir;
use crate::protocol::single::Single;
use crate::protocol::{
    Answer, Applied, Attempt, Errand, GrantMessage, Listener, Protocol, Released, Return, Target,
    Told, Verdict, wake,
};
use crate::wire::Pipeline;
use crate::wire::cluster::{Aside, Cluster as Nodes, Directory};
use crate::wire::failure::Failure;
use crate::wire::relay::Wishes;
use crate::wire::script::Call;

/// Locks in a cluster, on behalf of one client.
#[derive(Debug)]
pub(crate) struct Cluster {
    nodes: Nodes,
    identity: Arc<Identity>,
    wishes: Arc<Wishes>,
}

impl Cluster {
    pub(crate) fn new(directory: Directory, identity: Arc<Identity>) -> Cluster {
        Cluster { nodes: Nodes::new(directory), identity, wishes: Arc::default() }
    }

    /// Makes sure that the cluster serves this user.
    pub(crate) fn check(&self, deadline: Moment) -> Result<(), Failure> {
        self.nodes.check(deadline)
    }

    /// Sends a message to a thread that listens: to that at the node that has a slot, if one is named.
    fn nudge(&self, slot: Option<u16>, deadline: Moment) -> Result<(), Failure> {
        let channel = wake::client_channel(&self.identity);
        let call = Call::plain(&[b"PUBLISH", &channel, wake::NUDGE]);
        self.nodes.anywhere(slot, deadline, |node| node.call(&call, deadline).map(drop))
    }

    /// Does something by the protocol over the one server that has the lock.
    fn at<T>(
        &self,
        target: &Target,
        aside: Aside,
        deadline: Moment,
        call: impl Fn(&Single) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.nodes.follow(hash_slot(target.key()), aside, deadline, |transport, asking| {
            let single = Single::new(Arc::clone(transport), Arc::clone(&self.identity));
            call(&if asking { single.asking() } else { single })
        })
    }
}

impl Protocol for Cluster {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn is_sharded(&self) -> bool {
        true
    }

    fn acquire(
        &self,
        target: &Target,
        attempt: &Attempt<'_>,
        deadline: Moment,
    ) -> Result<Answer, Failure> {
        self.at(target, Aside::Follow, deadline, |node| node.acquire(target, attempt, deadline))
    }

    fn release(
        &self,
        target: &Target,
        returned: &Return<'_>,
        deadline: Moment,
    ) -> Result<Released, Failure> {
        // Leave to ask is for one command, and WATCH needs several.
        let aside = if returned.how == ReleaseKind::Watch { Aside::Wait } else { Aside::Follow };
        self.at(target, aside, deadline, |node| node.release(target, returned, deadline))
    }

    fn extend(
        &self,
        target: &Target,
        owner: &[u8],
        ttl: Duration,
        count: u32,
        deadline: Moment,
    ) -> Result<Told, Failure> {
        self.at(target, Aside::Follow, deadline, |node| {
            node.extend(target, owner, ttl, count, deadline)
        })
    }

    fn replicate(
        &self,
        target: &Target,
        owner: &[u8],
        copies: Copies,
        deadline: Moment,
    ) -> Result<Result<Least, Verdict>, Failure> {
        self.at(target, Aside::Wait, deadline, |node| {
            node.replicate(target, owner, copies, deadline)
        })
    }

    fn run(&self, errands: &[Errand<'_>], deadline: Moment) -> Vec<Result<Told, Failure>> {
        let slot = |number: usize| hash_slot(errands[number].target.key());
        let replies =
            self.nodes.call_all(errands.len(), slot, |number| errands[number].call(), deadline);
        replies
            .into_iter()
            .enumerate()
            .map(|(number, reply)| {
                let told = errands[number].read(&reply?);
                told.inspect_err(|_| self.nodes.distrust(slot(number)))
            })
            .collect()
    }

    fn holder(&self, target: &Target, deadline: Moment) -> Result<Option<Holder>, Failure> {
        self.at(target, Aside::Follow, deadline, |node| node.holder(target, deadline))
    }

    fn force_release(
        &self,
        target: &Target,
        owner: &[u8],
        deadline: Moment,
    ) -> Result<bool, Failure> {
        self.at(target, Aside::Follow, deadline, |node| node.force_release(target, owner, deadline))
    }

    fn apply(
        &self,
        target: &Target,
        owner: &[u8],
        pipeline: &Pipeline,
        deadline: Moment,
    ) -> Result<Applied, Failure> {
        // A node that lacks one of the user's keys may have the lock all the same.
        self.at(target, Aside::Wait, deadline, |node| node.apply(target, owner, pipeline, deadline))
    }

    fn request_release(&self, target: &Target, deadline: Moment) -> Result<bool, Failure> {
        self.at(target, Aside::Follow, deadline, |node| node.request_release(target, deadline))
    }

    fn listen(&self) -> Result<Box<dyn Listener>, Failure> {
        let channel = wake::client_channel(&self.identity);
        Ok(Box::new(Choir::new(self.nodes.directory(), channel, &self.wishes)?))
    }

    /// The threads that listen wait for a message, so they are sent one.
    fn listen_to(&self, channel: &[u8], deadline: Moment) -> Result<(), Failure> {
        self.wishes.add(channel);
        self.nudge(Some(hash_slot(channel)), deadline)
    }

    fn nudge_listener(&self, deadline: Moment) -> Result<(), Failure> {
        self.nudge(None, deadline)
    }

    fn not_before(&self, _grant: &GrantMessage, _now: Moment) -> Option<Moment> {
        None
    }
}
