//! Asking one sentinel, and the server that it may be making the master.

use std::collections::HashMap;
use std::time::Duration;

use redis::{ErrorKind, RedisError};

use super::Sentinels;
use crate::base::time::Moment;
use crate::topology::sentinel::master_report::{MasterReport, Rank, is_master};
use crate::wire::endpoint::{self, Endpoint};
use crate::wire::error_context::{Limit, locate, silence};
use crate::wire::raw_connection::RawConnection;

impl Sentinels {
    /// Where a sentinel says that the master is; `None` if it takes it for dead.
    pub(super) fn ask(
        &self,
        node: &Endpoint,
        left: Duration,
    ) -> Result<Option<MasterReport>, RedisError> {
        let deadline = self.clock.now().after(left);
        let mut connection = self.connect(node, deadline)?;
        let fields: SentinelFields =
            connection.query(redis::cmd("SENTINEL").arg("MASTER").arg(&self.master))?;
        let odd = || RedisError::from((ErrorKind::Parse, "a sentinel's answer"));
        let epoch = fields.get("config-epoch").and_then(|epoch| epoch.parse().ok());
        let epoch = epoch.ok_or_else(odd)?;
        if has_flag(&fields, "failover_in_progress")
            && let Some(address) = self.promoted(&mut connection, deadline)
        {
            return Ok(Some(MasterReport { rank: Rank { epoch, is_ahead: true }, address }));
        }
        // Whoever connects to one that hangs loses the time in which another takes its place.
        if has_flag(&fields, "_down") {
            return Ok(None);
        }
        let address = address(&fields).ok_or_else(odd)?;
        Ok(Some(MasterReport { rank: Rank { epoch, is_ahead: false }, address }))
    }

    /// The replica that the sentinel is making the master, if it says itself that it is one now.
    ///
    /// A sentinel learns that only when it looks the next time, about a second later, and tells it when
    /// the other replicas follow too. It chooses one only once it was elected to.
    fn promoted(&self, sentinel: &mut RawConnection, deadline: Moment) -> Option<(String, u16)> {
        self.limit(sentinel, deadline).ok()?;
        let mut command = redis::cmd("SENTINEL");
        let replicas: Vec<SentinelFields> =
            sentinel.query(command.arg("REPLICAS").arg(&self.master)).ok()?;
        let address = address(replicas.iter().find(|fields| has_flag(fields, "promoted"))?)?;
        let mut connection = self.connect(&self.at(address.clone()), deadline).ok()?;
        let role = connection.query(&redis::cmd("ROLE")).ok()?;
        is_master(&role).then_some(address)
    }

    fn connect(&self, to: &Endpoint, deadline: Moment) -> Result<RawConnection, RedisError> {
        let left = deadline.since(self.clock.now());
        let limit = Limit { span: left, setting: None };
        let connection = RawConnection::connect(to, left)
            .map_err(|error| locate(error, &endpoint::address(to), limit))?;
        self.limit(&connection, deadline)?;
        Ok(connection)
    }

    /// Its next answer may take what is left.
    fn limit(&self, connection: &RawConnection, deadline: Moment) -> Result<(), RedisError> {
        let left = deadline.since(self.clock.now());
        if left.is_zero() {
            return Err(silence());
        }
        connection.set_read_timeout(Some(left))?;
        connection.set_write_timeout(Some(left))
    }
}

/// What a sentinel tells of a server, by field.
type SentinelFields = HashMap<String, String>;

fn has_flag(fields: &SentinelFields, flag: &str) -> bool {
    fields.get("flags").is_some_and(|flags| flags.contains(flag))
}

fn address(fields: &SentinelFields) -> Option<(String, u16)> {
    Some((fields.get("ip")?.clone(), fields.get("port")?.parse().ok()?))
}
