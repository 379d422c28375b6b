//! What the user may do, and the rule to add.

use leasehold::redis;

use super::check::Check;
use super::finding::Finding;
use super::probe::Probe;
use super::rule::{self, Use};

const SCRIPT: &str = include_str!("permission.lua");
const INDEX: &[u8] = b"leasehold:index";

/// What is missing of something that a script was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    Nothing,
    Command,
    Key,
    Channel,
    /// The server does not know it.
    Unknown,
}

/// Which finding a missing rule belongs to, in the order of their lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Locks,
    Listening,
    Grants,
    Announcements,
    Name,
}

const GROUPS: [Group; 5] =
    [Group::Locks, Group::Listening, Group::Grants, Group::Announcements, Group::Name];

/// Something that is asked about.
struct Need {
    group: Group,
    command: &'static str,
    key: Vec<u8>,
    channel: Vec<u8>,
}

/// A user that may not do what a connection needs.
pub(super) fn no_connection(error: &leasehold::Error, rule: &str, user: &str) -> Finding {
    Finding::fault(Check::Permissions, error.to_string())
        .so("no connection can be had")
        .mend(format!("ACL SETUSER {} {rule}", crate::name::Shown(user.as_bytes())))
}

pub(super) fn check(probe: &Probe<'_>, uses: &[Use]) -> Vec<Finding> {
    let lua: Result<i64, String> = probe.get(redis::cmd("EVAL").arg("return 1").arg(0));
    let lua = match lua {
        Ok(_) => Finding::fine(Check::Lua, "scripts run"),
        Err(why) => {
            let fault_text = why.clone();
            let fault = Finding::fault(Check::Lua, why.clone())
                .so("no lock can be had: each call is a script");
            // The same for a script that the server has: where it may be run, there is merely none.
            let words = rule::call("evalsha", b"", b"");
            let mut again = redis::Cmd::new();
            words.iter().for_each(|word| _ = again.arg(word.as_slice()));
            let by_digest = probe.get::<i64>(&again).err();
            let rules: Vec<String> = [Some(why), by_digest]
                .into_iter()
                .flatten()
                .filter_map(|why| rule::missing(&why))
                .collect();
            let unknown = Finding::unknown(Check::Permissions, "only a script could tell");
            let mended = format!("ACL SETUSER {} {}", probe.user(), rules.join(" "));
            let is_unknown = is_unknown_command(&fault_text);
            return vec![
                match (rules.is_empty(), is_unknown) {
                    (_, true) => no_command("EVAL or EVALSHA"),
                    (true, false) => fault,
                    (false, false) => fault.mend(mended),
                },
                unknown,
            ];
        }
    };
    let needs: Vec<Need> = uses.iter().flat_map(|of| needs(*of, &probe.name)).collect();
    let mut findings = vec![lua];
    match lacks(probe, &needs) {
        Ok(lacks) => findings.extend(judge(probe, &needs, &lacks)),
        Err(why) => findings.push(Finding::unknown(Check::Permissions, why)),
    }
    findings
}

fn needs(of: Use, name: &[u8]) -> Vec<Need> {
    let (keys, channels) = (rule::keys(of, name), rule::channels(of, name));
    let need = |group, command, key: &[u8], channel: &[u8]| Need {
        group,
        command,
        key: key.to_vec(),
        channel: channel.to_vec(),
    };
    let mut needs = Vec::new();
    for command in rule::commands(of) {
        match command {
            "publish" | "subscribe" | "unsubscribe" => {
                needs.extend(channels.iter().map(|channel| {
                    let group = if command == "publish" { Group::Grants } else { Group::Listening };
                    need(group, command, &keys[0], channel)
                }))
            }
            "pubsub|numsub" => needs.push(need(Group::Grants, command, &keys[0], &channels[0])),
            "client|setname" => needs.push(need(Group::Name, command, &keys[0], &channels[0])),
            "exists" => {
                needs.extend(keys.iter().map(|key| need(Group::Locks, command, key, &channels[0])));
            }
            _ => needs.push(need(Group::Locks, command, &keys[0], &channels[0])),
        }
    }
    for command in ["zadd", "zremrangebyscore"] {
        needs.push(need(Group::Announcements, command, INDEX, &channels[0]));
    }
    needs
}

fn lacks(probe: &Probe<'_>, needs: &[Need]) -> Result<Vec<Lack>, String> {
    let mut ask = redis::cmd("EVAL");
    ask.arg(SCRIPT).arg(0);
    for need in needs {
        let words = rule::call(need.command, &need.key, &need.channel);
        ask.arg(words.len());
        words.iter().for_each(|word| _ = ask.arg(word.as_slice()));
    }
    let replies: Vec<i64> = probe.get(&ask)?;
    let lack = |reply| match reply {
        0 => Lack::Nothing,
        2 => Lack::Key,
        3 => Lack::Channel,
        4 => Lack::Unknown,
        _ => Lack::Command,
    };
    Ok(replies.into_iter().map(lack).collect())
}

