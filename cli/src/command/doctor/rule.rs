//! The rules of the server's access control list: what a kind of lock needs, and what a refusal asks for.
//!
//! The words are those of "Permissions" in `docs/operations.md`; a test compares them.

use clap::ValueEnum;

/// What a user needs permissions for: a kind of lock, or jobs that run once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Use {
    Mutex,
    Reentrant,
    Semaphore,
    #[value(alias = "rw")]
    ReadWrite,
    Election,
    /// Jobs of `run --once-per`, and of the library's `once`. Their lock is a mutex.
    Once,
}

/// The commands that every kind needs…
const COMMON: &[&str] = &[
    "client|setname",
    "eval",
    "evalsha",
    "time",
    "get",
    "set",
    "exists",
    "pttl",
    "pexpire",
    "publish",
    "subscribe",
];
/// …those of a kind whose waiters stand in a line…
const LINE: &[&str] = &["zadd", "zrem", "zrange", "zscore", "zcard", "zcount", "pubsub|numsub"];

/// …those of a mutex…
const MUTEX: &[&str] = &["del"];
/// …and those of a job besides.
const JOB: &[&str] = &["hset", "hmget", "hlen", "watch", "unwatch", "multi", "exec"];

/// The commands that something needs.
pub(super) fn commands(of: Use) -> impl Iterator<Item = &'static str> {
    let (line, own, more): (&[&str], &[&str], &[&str]) = match of {
        Use::Mutex => (LINE, MUTEX, &[]),
        Use::Election => (LINE, MUTEX, &["unsubscribe"]),
        Use::Once => (LINE, MUTEX, JOB),
        Use::Reentrant => {
            (&[], &["del", "hexists", "hset", "hlen", "hkeys", "hgetall", "unsubscribe"], &[])
        }
        Use::Semaphore => (LINE, &["zmscore"], &[]),
        Use::ReadWrite => (LINE, &["del", "zmscore"], &[]),
    };
    [COMMON, line, own, more].into_iter().flatten().copied()
}

/// The keys of a lock of this name.
pub(super) fn keys(of: Use, name: &[u8]) -> Vec<Vec<u8>> {
    let words: &[&str] = match of {
        Use::Mutex => &["fence", "queue", "beats"],
        Use::Once => &["fence", "queue", "beats", "record"],
        Use::Reentrant => &["fence"],
        Use::Semaphore | Use::ReadWrite => &["fence", "line", "signs"],
        Use::Election => &["fence", "word", "candidates", "pulses"],
    };
    let mut keys = vec![name.to_vec()];
    keys.extend(words.iter().map(|word| match name.contains(&b'{') {
        true => [name, b":t", word.as_bytes()].concat(),
        false => [b"{", name, b"}:", word.as_bytes()].concat(),
    }));
    if of == Use::Reentrant {
        keys.push(redisson_channel(name));
    }
    keys
}

/// The channels that a lock of this name uses.
pub(super) fn channels(of: Use, name: &[u8]) -> Vec<Vec<u8>> {
    let mut channels = vec![b"leasehold:doctor".to_vec()];
    if of == Use::Reentrant {
        channels.push(redisson_channel(name));
    }
    channels
}

fn redisson_channel(name: &[u8]) -> Vec<u8> {
    [b"redisson_lock__channel:{", name, b"}"].concat()
}

