//! The value with which an attempt owns a lock that has a queue, or waits in it.
//!
//! It is `<version><mark>:<client>:<attempt>:<window>:<process>:<host>:<label>`, and has what the attempt asks for
//! behind the window where holds have weights, and the letter `e` there where it leads an election. The mark says whether the holder hands the lock over to the queue
//! (`q`) or not (`-`). The window, in milliseconds, is the time to live that a hand-over gives to the key of this attempt.
//! Any other value belongs to a foreign owner, which excludes ours just as well. So does a value of another version of
//! this layout: the scripts read any digit there, and of the rest only the part up to the window, or to the weight. A
//! later version keeps that part, and may change what stands behind it.
//!
//! The version is 1, or 2 where the lease has a tail. Then the tail, in milliseconds, stands before the process, and is a
//! part of the window: so each client that hands over writes the key for long enough, also one that knows only version 1
//! (rule 49).

use std::time::Duration;

use crate::base::id::{Identity, sanitize};
use crate::base::inspection::Origin;
use crate::base::share::Share;
use crate::base::time::millis;
use crate::protocol::lock_kind::Window;

const VERSION: &str = "1";
const WITH_TAIL: &str = "2";
const HANDS_OVER: &str = "q";
const FOREIGN: &str = "-";

/// The value of one attempt.
pub(super) fn write(
    identity: &Identity,
    number: u64,
    window: Window,
    hands_over: bool,
    share: Share,
) -> Vec<u8> {
    // The value contains what a hand-over must know about this attempt: the channel of its
    // client, its number, its window and its weight. So no further key is needed for each waiter.
    let mark = if hands_over { HANDS_OVER } else { FOREIGN };
    let has_tail = !window.tail.is_zero();
    let version = if has_tail { WITH_TAIL } else { VERSION };
    let mut owner = Vec::with_capacity(128);
    for text in [version, mark, ":", identity.id(), ":"] {
        owner.extend_from_slice(text.as_bytes());
    }
    put(&mut owner, number, 16);
    owner.push(b':');
    put(&mut owner, millis(window.lease + window.tail), 10);
    owner.push(b':');
    match share {
        Share::Whole => {}
        Share::Permits { count, .. } => put(&mut owner, count.into(), 10),
        Share::Access(access) => owner.push(access.letter()),
        Share::Lead => owner.push(b'e'),
    }
    if share != Share::Whole {
        owner.push(b':');
    }
    if has_tail {
        put(&mut owner, millis(window.tail), 10);
        owner.push(b':');
    }
    // Last, because the label may contain colons. It serves people only: no script reads it.
    owner.extend_from_slice(identity.host_and_pid().as_bytes());
    owner
}

/// Where an owner is. `has_share` says whether the values of its kind say what they ask for. A value of another form,
/// or of another version, is a foreign one.
pub(super) fn origin(owner: &[u8], has_share: bool) -> Option<Origin> {
    read(owner, has_share).map(|(origin, _)| origin)
}

/// For how long the key of this owner outlives its lease.
pub(super) fn tail(owner: &[u8], has_share: bool) -> Duration {
    // Only what begins so has one, and few owners do.
    match owner.starts_with(WITH_TAIL.as_bytes()) {
        true => read(owner, has_share).map_or(Duration::ZERO, |(_, tail)| tail),
        false => Duration::ZERO,
    }
}

