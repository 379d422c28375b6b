//! The mutex: a string whose value is its owner.
//!
//! The value is `<version><mark>:<client>:<attempt>:<window>:<process>:<host>:<label>`. The mark
//! says whether the holder hands the lock over to the queue (`q`) or not (`-`). The window, in
//! milliseconds, is the lease that a hand-over gives to this attempt. Any other value belongs to a
//! foreign owner, which excludes ours just as well. So does a value of another version of this
//! layout, of which the scripts need to know only the part up to the window.

use std::time::Duration;

use crate::base::id::{Identity, sanitize};
use crate::base::inspection::Origin;
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
    inspect: script!("mutex/inspect.lua"),
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

    fn look(&self, key: &[u8]) -> Call {
        Call::plain(&[b"GET", key])
    }

    fn owners(&self, value: Value) -> Result<Vec<Vec<u8>>, Failure> {
        match value {
            Value::Nil => Ok(Vec::new()),
            Value::BulkString(owner) => Ok(vec![owner]),
            other => Err(unexpected(&other)),
        }
    }

    fn waiters_key(&self, name: &Name) -> Option<Vec<u8>> {
        Some(name.side_key(reserved::QUEUE))
    }

    fn origin(&self, owner: &[u8], _: &Identity) -> Option<Origin> {
        origin(owner)
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

/// Reads where an owner is. A value of another form, or of another version, is a foreign one.
fn origin(owner: &[u8]) -> Option<Origin> {
    // Any client that may write the key chooses this text. It is cleaned for display.
    let text = std::str::from_utf8(owner).ok()?;
    let mut parts = text.splitn(7, ':');
    let begin = parts.next()?;
    let [client, number, window] = [parts.next()?, parts.next()?, parts.next()?];
    let (pid, host, label) = (decimal(parts.next()?)?, parts.next()?, parts.next()?);
    let mark = begin.strip_prefix(VERSION)?;
    let is_hexadecimal =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let is_ours = [HANDS_OVER, FOREIGN].contains(&mark)
        && is_hexadecimal(client)
        && is_hexadecimal(number)
        && decimal::<u64>(window).is_some();
    is_ours.then(|| Origin {
        host: Some(sanitize(host)),
        pid: Some(pid),
        label: Some(sanitize(label)).filter(|label| !label.is_empty()),
    })
}

/// Reads digits alone: a sign, which Rust takes too, is of another's hand.
fn decimal<T: std::str::FromStr>(digits: &str) -> Option<T> {
    digits.parse().ok().filter(|_| !digits.starts_with('+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_tells_where_its_owner_is() {
        let identity = Identity::new("billing: nightly");
        let told = origin(&MutexKind.owner(&identity, 10, Duration::from_secs(3), true)).unwrap();
        assert_eq!(told, *identity.origin());
        assert_eq!(told.label.as_deref(), Some("billing: nightly"));
        assert_eq!(told.pid, Some(std::process::id()));
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
    fn value_of_another_form_or_version_is_foreign() {
        let ours = "1q:c:1:9:7:host:label";
        assert!(origin(ours.as_bytes()).is_some());
        for value in [
            "",
            "x",
            "1q",
            "a:b:c:d:e:f",
            "1-:c:1:9:notanumber:h:l",
            "22:c:1:9:1:h:l",
            "2q:c:1:9:7:host:label",
            "11q:c:1:9:7:host:label",
            "1x:c:1:9:7:host:label",
            "1:c:1:9:7:host:label",
            "1q:c:1:9:7:host",
            "1q:zz:1:9:7:host:label",
            "1q::1:9:7:host:label",
            "1q:c:x:9:7:host:label",
            "1q:c:1:-9:7:host:label",
            "1q:c:1:9:+7:host:label",
            "1q:c:1:9:4294967296:host:label",
        ] {
            assert_eq!(origin(value.as_bytes()), None, "{value}");
        }
        assert_eq!(origin(b"1q:c:1:9:7:h\xff:l"), None);
    }

    #[test]
    fn text_of_another_process_is_cleaned_on_reading() {
        let told = origin("1q:c:1:9:7:ho\nst:la\u{1b}[31mbel\u{202e}".as_bytes()).unwrap();
        assert_eq!(
            (told.host.as_deref(), told.label.as_deref()),
            (Some("host"), Some("la[31mbel"))
        );
        assert!(told.to_string().chars().all(crate::base::text::is_plain));
    }

    proptest::proptest! {
        #[test]
        fn any_value_is_read_or_foreign(bytes in proptest::collection::vec(0_u8.., 0..80), cut in 0_usize..90) {
            origin(&bytes);
            let ours = MutexKind.owner(&Identity::new("a:b"), 1, Duration::from_secs(1), true);
            let cut = cut.min(ours.len());
            origin(&[&ours[..cut], &bytes, &ours[cut..]].concat());
        }
    }
}
