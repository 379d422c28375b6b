//! A master, its replicas, and the sentinels that watch it.

use std::io;
use std::time::Duration;

use crate::event::until;
use crate::fault::server::field;
use crate::server::{Server, ServerBuilder};

/// A master with replicas, and three sentinels that watch it.
#[derive(Debug)]
pub struct Group {
    /// The servers; the first is the master at the start.
    pub servers: Vec<Server>,
    /// The sentinels.
    pub sentinels: Vec<Server>,
}

impl Group {
    /// The sentinels' name for the master.
    pub const MASTER: &str = "mymaster";

    /// Starts them, and waits until the replicas have caught up and all sentinels know of each
    /// other. After so much silence they take a server for dead.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    ///
    /// # Panics
    ///
    /// If one of them does not reply, or they do not know of each other in time.
    pub fn start(replicas: usize, dead_after: Duration) -> io::Result<Group> {
        Group::start_each(replicas, dead_after, |_, server| server)
    }

    /// The same where each server is started as this arranges it, by its number.
    ///
    /// # Errors
    ///
    /// As [`Group::start`].
    ///
    /// # Panics
    ///
    /// As [`Group::start`].
    pub fn start_each(
        replicas: usize,
        dead_after: Duration,
        arrange: impl Fn(usize, ServerBuilder) -> ServerBuilder,
    ) -> io::Result<Group> {
        let mut servers = vec![arrange(0, replicating()).start()?];
        let port = servers[0].addr().port();
        for number in 1..=replicas {
            let replica = replicating().arg("--replicaof").arg(format!("127.0.0.1 {port}"));
            servers.push(arrange(number, replica).start()?);
        }
        until("the replicas are online", || {
            info(&servers[0], "replication").matches("state=online").count() == replicas
        });
        let (name, dead_after) = (Group::MASTER, dead_after.as_millis());
        let configuration = format!(
            "sentinel monitor {name} 127.0.0.1 {port} 2\n\
             sentinel down-after-milliseconds {name} {dead_after}\n\
             sentinel failover-timeout {name} 5000\n"
        );
        let start = || Server::builder().sentinel(&configuration).start();
        let sentinels = vec![start()?, start()?, start()?];
        let known = format!("slaves={replicas},sentinels={}", sentinels.len());
        for sentinel in &sentinels {
            until("the sentinels know all others", || info(sentinel, "sentinel").contains(&known));
        }
        Ok(Group { servers, sentinels })
    }

    /// Returns the URLs of the sentinels.
    pub fn sentinel_urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::tcp_url).collect()
    }
}

/// A server on a port that keeps no replica waiting.
fn replicating() -> ServerBuilder {
    Server::builder().tcp().arg("--repl-diskless-sync-delay").arg("0")
}

impl Server {
    /// Starts a server and a replica of it, and waits until the replica has caught up.
    ///
    /// # Errors
    ///
    /// As [`ServerBuilder::start`].
    ///
    /// # Panics
    ///
    /// If one of them does not reply, or the replica does not catch up in time.
    pub fn start_with_replica() -> io::Result<(Server, Server)> {
        let master = replicating().start()?;
        let of = format!("127.0.0.1 {}", master.addr().port());
        let replica = replicating().arg("--replicaof").arg(of).start()?;
        until("the replica is online", || {
            info(&replica, "replication").contains("master_link_status:up")
                && info(&master, "replication").contains("state=online")
        });
        Ok((master, replica))
    }

    /// Returns whether it takes itself for a master.
    ///
    /// # Panics
    ///
    /// If it was killed.
    pub fn is_master(&self) -> bool {
        self.replication().contains("role:master")
    }

    /// Returns whether it is a replica that has all that its master had, and hears it.
    ///
    /// # Panics
    ///
    /// If it was killed.
    pub fn follows(&self) -> bool {
        self.replication().contains("master_link_status:up")
    }

    /// Returns how many replicas it has.
    ///
    /// # Panics
    ///
    /// If it was killed.
    pub fn replicas(&self) -> u64 {
        field(&self.replication(), "connected_slaves")
    }

    fn replication(&self) -> String {
        let mut info = redis::cmd("INFO");
        info.arg("replication").query(&mut self.connection()).unwrap_or_default()
    }
}

fn info(server: &Server, section: &str) -> String {
    let mut info = redis::cmd("INFO");
    info.arg(section).query(&mut server.connection()).expect("the test server answers")
}
