//! What may go wrong in a round: where, and what must hold then.

use std::time::Duration;

use crate::topology::Topology;
use crate::workload::Workload;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nemesis {
    Nothing,
    ConnectionsKilled,
    HolderStopped,
    HolderKilled,
    ScriptsFlushed,
    ServerStopped,
    /// The server is killed, and keeps all that it has replied to.
    ServerRestarted,
    KeyDeleted,
    Flushed,
    /// The server's clock is set forward, so that all leases end.
    ClockForward,
    ReplicaKilled,
    /// Sentinels make a replica the master because they are told to.
    Promoted,
    /// A replica takes the place of its master, having all that the master has.
    TakenOver,
    /// A replica takes the place of its master, which is dead.
    MasterKilled,
    /// A slot goes to another node, key by key.
    SlotMoved,
    /// Two of a quorum are killed, and come back empty.
    TwoKilled,
    /// One of a quorum is restarted, and comes back empty.
    OneRestarted,
}

impl Nemesis {
    pub(crate) const ALL: [Nemesis; 17] = [
        Nemesis::Nothing,
        Nemesis::ConnectionsKilled,
        Nemesis::HolderStopped,
        Nemesis::HolderKilled,
        Nemesis::ScriptsFlushed,
        Nemesis::ServerStopped,
        Nemesis::ServerRestarted,
        Nemesis::KeyDeleted,
        Nemesis::Flushed,
        Nemesis::ClockForward,
        Nemesis::ReplicaKilled,
        Nemesis::Promoted,
        Nemesis::TakenOver,
        Nemesis::MasterKilled,
        Nemesis::SlotMoved,
        Nemesis::TwoKilled,
        Nemesis::OneRestarted,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Nemesis::Nothing => "none",
            Nemesis::ConnectionsKilled => "connections-killed",
            Nemesis::HolderStopped => "holder-stopped",
            Nemesis::HolderKilled => "holder-killed",
            Nemesis::ScriptsFlushed => "scripts-flushed",
            Nemesis::ServerStopped => "server-stopped",
            Nemesis::ServerRestarted => "server-restarted",
            Nemesis::KeyDeleted => "key-deleted",
            Nemesis::Flushed => "flushed",
            Nemesis::ClockForward => "clock-forward",
            Nemesis::ReplicaKilled => "replica-killed",
            Nemesis::Promoted => "promoted",
            Nemesis::TakenOver => "taken-over",
            Nemesis::MasterKilled => "master-killed",
            Nemesis::SlotMoved => "slot-moved",
            Nemesis::TwoKilled => "two-killed",
            Nemesis::OneRestarted => "one-restarted",
        }
    }

    /// Whether it ends locks that their holders rely on: then only the token holds.
    pub(crate) fn takes_locks(self) -> bool {
        matches!(self, Nemesis::KeyDeleted | Nemesis::Flushed | Nemesis::ClockForward)
            || self.loses_writes()
    }

    /// Whether the new master may lack what the old one had replied to.
    fn loses_writes(self) -> bool {
        matches!(self, Nemesis::Promoted | Nemesis::MasterKilled)
    }

    /// Whether locks go to another server, by whose clock their leases end from then on.
    fn moves_locks(self) -> bool {
        matches!(self, Nemesis::TakenOver | Nemesis::SlotMoved)
    }

    /// Whether a holder may go on after its lease without knowing.
    fn stops(self) -> bool {
        matches!(self, Nemesis::HolderStopped | Nemesis::ServerStopped)
    }

    fn is_in(self, topology: Topology) -> bool {
        match self {
            Nemesis::Nothing
            | Nemesis::ConnectionsKilled
            | Nemesis::HolderStopped
            | Nemesis::HolderKilled => true,
            Nemesis::ScriptsFlushed
            | Nemesis::ServerStopped
            | Nemesis::ServerRestarted
            | Nemesis::KeyDeleted
            | Nemesis::Flushed
            | Nemesis::ClockForward => topology == Topology::Server,
            Nemesis::ReplicaKilled | Nemesis::MasterKilled => {
                matches!(topology, Topology::Sentinel | Topology::Cluster)
            }
            Nemesis::Promoted => topology == Topology::Sentinel,
            Nemesis::TakenOver | Nemesis::SlotMoved => topology == Topology::Cluster,
            Nemesis::TwoKilled | Nemesis::OneRestarted => topology == Topology::Quorum,
        }
    }

    /// Whether a workload over a topology says anything about it.
    pub(crate) fn is_for(self, workload: Workload, topology: Topology) -> bool {
        let says = match workload {
            // Its record is a key of its own, and its periods are those of the server's clock.
            Workload::Once => !self.takes_locks(),
            // What it writes would be gone, too.
            Workload::Transaction => self != Nemesis::Flushed && !self.loses_writes(),
            _ => true,
        };
        says && self.is_in(topology) && topology.is_for(workload)
    }

    /// After how much silence servers take one another for dead: soon where one dies that has to be replaced, and
    /// otherwise not if the machine stands still for a while. Nodes of a cluster vote for one replica of a master in
    /// twice this time.
    pub(crate) fn dead_after(self) -> Duration {
        Duration::from_millis(match self {
            Nemesis::MasterKilled => 1_500,
            Nemesis::TakenOver => 5_000,
            _ => 60_000,
        })
    }

    /// What must hold of a kind of object: that it is legal, `always`, or while the clocks of the servers differ by at most
    /// the `bound`, as they do here; or only what compares the `token`.
    pub(crate) fn verdict(self, kind: &str) -> &'static str {
        match kind {
            "tokens" => "always",
            "set" if self.stops() => "token",
            _ if self.moves_locks() => "bound",
            "transaction" => "always",
            _ if self.takes_locks() => "token",
            _ => "always",
        }
    }
}
