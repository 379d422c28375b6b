//! The queries to one sentinel, and to the replica that it may be promoting.

use std::collections::HashMap;
use std::time::Duration;

use redis::{ErrorKind, RedisError};

use super::panel::Panel;
use crate::base::time::Moment;
use crate::topology::sentinel::finding::{MasterState, Report};
use crate::topology::sentinel::master_report::{MasterReport, Rank, is_master};
use crate::wire::endpoint::{self, Endpoint};
use crate::wire::error_context::{Limit, locate, silence};
use crate::wire::raw_connection::RawConnection;

impl Panel {
    /// The master as a sentinel reports it.
    pub(super) fn ask(&self, node: &Endpoint, left: Duration) -> Result<Report, RedisError> {
        let limit = Limit { span: left, setting: None };
        self.query(node, left).map_err(|error| locate(error, &endpoint::address(node), limit))
    }

    fn query(&self, node: &Endpoint, left: Duration) -> Result<Report, RedisError> {
        let deadline = self.clock.now().after(left);
        let mut command = redis::cmd("SENTINEL");
        command.arg("MASTER").arg(&self.master);
        let (mut connection, fields) = self.query_kept(node, &command, deadline)?;
        let report = self.report(&mut connection, fields, deadline);
        // Whatever was read, each request has had its reply.
        if !report.as_ref().is_err_and(RedisError::is_io_error) {
            self.kept.lock().insert(endpoint::address(node), connection);
        }
        report
    }

    /// Sends a query over the connection that is kept to a sentinel, or over a new one: a client asks twice a second
    /// for as long as it lives.
    fn query_kept(
        &self,
        node: &Endpoint,
        command: &redis::Cmd,
        deadline: Moment,
    ) -> Result<(RawConnection, SentinelFields), RedisError> {
        // Taken out of the map, so that two threads never share one.
        let kept = self.kept.lock().remove(&endpoint::address(node));
        // A sentinel that was restarted has closed it.
        if let Some(mut connection) = kept.filter(|kept| !kept.is_readable(Duration::ZERO)) {
            self.limit(&connection, deadline)?;
            match connection.query(command) {
                Ok(fields) => return Ok((connection, fields)),
                // It may have been closed just now.
                Err(error) if error.is_io_error() && !error.is_timeout() => {}
                Err(error) => return Err(error),
            }
        }
        let mut connection = self.connect(node, deadline)?;
        let fields = connection.query(command)?;
        Ok((connection, fields))
    }

    /// What a sentinel's fields report.
    fn report(
        &self,
        connection: &mut RawConnection,
        fields: SentinelFields,
        deadline: Moment,
    ) -> Result<Report, RedisError> {
        let odd = || RedisError::from((ErrorKind::Parse, "a sentinel's answer"));
        let epoch = fields.get("config-epoch").and_then(|epoch| epoch.parse().ok());
        let epoch = epoch.ok_or_else(odd)?;
        // First of all: during a fail-over the sentinel still reports the old master, as down. The
        // promoted replica accepts locks seconds before the sentinel reports it.
        if has_flag(&fields, "failover_in_progress")
            && let Some(address) = self.promoted(connection, deadline)
        {
            let master = MasterReport { rank: Rank { epoch, is_ahead: true }, address };
            return Ok(Report { master, state: MasterState::Up });
        }
        let state = match () {
            // A connection to a master that hangs would cost a whole time-out, while another server
            // takes its place.
            () if has_flag(&fields, "o_down") => MasterState::Down,
            () if has_flag(&fields, "s_down") => MasterState::Doubted,
            () => MasterState::Up,
        };
        let address = address(&fields).ok_or_else(odd)?;
        let master = MasterReport { rank: Rank { epoch, is_ahead: false }, address };
        Ok(Report { master, state })
    }

    /// The replica that the sentinel is promoting, if it already reports itself as the master.
    ///
    /// The sentinel learns of the promotion up to a second later, from its next poll, and reports
    /// it only when the other replicas follow the new master. Only an elected sentinel chooses a
    /// replica, so that no two are promoted at the same time.
    fn promoted(&self, sentinel: &mut RawConnection, deadline: Moment) -> Option<(String, u16)> {
        self.limit(sentinel, deadline).ok()?;
        let mut command = redis::cmd("SENTINEL");
        let replicas: Vec<SentinelFields> =
            sentinel.query(command.arg("REPLICAS").arg(&self.master)).ok()?;
        let address = address(replicas.iter().find(|fields| has_flag(fields, "promoted"))?)?;
        // The flag alone means "was chosen". Until it has become a master, it refuses writes or
        // loses them, so it is asked itself.
        let mut connection =
            self.connect(&self.template.at(address.0.clone(), address.1), deadline).ok()?;
        let role = connection.query(&redis::cmd("ROLE")).ok()?;
        is_master(&role).then_some(address)
    }

    fn connect(&self, to: &Endpoint, deadline: Moment) -> Result<RawConnection, RedisError> {
        let left = deadline.since(self.clock.now());
        let connection = RawConnection::connect(to, Limit { span: left, setting: None })?;
        self.limit(&connection, deadline)?;
        Ok(connection)
    }

    /// Limits the next reply to the time that is left.
    fn limit(&self, connection: &RawConnection, deadline: Moment) -> Result<(), RedisError> {
        let left = deadline.since(self.clock.now());
        // A socket time-out of zero means none at all.
        if left.is_zero() {
            return Err(silence());
        }
        connection.set_read_timeout(Some(left))?;
        connection.set_write_timeout(Some(left))
    }
}

/// The fields of a server in a sentinel's reply.
type SentinelFields = HashMap<String, String>;

fn has_flag(fields: &SentinelFields, flag: &str) -> bool {
    fields.get("flags").is_some_and(|flags| flags.contains(flag))
}

fn address(fields: &SentinelFields) -> Option<(String, u16)> {
    Some((fields.get("ip")?.clone(), fields.get("port")?.parse().ok()?))
}
