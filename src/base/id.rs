//! The identity of a client and of its attempts, and the holder of a lock.

use std::fmt;

use uuid::Uuid;

use crate::base::sync::{AtomicU64, Ordering};
use crate::base::text::is_plain;
use crate::base::thread::Threads;

/// The longest host name or label in a lock's value. Every waiter stores its value in Redis.
const SHOWN_BYTES: usize = 128;

/// The identity of a client: a random id, and the host and process for people to read.
#[derive(Debug)]
pub(crate) struct Identity {
    uuid: Uuid,
    id: String,
    host_and_pid: String,
    attempts: AtomicU64,
    threads: Threads,
}

impl Identity {
    pub(crate) fn new(label: &str) -> Identity {
        // Random, and not made of host and process: a container may have both again after a
        // restart, and the new process would then take the old one's locks for its own.
        let uuid = Uuid::new_v4();
        // The value of a lock is split at colons. The label comes last, so that it may keep its
        // own.
        let host = sanitize(&host_name()).replace(':', "_");
        Identity {
            uuid,
            id: uuid.simple().to_string(),
            host_and_pid: format!("{}:{host}:{}", std::process::id(), sanitize(label)),
            attempts: AtomicU64::new(0),
            threads: Threads::of_a_new_client(),
        }
    }

    pub(crate) fn uuid(&self) -> &Uuid {
        &self.uuid
    }

    /// The id in hexadecimal digits.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// `<process>:<host>:<label>`, of which only the label may contain a colon.
    pub(crate) fn host_and_pid(&self) -> &str {
        &self.host_and_pid
    }

    /// The names of its threads.
    pub(crate) fn threads(&self) -> Threads {
        self.threads
    }

    /// The number of a new attempt, which no attempt of this client had before (rule 5).
    pub(crate) fn next_attempt(&self) -> u64 {
        // Relaxed: a read-modify-write never returns a number twice, and nothing else depends on
        // its order.
        self.attempts.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The holder of a lock, for people to read.
///
/// Only a [`Mutex`](crate::Mutex) that this library took has a host, a process and a label. All
/// other locks have only their owner's value.
///
/// ```
/// # fn demo(lock: &leasehold::Mutex) -> leasehold::Result<()> {
/// if let Some(holder) = lock.holder()? {
///     println!("waiting for {holder}"); // "billing, process 4711 on web-3"
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Holder {
    pub(crate) owner: Vec<u8>,
    pub(crate) host: Option<String>,
    pub(crate) pid: Option<u32>,
    pub(crate) label: Option<String>,
}

impl Holder {
    /// A holder of which only the owner's value is known.
    pub(crate) fn of_owner(owner: Vec<u8>) -> Holder {
        Holder { owner, host: None, pid: None, label: None }
    }

    /// The owner's value in Redis, which is new for every attempt.
    ///
    /// ```
    /// # fn demo(before: &leasehold::Holder, now: &leasehold::Holder) {
    /// if before.owner() == now.owner() {
    ///     println!("the same hold goes on");
    /// }
    /// # }
    /// ```
    pub fn owner(&self) -> &[u8] {
        &self.owner
    }

    /// The name of the holder's host.
    ///
    /// ```
    /// # fn demo(holder: &leasehold::Holder) {
    /// if let Some(host) = holder.host() {
    ///     println!("the work is done on {host}");
    /// }
    /// # }
    /// ```
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// The holder's process id.
    ///
    /// ```
    /// # fn demo(holder: &leasehold::Holder) {
    /// if let (Some(pid), Some(host)) = (holder.pid(), holder.host()) {
    ///     println!("to see what it does: ssh {host} ps {pid}");
    /// }
    /// # }
    /// ```
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// The [label](crate::LockClientBuilder::label) of the holder's client.
    ///
    /// ```
    /// # fn demo(holder: &leasehold::Holder) {
    /// if holder.label() == Some("billing") {
    ///     println!("the bill is being written");
    /// }
    /// # }
    /// ```
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.label, self.pid, &self.host) {
            (label, Some(pid), Some(host)) => {
                if let Some(label) = label {
                    write!(f, "{label}, ")?;
                }
                write!(f, "process {pid} on {host}")
            }
            _ => write!(f, "{}", self.owner.escape_ascii()),
        }
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Holder(\"{self}\")")
    }
}

fn host_name() -> String {
    #[cfg(unix)]
    return rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    return std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unknown".to_owned());
}

/// Removes characters that are not plain, and cuts the text at its limit.
pub(crate) fn sanitize(text: &str) -> String {
    // Removed and not escaped: this text becomes a part of the lock's value, which other programs
    // read.
    let mut sanitize = String::new();
    for letter in text.chars().filter(|&letter| is_plain(letter)) {
        if sanitize.len() + letter.len_utf8() > SHOWN_BYTES {
            break;
        }
        sanitize.push(letter);
    }
    sanitize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_tidied_and_shortened() {
        assert!(Identity::new("a\r\nb\0").host_and_pid().ends_with(":ab"));
        assert!(Identity::new(&"é".repeat(100)).host_and_pid().ends_with(&"é".repeat(64)));
        assert!(!Identity::new(&"é".repeat(100)).host_and_pid().ends_with(&"é".repeat(65)));
    }

    #[test]
    fn no_two_attempts_are_alike() {
        let identity = Identity::new("");
        assert_ne!(identity.next_attempt(), identity.next_attempt());
        assert_ne!(identity.uuid(), Identity::new("").uuid());
    }
}
