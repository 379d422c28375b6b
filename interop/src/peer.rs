//! A process that locks in one language, and does what it is told.
//!
//! | command | reply |
//! | --- | --- |
//! | `lock NAME` | `locked T`: it has the lock once more, since this moment of CLOCK_MONOTONIC, in nanoseconds |
//! | `unlock NAME` | `unlocked T`: it let go once, and began to at this moment |
//! | `count NAME` | `count …`: how often the holder has it, as this side sees it |
//! | `contend NAME THREADS TARGET MICROS` | `done N`: its threads had the lock that often, until all processes together had it TARGET times |
//! | `bench NAME THREADS MILLIS MICROS` | `done N P50 P99`: its threads had the lock that often in that time, each for MICROS, and these are nanoseconds from a call to the lock. `stuck`: a call had not returned 10 s later. A name that ends in `:` is one for each thread |

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Whatever goes wrong here ends the program.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// No reply takes longer, whatever a machine has to do besides.
const PATIENCE: Duration = Duration::from_secs(600);

/// A worker process; it is killed when this is dropped.
#[derive(Debug)]
pub struct Peer {
    name: &'static str,
    child: Child,
    input: ChildStdin,
    replies: Receiver<String>,
}

impl Peer {
    /// Starts a process that understands the commands above.
    ///
    /// # Errors
    ///
    /// When the system cannot start it.
    pub fn start(name: &'static str, mut command: Command) -> Result<Peer> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = child.stdout.take().ok_or("no output")?;
        let (sender, replies) = channel();
        // Ends with the output of the process.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Peer { name, child, input, replies })
    }

    /// What the library is called.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command.
    ///
    /// # Errors
    ///
    /// When the process has ended.
    pub fn say(&mut self, command: &str) -> Result<()> {
        Ok(writeln!(self.input, "{command}")?)
    }

    /// What follows the first word of the reply, which must be this one.
    ///
    /// # Errors
    ///
    /// When the process replies another word, or ends, or is silent for ten minutes.
    pub fn hear(&self, word: &str) -> Result<String> {
        let reply = self.replies.recv_timeout(PATIENCE);
        let reply = reply.map_err(|_| format!("{} did not reply: {word}", self.name))?;
        let rest = reply.strip_prefix(word).map(|rest| rest.trim().to_owned());
        rest.ok_or_else(|| format!("{} replied {reply}, not {word}", self.name).into())
    }

    /// Takes the lock. Returns since when the process has it.
    ///
    /// # Errors
    ///
    /// As [`hear`](Peer::hear).
    pub fn lock(&mut self, lock: &str) -> Result<i64> {
        self.say(&format!("lock {lock}"))?;
        Ok(self.hear("locked")?.parse()?)
    }

    /// Lets go of the lock once. Returns when that began.
    ///
    /// # Errors
    ///
    /// As [`hear`](Peer::hear).
    pub fn unlock(&mut self, lock: &str) -> Result<i64> {
        self.say(&format!("unlock {lock}"))?;
        Ok(self.hear("unlocked")?.parse()?)
    }

    /// How often the holder has the lock, as this process sees it.
    ///
    /// # Errors
    ///
    /// As [`hear`](Peer::hear).
    pub fn count(&mut self, lock: &str) -> Result<String> {
        self.say(&format!("count {lock}"))?;
        self.hear("count")
    }

    /// SIGKILL. Returns the process.
    ///
    /// # Errors
    ///
    /// When it had ended.
    pub fn kill(mut self) -> Result<u32> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(self.child.id())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended, and there is nobody to tell.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
