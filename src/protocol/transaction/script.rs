//! The transaction of a weighted lock. A script runs its commands, once Redis has said of each that a script can (rule 42).

use std::collections::BTreeMap;

use crate::base::tag::hash_slot;
use crate::base::time::Moment;
use crate::protocol::lock_kind::WeightedScripts;
use crate::protocol::reply::unexpected;
use crate::protocol::target::Target;
use crate::wire::connection::{Reply, Session};
use crate::wire::failure::Failure;
use crate::wire::script::Argument::{Bytes, Number};
use crate::wire::script::Call;
use crate::wire::{Arg, Pipeline, Value};

/// The most words of one command that Lua can pass on.
const MOST_WORDS: usize = 7_000;
/// Where `COMMAND INFO` tells of the subcommands of a command.
const SUBCOMMANDS: usize = 9;

/// The words of a command.
type Words<'a> = Vec<&'a [u8]>;

/// Runs a user's commands if the owner has this lock. Returns their replies; `None` if it does not have it.
pub(super) fn apply(
    session: &mut dyn Session,
    target: &Target,
    scripts: &'static WeightedScripts,
    owner: &[u8],
    pipeline: &Pipeline,
    deadline: Moment,
) -> Result<Option<Vec<Value>>, Failure> {
    let word = |arg| match arg {
        Arg::Simple(word) => word,
        // Not a word, but the place of a cursor, which only an iterator of the driver fills in.
        _ => &b"0"[..],
    };
    let commands: Vec<Words<'_>> =
        pipeline.cmd_iter().map(|cmd| cmd.args_iter().map(word).collect()).collect();
    // Nothing of the user's is sent until then, so a connection that dies before leaves no doubt.
    let asked = ask(session, &commands, deadline);
    let (needs, found) = asked.map_err(Failure::before_sending)?;

    let mut keys = vec![target.key().to_vec()];
    if let Some(never) = target.key_in_cluster() {
        // A node that is moving the slot refuses what has a key that is not there, also a command within a script whose
        // key an earlier one has deleted. With this key it refuses the script.
        keys.extend((commands.len() > 1).then(|| never.to_vec()));
        // It has no key, and Redis asks for the slot of its channel all the same.
        let channels = commands.iter().filter(|words| is(words[0], "SPUBLISH"));
        let slot = hash_slot(target.key());
        if channels.filter_map(|words| words.get(1)).any(|channel| hash_slot(channel) != slot) {
            return Err(Failure::cross_slot());
        }
    }
    keys.extend(found);

    let words = commands.iter().zip(needs).flat_map(|(words, need)| {
        let first = [Bytes(need), Number(words.len() as u64)];
        first.into_iter().chain(words.iter().map(|word| Bytes(word)))
    });
    let arguments = std::iter::once(Bytes(owner)).chain(words).collect::<Vec<_>>();
    match session.call(&scripts.transaction.call(&keys, arguments), deadline)?.value {
        Value::Int(0) => Ok(None),
        Value::Array(replies) if replies.len() == commands.len() => Ok(Some(replies)),
        other => Err(unexpected(&other)),
    }
}

/// What each command needs of the server.
type Needs = Vec<&'static [u8]>;

/// Asks the server about the commands before any of them runs. Returns what each needs, and the keys of all. If a script
/// cannot run one of them, the whole transaction is refused.
///
/// A script declares its keys, and only the server knows which words of a command are keys. A command of one word has
/// none, and `COMMAND GETKEYS` of Redis 7.0 refuses it.
fn ask(
    session: &mut dyn Session,
    commands: &[Words<'_>],
    deadline: Moment,
) -> Result<(Needs, Vec<Vec<u8>>), Failure> {
    let mut names: Vec<&[u8]> = commands.iter().map(|words| words[0]).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        // Without a name `COMMAND INFO` would tell of all commands.
        return Ok((Vec::new(), Vec::new()));
    }
    let about = |subcommand: &'static [u8], words: &[&[u8]]| {
        Call::plain(&[&[b"COMMAND", subcommand], words].concat())
    };
    let keyed = || commands.iter().filter(|words| words.len() > 1);
    let questions: Vec<Call> = std::iter::once(about(b"INFO", &names))
        .chain(keyed().map(|words| about(b"GETKEYS", words)))
        .collect();
    // All replies are read, or the next user of the connection would get those that are left.
    let mut replies = session.call_all(&questions, deadline).into_iter();
    let mut next = || replies.next().unwrap_or_else(|| Err(Failure::silent()));

    let known = next()?.value;
    let infos = match &known {
        Value::Array(infos) if infos.len() == names.len() => infos,
        other => return Err(unexpected(other)),
    };
    let infos: BTreeMap<&[u8], &Value> = names.into_iter().zip(infos).collect();
    let need = |words: &Words<'_>| need(words, infos[words[0]]);
    let needs = commands.iter().map(need).collect::<Result<Vec<_>, _>>()?;
    let mut keys = Vec::new();
    for words in keyed() {
        keys.extend(keys_of(words, next())?);
    }
    Ok((needs, keys))
}