/// A command with arguments that do no harm, as the server is asked about it.
pub(super) fn call(command: &str, key: &[u8], channel: &[u8]) -> Vec<Vec<u8>> {
    let (mut words, key): (Vec<Vec<u8>>, &[u8]) =
        (command.split('|').map(|word| word.as_bytes().to_vec()).collect(), key);
    let rest: &[&[u8]] = match command {
        "client|setname" => &[b"leasehold:"],
        "eval" => &[b"return 1", b"0"],
        "evalsha" => &[b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db", b"0"],
        "time" | "unwatch" | "multi" | "exec" => &[],
        "set" => &[key, b"leasehold-doctor", b"NX", b"PX", b"1"],
        "pexpire" => &[key, b"1", b"GT"],
        "zadd" => &[key, b"1", b"leasehold-doctor"],
        "zrem" | "zscore" | "zmscore" | "hexists" | "hmget" => &[key, b"leasehold-doctor"],
        "zrange" | "zcount" | "zremrangebyscore" => &[key, b"0", b"0"],
        "hset" => &[key, b"leasehold-doctor", b"1"],
        "publish" => &[channel, b""],
        "subscribe" | "unsubscribe" | "pubsub|numsub" => &[channel],
        _ => &[key],
    };
    words.extend(rest.iter().map(|word| word.to_vec()));
    words
}

/// The pattern for keys like this one: what stands before its last colon stays.
pub(super) fn key_pattern(key: &[u8]) -> String {
    // `{shop:a}:queue` is a key of `shop:a`.
    let name = match key.rsplit(|&byte| byte == b'}').next_back() {
        Some(before) if before.len() < key.len() && key.starts_with(b"{") => before,
        _ => key,
    };
    let prefix = name.iter().rposition(|&byte| byte == b':').map_or(&b""[..], |at| &name[..=at]);
    format!("~{}*", crate::name::Shown(prefix))
}

/// The rule that a user lacks, as the server's refusal tells: a command, or the channels.
pub(super) fn missing(refusal: &str) -> Option<String> {
    if let Some((_, rest)) = refusal.split_once("permissions to run the '") {
        return Some(format!("+{}", rest.split('\'').next()?));
    }
    refusal.contains("permissions to access a channel").then(|| "&leasehold:*".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUIDE: &str = include_str!("../../../../docs/operations.md");

    /// What the guide says that this kind needs.
    fn guide(title: &str) -> Vec<String> {
        let begin = "ACL SETUSER locks reset resetchannels on >secret ";
        let (_, rest) = GUIDE.split_once(&format!("\n# {title}\n{begin}")).expect(title);
        let rule = rest.split("\n\n").next().and_then(|rule| rule.split("\n```").next());
        rule.expect("an end").split_whitespace().map(str::to_owned).collect()
    }

    /// What the guide says that this needs besides.
    fn added(reason: &str) -> Vec<String> {
        let begin = format!("| {reason} | `");
        let row = GUIDE.lines().find_map(|line| line.strip_prefix(&begin)).expect("a row");
        let rule = row.split('`').next().expect("a rule");
        rule.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn needs_are_those_of_the_guide() {
        for (title, more, of) in [
            ("Mutex", None, Use::Mutex),
            ("ReentrantLock", None, Use::Reentrant),
            ("Semaphore", None, Use::Semaphore),
            ("RwLock", None, Use::ReadWrite),
            ("Election", None, Use::Election),
            ("Mutex", Some("`client.once`"), Use::Once),
        ] {
            let (mut guide, commands) = (guide(title), commands(of));
            guide.extend(more.map(added).unwrap_or_default());
            guide.retain(|word| word.starts_with('+'));
            let mut ours: Vec<String> = commands.map(|command| format!("+{command}")).collect();
            guide.sort();
            ours.sort();
            assert_eq!(ours, guide, "{title}");
        }
    }

    #[test]
    fn pattern_of_a_key_keeps_its_prefix() {
        for (key, pattern) in [
            ("shop:a", "~shop:*"),
            ("{shop:a}:queue", "~{shop:*"),
            ("a", "~*"),
            ("{a}:queue", "~*"),
            ("redisson_lock__channel:{shop:a}", "~redisson_lock__channel:{shop:*"),
        ] {
            assert_eq!(key_pattern(key.as_bytes()), pattern);
        }
    }

    #[test]
    fn refusals_name_the_rule() {
        let run = "NOPERM User locks has no permissions to run the 'config|get' command";
        assert_eq!(missing(run).as_deref(), Some("+config|get"));
        let channel = "NOPERM No permissions to access a channel";
        assert_eq!(missing(channel).as_deref(), Some("&leasehold:*"));
        assert_eq!(missing("WRONGPASS invalid username-password pair"), None);
    }
}
