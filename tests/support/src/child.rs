//! This program, started again as a child process with a role.
//!
//! Parent and child talk in lines: [`Child::say`] to [`hear`], and [`tell`] to
//! [`Child::expect_line`].

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::lag::{self, Spent};
use crate::signal::{self, Signal};
use crate::watchdog;

const VARIABLE: &str = "LEASEHOLD_ROLE";
/// Marks the lines of a role, to separate them from those of the test harness.
const MARK: &str = "@ ";

/// Returns the role this process was started for, or `None` in the process that people started.
///
/// A process with a role ends by itself when its parent is gone.
pub fn role() -> Option<String> {
    let role = std::env::var(VARIABLE).ok()?;
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        let parent = rustix::process::getppid();
        thread::spawn(move || {
            while rustix::process::getppid() == parent {
                thread::sleep(Duration::from_millis(100));
            }
            std::process::exit(1);
        });
    });
    Some(role)
}

/// Sends the parent a line.
///
/// # Panics
///
/// If the parent is gone.
pub fn tell(line: &str) {
    let mut stdout = io::stdout().lock();
    // The harness may have left a line unfinished.
    let sent = write!(stdout, "\n{MARK}{line}\n").and_then(|()| stdout.flush());
    sent.expect("the parent reads our output");
}

/// Waits for a line from the parent, or returns `None` once it has closed its side.
pub fn hear() -> Option<String> {
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line) {
        Ok(length) if length > 0 => Some(line.trim_end().to_owned()),
        _ => None,
    }
}

/// A child process that plays a role, killed on drop.
#[derive(Debug)]
pub struct Child {
    role: String,
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    output: Arc<Mutex<String>>,
    /// Of its output and its errors.
    readers: [JoinHandle<()>; 2],
}

/// Settings of a [`Child`].
#[derive(Debug, Clone)]
pub struct ChildBuilder {
    role: String,
    /// Instead of this one.
    program: Option<PathBuf>,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
}

impl ChildBuilder {
    /// Runs the test of this full name, and nothing else: for callers that are tests themselves.
    pub fn test(mut self, name: &str) -> Self {
        let arguments = [name, "--exact", "--nocapture", "--include-ignored"];
        self.arguments.extend(arguments.map(OsString::from));
        self
    }

    /// Adds an argument: for callers with a `main` of their own.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Runs another program than this one, which plays the role in the same way.
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = Some(path.into());
        self
    }

    /// Adds an environment variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        let pair = (name.as_ref().to_owned(), value.as_ref().to_owned());
        self.variables.push(pair);
        self
    }

    /// Starts the process.
    ///
    /// # Errors
    ///
    /// If the program cannot be started.
    pub fn start(self) -> io::Result<Child> {
        let mut command = Command::new(self.program.map_or_else(std::env::current_exe, Ok)?);
        command
            .args(&self.arguments)
            .envs(self.variables)
            .env(VARIABLE, &self.role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A stopped child in a group of its own is hung up on when its parent dies.
            .process_group(0);
        let mut process = command.spawn()?;
        let (sender, lines) = mpsc::channel();
        let output = Arc::new(Mutex::new(String::new()));
        let readers = [
            collect(process.stdout.take(), Arc::clone(&output), Some(sender)),
            collect(process.stderr.take(), Arc::clone(&output), None),
        ];
        let stdin = process.stdin.take();
        Ok(Child { role: self.role, stdin, process, lines, output, readers })
    }
}

impl Child {
    /// Returns the settings of a child that plays this role.
    pub fn role(role: &str) -> ChildBuilder {
        ChildBuilder {
            role: role.to_owned(),
            program: None,
            arguments: Vec::new(),
            variables: Vec::new(),
        }
    }

    /// Waits for a line of the role that begins with `prefix`, skips others, and returns the rest
    /// of it.
    ///
    /// # Panics
    ///
    /// If there is none in time, besides the time that the machine did not run at all, or the child ends; the text holds the child's output.
    pub fn expect_line(&mut self, prefix: &str, timeout: Duration) -> String {
        self.next_line(prefix, timeout).unwrap_or_else(|why| {
            let (role, output) = (&self.role, self.output());
            panic!("{role:?} was to say {prefix:?} but {why}; its output:\n{output}");
        })
    }

    /// As [`Child::expect_line`], but returns `None` if there is none.
    pub fn hear_line(&mut self, prefix: &str, timeout: Duration) -> Option<String> {
        self.next_line(prefix, timeout).ok()
    }

    fn next_line(&mut self, prefix: &str, timeout: Duration) -> Result<String, String> {
        watchdog::watch();
        lag::watch();
        let begin = Instant::now();
        loop {
            let left = timeout.saturating_sub(begin.spent());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(prefix) {
                        return Ok(rest.trim().to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout) if begin.spent() < timeout => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("did not say it in {timeout:?}"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("ended before it said it".to_owned());
                }
            }
        }
    }

    /// Sends the child a line.
    ///
    /// # Panics
    ///
    /// If the child is gone.
    pub fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("open until the drop");
        let sent = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
        if let Err(error) = sent {
            panic!("{:?} does not listen: {error}", self.role);
        }
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Stops the process (SIGSTOP).
    ///
    /// # Panics
    ///
    /// If it was waited for.
    pub fn stop(&self) {
        signal::send(self.pid(), Signal::STOP);
    }

    /// Lets a stopped process go on (SIGCONT).
    ///
    /// # Panics
    ///
    /// If it was waited for.
    pub fn cont(&self) {
        signal::send(self.pid(), Signal::CONT);
    }

    /// Kills the process (SIGKILL) and waits for its end.
    pub fn kill9(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Waits for the process to end by itself, and reads what it has written.
    ///
    /// The wait has no limit, as a machine may be slow. The watchdog of the tests tells where the child stands.
    ///
    /// # Panics
    ///
    /// If the system does not tell its status.
    pub fn wait(&mut self) -> ExitStatus {
        watchdog::watch();
        let status = self.process.wait().expect("the status of a child");
        self.read_to_the_end();
        status
    }

    /// Processes that it started may hold its output open for longer.
    fn read_to_the_end(&self) {
        let end = Instant::now() + Duration::from_secs(2);
        while !self.readers.iter().all(JoinHandle::is_finished) && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns everything it has written, its errors included.
    pub fn output(&self) -> String {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// Reads a stream to its end on a thread; lines of the role go to `lines`, and all lines to
/// `output`.
fn collect(
    stream: Option<impl Read + Send + 'static>,
    output: Arc<Mutex<String>>,
    lines: Option<Sender<String>>,
) -> JoinHandle<()> {
    let stream = BufReader::new(stream.expect("piped"));
    thread::spawn(move || {
        for line in stream.split(b'\n') {
            let Ok(line) = line else { return };
            let line = String::from_utf8_lossy(&line);
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = writeln!(output, "{line}");
            drop(output);
            if let (Some(lines), Some(text)) = (&lines, line.strip_prefix(MARK)) {
                // No one listens any more: go on reading, or the child would block.
                let _ = lines.send(text.to_owned());
            }
        }
    })
}