/// What a command needs of the server, as the script calls it, from what `COMMAND INFO` says about it.
fn need(words: &[&[u8]], info: &Value) -> Result<&'static [u8], Failure> {
    let name = words[0];
    let refused = |why| Err(Failure::refused_here(format!("\"{}\" {why}", name.escape_ascii())));
    if *info == Value::Nil {
        return refused("of the transaction is no command that this server knows");
    }
    let subcommands = items(info).get(SUBCOMMANDS).map_or(&[][..], items);
    let info = match words.get(1) {
        Some(second) if !subcommands.is_empty() => {
            let whole = [name, b"|", second].concat();
            let is_it = |it: &&Value| match items(it).first() {
                Some(Value::BulkString(found)) => found.eq_ignore_ascii_case(&whole),
                _ => false,
            };
            match subcommands.iter().find(is_it) {
                Some(found) => found,
                None => return refused("of the transaction has no such subcommand"),
            }
        }
        _ => info,
    };
    let [_, Value::Int(arity), flags, ..] = items(info) else { return Err(unexpected(info)) };
    let (count, least) = (words.len() as u64, arity.unsigned_abs());
    if count < least || *arity > 0 && count > least {
        return refused("of the transaction has a wrong number of arguments");
    }
    let has = |flag: &str| {
        let is_it = |it: &Value| matches!(it, Value::SimpleString(found) if found == flag);
        items(flags).iter().any(is_it)
    };
    if has("noscript") {
        return refused(
            "cannot be called by a script, and one runs the transaction of a semaphore or a read-write lock",
        );
    }
    if blocks(words) {
        return refused("of the transaction cannot wait: leave its option BLOCK out");
    }
    if words.len() > MOST_WORDS {
        return refused("of the transaction has more words than a script can pass on");
    }
    Ok(match (has("denyoom"), has("write")) {
        (true, _) => b"memory",
        (false, true) => b"write",
        (false, false) => b"nothing",
    })
}

/// The parts of a reply that has any.
fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        _ => &[],
    }
}

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// Whether it reads a stream with the option to wait, which Redis 7.0 refuses within a script only when it runs.
fn blocks(words: &[&[u8]]) -> bool {
    let Some((name, mut rest)) = words.split_first() else { return false };
    if !is(name, "XREAD") && !is(name, "XREADGROUP") {
        return false;
    }
    while let [option, ..] = rest {
        let length = match option {
            _ if is(option, "BLOCK") => return true,
            _ if is(option, "STREAMS") => return false,
            _ if is(option, "GROUP") => 3,
            _ if is(option, "COUNT") => 2,
            _ => 1,
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    false
}

/// The keys of a command. If the server cannot tell them, the whole transaction is refused.
fn keys_of(words: &[&[u8]], reply: Result<Reply, Failure>) -> Result<Vec<Vec<u8>>, Failure> {
    match reply {
        Ok(Reply { value: Value::Array(keys), .. }) => {
            let key = |key| match key {
                Value::BulkString(key) => Ok(key),
                other => Err(unexpected(&other)),
            };
            keys.into_iter().map(key).collect()
        }
        Ok(Reply { value, .. }) => Err(unexpected(&value)),
        Err(failure) if failure.is_without_keys() => Ok(Vec::new()),
        Err(failure) if failure.code() == Some("ERR") => Err(Failure::refused_here(format!(
            "\"{}\" of the transaction has unknown keys: {failure}",
            words[0].escape_ascii()
        ))),
        Err(failure) => Err(failure),
    }
}
