//! The server's process: its command, its start and its end.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Connection, ConnectionInfo, IntoConnectionInfo};

use crate::directory::Directory;
use crate::signal::{self, Signal};

/// How long a server may take to reply.
pub(crate) const START: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(2);

/// How to start a server.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) program: PathBuf,
    /// The text of a sentinel's configuration; `None` for a server.
    pub(crate) sentinel: Option<String>,
    /// Whether it has network interfaces of its own.
    pub(crate) is_apart: bool,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) variables: Vec<(OsString, OsString)>,
    pub(crate) port: Option<u16>,
    /// The port of the cluster's bus, where it is a node of one.
    pub(crate) bus: Option<u16>,
    pub(crate) socket: PathBuf,
    pub(crate) directory: Directory,
}

impl Process {
    pub(crate) fn url(&self) -> String {
        let mut url = "unix://".to_owned();
        for byte in self.socket.as_os_str().as_bytes() {
            match byte {
                b'/' | b'-' | b'.' | b'_' => url.push(char::from(*byte)),
                _ if byte.is_ascii_alphanumeric() => url.push(char::from(*byte)),
                _ => write!(url, "%{byte:02X}").expect("a string takes any text"),
            }
        }
        url
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read(self.log_path())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    pub(crate) fn connect(&self, timeout: Duration) -> redis::RedisResult<Connection> {
        let information: ConnectionInfo = self.url().as_str().into_connection_info()?;
        // Else every connection would show up in the counts of commands.
        let settings = information.redis_settings().clone().set_skip_set_lib_name();
        let client = redis::Client::open(information.set_redis_settings(settings))?;
        let connection = client.get_connection_with_timeout(timeout)?;
        connection.set_read_timeout(Some(timeout))?;
        connection.set_write_timeout(Some(timeout))?;
        Ok(connection)
    }

    /// Starts it and waits until it serves.
    pub(crate) fn launch(&self) -> io::Result<Running> {
        let log = OpenOptions::new().create(true).append(true).open(self.log_path())?;
        let before = self.log().len();
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", include_str!("watchdog.sh"), "watchdog"])
            .arg(self.directory.path())
            // It becomes the program, with the same process id.
            .args(if self.is_apart { &["unshare", "--net"][..] } else { &[] })
            .arg(&self.program)
            .args(self.sentinel_arguments()?)
            .args(["--port", &self.port.unwrap_or(0).to_string()])
            .arg("--unixsocket")
            .arg(&self.socket)
            .args(["--unixsocketperm", "700", "--save", ""])
            .args(["--appendonly", "no", "--daemonize", "no"])
            .arg("--dir")
            .arg(self.directory.path())
            .args(["--protected-mode", "no", "--bind", "127.0.0.1"])
            .args(["--enable-debug-command", "yes", "--loglevel", "warning"])
            .args(self.cluster_arguments())
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            // The watchdog kills its whole group; a terminal's signals stay out of it.
            .process_group(0);
        let mut running = Running { watchdog: command.spawn()?, pid: None, version: String::new() };
        let end = Instant::now() + START;
        while Instant::now() < end {
            if let Some((pid, version)) = self.answer() {
                running.pid = Some(pid);
                running.version = version;
                return Ok(running);
            }
            if let Some(status) = running.watchdog.try_wait()? {
                return Err(self.ended(&status.to_string(), before));
            }
            sleep(POLL);
        }
        let tail = self.tail(before);
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("{} does not answer: {tail}", self.program.display()),
        ))
    }

    /// A sentinel insists on a file, which it rewrites.
    fn sentinel_arguments(&self) -> io::Result<Vec<OsString>> {
        let Some(text) = &self.sentinel else { return Ok(Vec::new()) };
        let path = self.directory.path().join("sentinel.conf");
        std::fs::write(&path, text)?;
        Ok(vec![path.into(), "--sentinel".into()])
    }

    /// A node stores its knowledge of the others in a file, even without persistence.
    fn cluster_arguments(&self) -> Vec<String> {
        let Some(bus) = self.bus else { return Vec::new() };
        ["--cluster-enabled", "yes", "--cluster-port", &bus.to_string()].map(str::to_owned).into()
    }

    /// Returns the process id and version once the server serves.
    fn answer(&self) -> Option<(u32, String)> {
        let mut connection = self.connect(START).ok()?;
        let pong: String = redis::cmd("PING").query(&mut connection).ok()?;
        let info: String = redis::cmd("INFO").arg("server").query(&mut connection).ok()?;
        let field = |name: &str| {
            info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
        };
        let version = match (field("valkey_version"), field("redis_version")) {
            (Some(version), _) => format!("valkey {version}"),
            (None, version) => format!("redis {}", version?),
        };
        (pong == "PONG").then_some((field("process_id")?.parse().ok()?, version))
    }

    fn ended(&self, status: &str, before: usize) -> io::Error {
        let tail = self.tail(before);
        let taken = ["Address already in use", "Failed listening on port"];
        let kind = if taken.iter().any(|text| tail.contains(text)) {
            io::ErrorKind::AddrInUse
        } else {
            io::ErrorKind::Other
        };
        let program = self.program.display();
        io::Error::new(kind, format!("{program} ended at once ({status}): {tail}"))
    }

    fn tail(&self, before: usize) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.get(before..).unwrap_or(&log).lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("log")
    }
}

/// A server that was started, killed on drop.
#[derive(Debug)]
pub(crate) struct Running {
    watchdog: Child,
    pid: Option<u32>,
    pub(crate) version: String,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.pid.expect("known since the server answered")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // While the watchdog lives, the process id is the server's and no one else's.
        if let (Ok(None), Some(pid)) = (self.watchdog.try_wait(), self.pid)
            && signal::try_send(pid, Signal::KILL).is_ok()
        {
            // It ends with the server, however late on a busy machine. Its standard input stays open meanwhile: at the end
            // of that it would remove the folder, in which the server is to be started again.
            let _input = self.watchdog.stdin.take();
            let _ = self.watchdog.wait();
            return;
        }
        // Closes its standard input: it kills what is left, itself included.
        let _ = self.watchdog.wait();
    }
}