fn read(owner: &[u8], has_share: bool) -> Option<(Origin, Duration)> {
    // Any client that may write the key chooses this text. It is cleaned for display.
    let text = std::str::from_utf8(owner).ok()?;
    let has_tail = text.starts_with(WITH_TAIL);
    let mut parts = text.splitn(7 + usize::from(has_share) + usize::from(has_tail), ':');
    let begin = parts.next()?;
    let [client, number, window] = [parts.next()?, parts.next()?, parts.next()?];
    let share = if has_share { parts.next()? } else { "" };
    let tail = if has_tail { decimal(parts.next()?)? } else { 0 };
    let (pid, host, label) = (decimal(parts.next()?)?, parts.next()?, parts.next()?);
    let mark = begin.strip_prefix(if has_tail { WITH_TAIL } else { VERSION })?;
    let is_hexadecimal =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let is_ours = [HANDS_OVER, FOREIGN].contains(&mark)
        && is_hexadecimal(client)
        && is_hexadecimal(number)
        && decimal::<u64>(window).is_some()
        && (!has_share || ["r", "u", "w", "e"].contains(&share) || decimal::<u32>(share).is_some());
    let origin = || Origin {
        host: Some(sanitize(host)),
        pid: Some(pid),
        label: Some(sanitize(label)).filter(|label| !label.is_empty()),
    };
    is_ours.then(|| (origin(), Duration::from_millis(tail)))
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

/// Reads digits alone: a sign, which Rust takes too, is of another's hand.
fn decimal<T: std::str::FromStr>(digits: &str) -> Option<T> {
    digits.parse().ok().filter(|_| !digits.starts_with('+'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::share::Access;

    fn written(identity: &Identity, share: Share) -> Vec<u8> {
        write(identity, 10, Duration::from_secs(3).into(), true, share)
    }

    #[test]
    fn value_tells_where_its_owner_is() {
        let identity = Identity::new("billing: nightly");
        let parsed = origin(&written(&identity, Share::Whole), false).unwrap();
        assert_eq!(parsed, *identity.origin());
        assert_eq!(parsed.label.as_deref(), Some("billing: nightly"));
        assert_eq!(parsed.pid, Some(std::process::id()));
        assert!(parsed.to_string().starts_with("billing: nightly, process "));
    }

    #[test]
    fn value_tells_what_its_attempt_asks_for() {
        let identity = Identity::new("billing");
        for (share, word) in [
            (Share::Permits { count: 12, limit: 40 }, ":3000:12:"),
            (Share::Access(Access::Read), ":3000:r:"),
            (Share::Access(Access::UpgradableRead), ":3000:u:"),
            (Share::Access(Access::Write), ":3000:w:"),
            (Share::Lead, ":3000:e:"),
        ] {
            let owner = written(&identity, share);
            assert!(String::from_utf8_lossy(&owner).contains(word), "{}", owner.escape_ascii());
            assert_eq!(origin(&owner, true), Some(identity.origin().clone()));
        }
        for odd in ["1q:c:1:9:x:7:host:label", "1q:c:1:9::7:host:label", "1q:c:1:9:+2:7:host:label"]
        {
            assert_eq!(origin(odd.as_bytes(), true), None, "{odd}");
        }
    }

    /// Each client hands over for as long as the window says, also one of another version (rule 49).
    #[test]
    fn value_with_a_tail_has_it_in_its_window() {
        let identity = Identity::new("billing: nightly");
        let (lease, tail) = (Duration::from_secs(3), Duration::from_secs(27));
        for (share, middle) in [(Share::Whole, ":30000:27000:"), (Share::Lead, ":30000:e:27000:")] {
            let owner = write(&identity, 10, Window { lease, tail }, true, share);
            let has_share = share == Share::Lead;
            let text = String::from_utf8_lossy(&owner);
            assert!(text.starts_with("2q:") && text.contains(middle), "{text}");
            assert_eq!(origin(&owner, has_share), Some(identity.origin().clone()));
            assert_eq!(self::tail(&owner, has_share), tail);
            let without = written(&identity, share);
            assert!(without.starts_with(b"1q:"));
            assert_eq!(self::tail(&without, has_share), Duration::ZERO);
        }
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
        assert!(origin(ours.as_bytes(), false).is_some());
        for value in [
            "",
            "x",
            "1q",
            "a:b:c:d:e:f",
            "1-:c:1:9:notanumber:h:l",
            "22:c:1:9:1:h:l",
            "2q:c:1:9:7:host:label",
            "2q:c:1:9:-4:7:host:label",
            "3q:c:1:9:7:host:label",
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
            assert_eq!(origin(value.as_bytes(), false), None, "{value}");
        }
        assert_eq!(origin(b"1q:c:1:9:7:h\xff:l", false), None);
    }

    #[test]
    fn text_of_another_process_is_cleaned_on_reading() {
        let parsed = origin("1q:c:1:9:7:ho\nst:la\u{1b}[31mbel\u{202e}".as_bytes(), false).unwrap();
        assert_eq!(
            (parsed.host.as_deref(), parsed.label.as_deref()),
            (Some("host"), Some("la[31mbel"))
        );
        assert!(parsed.to_string().chars().all(crate::base::text::is_plain));
    }

    proptest::proptest! {
        #[test]
        fn any_value_is_read_or_foreign(bytes in proptest::collection::vec(0_u8.., 0..80), cut in 0_usize..90) {
            let permits = Share::Permits { count: 3, limit: 4 };
            for (share, has_share) in [(Share::Whole, false), (permits, true)] {
                origin(&bytes, has_share);
                tail(&bytes, has_share);
                let ours = written(&Identity::new("a:b"), share);
                let cut = cut.min(ours.len());
                origin(&[&ours[..cut], &bytes, &ours[cut..]].concat(), has_share);
            }
        }
    }
}