fn judge(probe: &Probe<'_>, needs: &[Need], lacks: &[Lack]) -> Vec<Finding> {
    let mut missing: Vec<(Group, String)> = Vec::new();
    let mut unknown: Vec<String> = Vec::new();
    for (need, lack) in needs.iter().zip(lacks) {
        let rule = match lack {
            Lack::Nothing => continue,
            Lack::Unknown => {
                let word = need.command.split('|').next().unwrap_or(need.command).to_uppercase();
                if !unknown.contains(&word) {
                    unknown.push(word);
                }
                continue;
            }
            Lack::Key if need.key == INDEX => "~leasehold:index".to_owned(),
            Lack::Key => rule::key_pattern(&need.key),
            Lack::Channel if need.channel.starts_with(b"leasehold:") => "&leasehold:*".to_owned(),
            Lack::Channel => rule::key_pattern(&need.channel).replacen('~', "&", 1),
            // No script may run these, so that they are not told apart here from a channel or a key that is missing.
            Lack::Command
                if ["subscribe", "watch"].contains(&need.command)
                    && is_denied(need, needs, lacks) =>
            {
                continue;
            }
            Lack::Command => format!("+{}", need.command),
        };
        // Without its channel nobody may subscribe either, which is worse.
        let group = if *lack == Lack::Channel { Group::Listening } else { need.group };
        if !missing.iter().any(|(_, known)| *known == rule) {
            missing.push((group, rule));
        }
    }
    let user = probe.user();
    let finding = |group: Group| {
        let mine = missing.iter().filter(|(of, _)| *of == group).map(|(_, rule)| rule.as_str());
        group.finding(&user, &mine.collect::<Vec<_>>())
    };
    let renamed = (!unknown.is_empty()).then(|| no_command(&unknown.join(" ")));
    renamed.into_iter().chain(GROUPS.into_iter().filter_map(finding)).collect()
}

/// Commands that the server does not know: no rule for a user brings them back.
fn no_command(words: &str) -> Finding {
    Finding::fault(Check::Commands, format!("the server does not know {words}"))
        .so("calls fail, and a script that is stopped half-way may leave a key behind")
        .mend(
            "take the lines `rename-command` for them out of its redis.conf; connect past a proxy",
        )
}

/// Whether the server refused a command because it does not know it.
fn is_unknown_command(why: &str) -> bool {
    why.contains("unknown command") || why.contains("does not know a command")
}

/// Whether another command was refused this need's channel or its key, whichever it has.
fn is_denied(need: &Need, needs: &[Need], lacks: &[Lack]) -> bool {
    let is_so = |(other, lack): (&Need, &Lack)| match need.command {
        "subscribe" => *lack == Lack::Channel && other.channel == need.channel,
        _ => *lack == Lack::Key && other.key == need.key,
    };
    needs.iter().zip(lacks).any(is_so)
}

impl Group {
    /// What the missing rules mean. What is not missing is one line for all commands, and one for messages.
    fn finding(self, user: &str, missing: &[&str]) -> Option<Finding> {
        let rules = missing.join(" ");
        let seen = format!("missing: {rules}");
        let mend = format!("ACL SETUSER {user} {rules}");
        let finding = match (self, missing.is_empty()) {
            (Group::Locks, true) => Finding::fine(Check::Permissions, format!("{user} has all that locks need")),
            (Group::Locks, false) => Finding::fault(Check::Permissions, seen)
                .so("calls fail, and a script that is stopped half-way may leave a key behind")
                .mend(match missing.iter().any(|rule| rule.starts_with('~')) {
                    true => format!("{mend} (or try --name with a name that this user may use)"),
                    false => mend,
                }),
            (Group::Listening, true) => Finding::fine(Check::Messages, "it may subscribe"),
            (Group::Listening, false) => Finding::fault(Check::Messages, seen)
                .so("no wait for a lock: it fails as denied; Wait::spin() needs no messages")
                .mend(mend),
            (Group::Grants, false) => Finding::warning(Check::Grants, seen)
                .so("a waiter learns of its grant up to a second late, and of a killed waiter before it up to 3 s late")
                .mend(mend),
            (Group::Announcements, false) => Finding::warning(Check::Announcements, seen)
                .so("ls and top do not list this user's locks without --scan")
                .mend(mend),
            (Group::Name, false) => Finding::warning(Check::Name, seen)
                .so("connections have no name in CLIENT LIST")
                .mend(mend),
            (_, true) => return None,
        };
        Some(finding)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_support::Server;

    use super::*;

    #[test]
    fn nothing_is_run_where_permissions_cannot_be_asked() {
        let server = Server::start().expect("a server");
        // What a server before Redis 7.0 has.
        let older = "local redis = { pcall = redis.pcall, error_reply = redis.error_reply }\n";
        let script = format!("{older}{SCRIPT}");
        let mut ask = redis::cmd("EVAL");
        ask.arg(script).arg(0).arg(3);
        for word in ["set", "x", "1"] {
            ask.arg(word);
        }
        let refusal = ask.query::<Vec<i64>>(&mut server.connection()).expect_err("no reply");
        assert!(refusal.to_string().contains("acl_check_cmd"), "{refusal}");
        assert_eq!(server.keys(), Vec::<Vec<u8>>::new());
    }
}
