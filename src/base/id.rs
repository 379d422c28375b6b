//! The identity of a client, and the numbers of its attempts.

use uuid::{Builder, Uuid};

use crate::base::inspection::Origin;
use crate::base::sync::{AtomicU64, Ordering};
use crate::base::text::is_plain;
use crate::base::thread::Threads;

/// The longest host name or label that is carried in a lock's value.
const SHOWN_BYTES: usize = 128;

/// One client: a random identity, and what tells a person where it runs.
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
        let uuid = Builder::from_custom_bytes(Uuid::new_v4().into_bytes()).into_uuid();
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

    /// A UUID of version 8, so that its owners are told from those of Redisson, whose UUIDs are of version 4.
    pub(crate) fn uuid(&self) -> &Uuid {
        &self.uuid
    }

    /// Where it runs.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The identity in hexadecimal digits.
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

    /// A number that no attempt of this client had before.
    pub(crate) fn next_attempt(&self) -> u64 {
        self.attempts.fetch_add(1, Ordering::Relaxed) + 1
    }
}

fn host_name() -> String {
    #[cfg(unix)]
    return rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    return std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unknown".to_owned());
}

/// Leaves out what would upset a log or a terminal, and shortens.
pub(crate) fn sanitize(text: &str) -> String {
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
