//! The mutex: a string whose value is its owner.
//!
//! The value is `<version><mark>:<client>:<attempt>:<window>:<process>:<host>:<label>`. The mark
//! says whether the holder hands the lock over to the queue (`q`) or not (`-`). The window, in
//! milliseconds, is the lease that a hand-over gives to this attempt. Any other value belongs to a
//! foreign owner, which excludes ours just as well.

use std::time::Duration;

use crate::base::id::{Holder, Identity, sanitize};
use crate::base::name::Name;
use crate::base::option::Wait;
use crate::base::reserved;
use crate::base::time::millis;
use crate::protocol::lock_kind::{LockKind, Scripts};
use crate::protocol::reply::unexpected;
use crate::wire::Value;
use crate::wire::failure::Failure;
use crate::wire::script::Call;

const VERSION: &str = "1";
const HANDS_OVER: &str = "q";
const FOREIGN: &str = "-";

// `acquire` and `release` begin with their fast path, which returns before the functions of the
// other files are defined. The remaining scripts need those functions in any case.
static SCRIPTS: Scripts = Scripts {
    acquire: script!(
        "mutex/acquire.lua",
        "token.lua",
        "line.lua",
        "mutex/queue.lua",
        "mutex/wait.lua"
    ),
    release: script!(
        "mutex/release.lua",
        "token.lua",
        "line.lua",
        "mutex/queue.lua",
        "mutex/pass.lua"
    ),
    renew: script!("mutex/owner.lua", "renew.lua"),
    touch: script!("mutex/owner.lua", "touch.lua"),
    force: script!(
        "token.lua",
        "line.lua",
        "mutex/queue.lua",
        "mutex/owner.lua",
        "mutex/wake.lua",
        "force.lua"
    ),
    request: Some(script!("token.lua", "line.lua", "mutex/queue.lua", "mutex/request.lua")),
};

/// The kind behind [`Mutex`](crate::Mutex).
#[derive(Debug)]
pub(crate) struct MutexKind;

impl LockKind for MutexKind {
    fn name(&self) -> &'static str {
        "mutex"
    }

    fn extra_keys(&self, name: &Name) -> Vec<Vec<u8>> {
        // Two keys, because a waiter's place and its death change apart: a heartbeat must not move
        // it in the queue.
        vec![name.side_key(reserved::QUEUE), name.side_key(reserved::BEATS)]
    }

    fn owner(
        &self,
        identity: &Identity,
        number: u64,
        window: Duration,
        hands_over: bool,
    ) -> Vec<u8> {
        // The value contains what a hand-over must know about this attempt: the channel of its
        // client, its number and its window. So no further key is needed for each waiter.
        let mark = if hands_over { HANDS_OVER } else { FOREIGN };
        let mut owner = Vec::with_capacity(128);
        for text in [VERSION, mark, ":", identity.id(), ":"] {
            owner.extend_from_slice(text.as_bytes());
        }
        put(&mut owner, number, 16);
        owner.push(b':');
        put(&mut owner, millis(window), 10);
        owner.push(b':');
        // Last, because the label may contain colons. It serves people only: no script reads it.
        owner.extend_from_slice(identity.host_and_pid().as_bytes());
        owner
    }

    fn usual_wait(&self) -> Wait {
        Wait::queue()
    }

    fn can_be_watched(&self) -> bool {
        // The key is a string, and without a queue there is nothing else to change in a release.
        true
    }

    fn scripts(&self) -> &'static Scripts {
        &SCRIPTS
    }

    fn inspect(&self, key: &[u8]) -> Call {
        Call::plain(&[b"GET", key])
    }

    fn read_holder(&self, value: Value) -> Result<Option<Holder>, Failure> {
        match value {
            Value::Nil => Ok(None),
            Value::BulkString(owner) => Ok(Some(holder(owner))),
            other => Err(unexpected(&other)),
        }
    }
}

/// Appends a number.
fn put(text: &mut Vec<u8>, mut number: u64, base: u64) {
    // Not `write!`: its formatting would be a good part of what a lock costs besides the round
    // trips.
    let start = text.len();
    loop {
        // Below 16.
        let digit = (number % base) as u8;
        text.push(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 });
        number /= base;
        if number == 0 {
            break;
        }
    }
    text[start..].reverse();
}

/// Parses an owner's value. A foreign one says nothing about its owner.
fn holder(owner: Vec<u8>) -> Holder {
    // Any client that may write the key chooses this text. It is cleaned for display, and kept as
    // it is in `owner`, which a forced release compares with the key.
    let told = std::str::from_utf8(&owner).ok().and_then(|text| {
        let mut parts = text.splitn(7, ':');
        let mark = parts.next()?;
        let (_client, _number, _window) = (parts.next()?, parts.next()?, parts.next()?);
        let pid = parts.next()?.parse::<u32>().ok()?;
        let (host, label) = (parts.next()?, parts.next()?);
        (mark.len() == 2 && mark.starts_with(VERSION))
            .then(|| (pid, sanitize(host), Some(sanitize(label)).filter(|label| !label.is_empty())))
    });
    match told {
        Some((pid, host, label)) => Holder { owner, host: Some(host), pid: Some(pid), label },
        None => Holder::of_owner(owner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_names_the_holder() {
        let identity = Identity::new("billing: nightly");
        let told = holder(MutexKind.owner(&identity, 10, Duration::from_secs(3), true));
        assert_eq!(told.label(), Some("billing: nightly"));
        assert_eq!(told.pid(), Some(std::process::id()));
        assert!(identity.host_and_pid().contains(told.host().unwrap()));
        assert!(told.to_string().starts_with("billing: nightly, process "));
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_does() {
        for number in [0, 1, 9, 10, 15, 16, 255, 30_000, u64::MAX] {
            let (mut decimal, mut hex) = (b"x".to_vec(), Vec::new());
            put(&mut decimal, number, 10);
            put(&mut hex, number, 16);
            assert_eq!(decimal, format!("x{number}").into_bytes());
            assert_eq!(hex, format!("{number:x}").into_bytes());
        }
    }

    #[test]
    fn foreign_value_is_shown_without_host_or_label() {
        for value in ["", "x", "a:b:c:d:e:f", "1-:c:1:9:notanumber:h:l", "22:c:1:9:1:h:l"] {
            let told = holder(value.as_bytes().to_vec());
            assert_eq!((told.pid(), told.host(), told.label()), (None, None, None), "{value}");
            assert_eq!(told.to_string(), value);
        }
        assert_eq!(holder(vec![0xff]).to_string(), "\\xff");
        assert_eq!(holder(b"a\n\x1b[31mb".to_vec()).to_string(), r"a\n\x1b[31mb");
    }

    #[test]
    fn text_of_another_process_is_cleaned_on_reading() {
        let value = "1q:c:1:9:7:ho\nst:la\u{1b}[31mbel\u{202e}".as_bytes().to_vec();
        let told = holder(value.clone());
        assert_eq!((told.host(), told.label()), (Some("host"), Some("la[31mbel")));
        for shown in [told.to_string(), format!("{told:?}")] {
            assert!(shown.chars().all(crate::base::text::is_plain), "{shown:?}");
        }
        // It is compared with what is in Redis, so it stays as it is.
        assert_eq!(told.owner(), value);
    }
}
