//! The identity of a client, and the numbers of its attempts.

use uuid::{Builder, Uuid};

use crate::base::inspection::Origin;
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
    origin: Origin,
    host_and_pid: String,
    attempts: AtomicU64,
    threads: Threads,
}

impl Identity {
    pub(crate) fn new(label: &str) -> Identity {
        // Random, and not made of host and process: a container may have both again after a
        // restart, and the new process would then take the old one's locks for its own.
        let uuid = Builder::from_custom_bytes(Uuid::new_v4().into_bytes()).into_uuid();
        // The value of a lock is split at colons. The label comes last, so that it may keep its
        // own.
        let host = sanitize(&host_name()).replace(':', "_");
        let (pid, label) = (std::process::id(), sanitize(label));
        Identity {
            uuid,
            id: uuid.simple().to_string(),
            host_and_pid: format!("{pid}:{host}:{label}"),
            origin: Origin {
                host: Some(host),
                pid: Some(pid),
                label: Some(label).filter(|label| !label.is_empty()),
            },
            attempts: AtomicU64::new(0),
            threads: Threads::of_a_new_client(),
        }
    }

    /// A UUID of version 8, which distinguishes its owners from those of Redisson, whose UUIDs are of version 4.
    pub(crate) fn uuid(&self) -> &Uuid {
        &self.uuid
    }

    /// Where it runs.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
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
