//! Stories of single scripts, on a server in memory whose clock stands: what each answers at an exact microsecond, in the
//! last millisecond of a key, beside a key of another type, and where a command is denied to the user.
//!
//! A file of this folder has the stories of a kind. A story begins with `#` and its title, and each line is a step:
//!
//! | step | meaning |
//! | --- | --- |
//! | `+7` | 7 µs pass |
//! | `deny ZCARD` | from now on this command is denied to scripts; `deny` alone allows all again |
//! | `GET x` | a command |
//! | `renew $a 3000` | the script of this name with these arguments. `renew:121` gives it the keys 1, 2 and 1 of the lock |
//! | `count renew $a 3000` | the same, with the names of the commands that the script calls |
//! | `… → 1` | the reply to that. Messages follow it, such as `; a: x 1 x`, which is one to the client `a` |
//! | `… → WRONGTYPE…` | an error that begins so |
//! | `listen` | from now on somebody listens to the kind's channel |
//!
//! A test fails where a reply is another one, and at an error that the step does not name. The lock is `x`. Of the
//! clients `a` to `f` the first four listen.
//!
//! | word | meaning |
//! | --- | --- |
//! | `@7` | the time 7 µs after the begin |
//! | `$a` | the attempt of the client `a` |
//! | `*7` | a text of seven letters |
//! | `&7` | the fields of seven threads of the client `a` in a hash, with their hold counts |

use super::kinds;
use crate::base::kind::Kind;
use crate::base::name::Name;
use crate::kind::mutex::quorum::QuorumKind;
use crate::protocol::lock_kind::LockKind;
use crate::protocol::target::Target;
use crate::topology::memory::{Store, call};
use crate::wire::Value;
use crate::wire::script::{Argument, Script};

/// The microseconds of this time have one digit.
const BEGIN: i64 = 1_700_000_000_000_000;
/// Tokens and times are so near to it, all other numbers are not.
const NEAR: i64 = 1_000_000_000_000;
const CLIENTS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const LISTENERS: usize = 4;

/// Stands before a script, so that its commands can be denied and counted.
const WATCH: &str = "local redis = (function(real, denied)
  local function ask(word)
    real.call('PUBLISH', 'asked', word)
    return word == denied and {err = 'NOPERM ' .. word}
  end
  return {
    call = function(word, ...)
      local refused = ask(word)
      if refused then error(refused, 0) end
      return real.call(word, ...)
    end,
    pcall = function(word, ...) return ask(word) or real.pcall(word, ...) end,
  }
end)(redis, 'DENIED')
";

struct Lab {
    kind: &'static dyn LockKind,
    store: Store,
    now: i64,
    denied: String,
}

impl Lab {
    fn new(kind: &'static dyn LockKind) -> Lab {
        let mut store = Store::default();
        for (number, client) in (0..).zip(&CLIENTS[..LISTENERS]) {
            store.subscribe(number, format!("leasehold:{}", client_name(kind, client)).as_bytes());
        }
        Lab { kind, store, now: BEGIN, denied: String::new() }
    }

    /// Takes a step, and tells what came of it: a reply, or an error.
    fn step(&mut self, step: &str) -> Result<String, String> {
        if let Some(span) = step.strip_prefix('+') {
            self.now += span.parse::<i64>().expect("a span");
            return Ok(String::new());
        }
        if let Some(word) = step.strip_prefix("deny") {
            word.trim().clone_into(&mut self.denied);
            return Ok(String::new());
        }
        if step == "listen" {
            let name = Name::new(b"", b"x").expect("a name");
            let channel = self.kind.channel(&name).expect("a channel");
            self.store.subscribe(LISTENERS as u64, &channel);
            return Ok(String::new());
        }
        let counted = step.strip_prefix("count ");
        let spelt = self.spell(counted.unwrap_or(step));
        let words: Vec<Vec<u8>> = spelt.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let name = spelt.split(' ').next().unwrap_or_default();
        let command = match self.script(name) {
            Some((script, keys)) => self.watched(script, &keys, &words[1..]),
            None => words,
        };
        let micros = self.now.unsigned_abs();
        let (reply, effects) = self.store.run(micros, |run| call(run, &command));
        let value = reply.map_err(|error| error.text().to_owned())?;
        let mut told = self.tell(&value);
        for message in effects.published {
            let channel = String::from_utf8_lossy(&message.channel);
            let payload = self.read(&message.payload);
            if channel != "asked" {
                let client = channel.strip_prefix("leasehold:").unwrap_or(&channel);
                let client = CLIENTS.iter().find(|it| client_name(self.kind, it) == client);
                told += &format!("; {}: {payload}", client.copied().unwrap_or(&channel));
            } else if counted.is_some() {
                told += &format!(" {payload}");
            }
        }
        Ok(told)
    }

    /// The script of this name, and its keys; nothing for the name of a command.
    fn script(&self, word: &str) -> Option<(&'static Script, Vec<Vec<u8>>)> {
        let (name, chosen) = word.split_once(':').unwrap_or((word, ""));
        let scripts = self.kind.scripts();
        let script = match name {
            "acquire" => &scripts.acquire,
            "release" => &scripts.release,
            "renew" => &scripts.renew,
            "touch" => &scripts.touch,
            "force" => &scripts.force,
            "inspect" => &scripts.inspect,
            "request" => scripts.request.as_ref()?,
            "proclaim" => scripts.proclaim.as_ref()?,
            _ => return None,
        };
        let target = Target::in_cluster(self.kind, Name::new(b"", b"x").expect("a name"));
        let keys: Vec<_> = target.keys().iter().map(|key| key.to_vec()).collect();
        let number = match name {
            "renew" | "touch" | "proclaim" => self.kind.lease_keys(),
            _ => keys.len() - 1,
        };
        let chosen: Vec<_> = chosen.bytes().map(|digit| usize::from(digit - b'1')).collect();
        let keys = match chosen.is_empty() {
            true => keys[..number].to_vec(),
            false => chosen.iter().map(|&at| keys[at].clone()).collect(),
        };
        Some((script, keys))
    }

    /// The command that runs a script with the watch before it.
    fn watched(
        &self,
        script: &'static Script,
        keys: &[Vec<u8>],
        arguments: &[Vec<u8>],
    ) -> Vec<Vec<u8>> {
        let arguments = arguments.iter().map(|it| Argument::Bytes(it));
        let mut words = script.call(keys, arguments).words();
        let watch = WATCH.replace("DENIED", &self.denied).into_bytes();
        words[1] = [watch, std::mem::take(&mut words[1])].concat();
        words
    }

    /// The step with what its short words stand for.
    fn spell(&self, step: &str) -> String {
        let number = |text: &str| text.parse::<i64>().expect("a number");
        let word = |word: &str| {
            if let Some(after) = word.strip_prefix('@') {
                (BEGIN + number(after)).to_string()
            } else if let Some(length) = word.strip_prefix('*') {
                "y".repeat(usize::try_from(number(length)).expect("a length"))
            } else if let Some(count) = word.strip_prefix('&') {
                let owner = attempt(self.kind, "a");
                let owner = owner.trim_end_matches('1');
                let fields = (1..=number(count)).map(|thread| format!("{owner}{thread} 1"));
                fields.collect::<Vec<_>>().join(" ")
            } else {
                let spelt = |word: String, client: &&str| {
                    word.replace(&format!("${client}"), &attempt(self.kind, client))
                };
                CLIENTS.iter().fold(word.to_owned(), spelt)
            }
        };
        step.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }

    fn tell(&self, value: &Value) -> String {
        match value {
            Value::Array(parts) => {
                let parts: Vec<_> = parts.iter().map(|part| self.tell(part)).collect();
                format!("{{{}}}", parts.join(", "))
            }
            Value::BulkString(text) if text.is_empty() => "''".to_owned(),
            Value::BulkString(text) => self.read(text),
            Value::SimpleString(text) => text.clone(),
            Value::Okay => "OK".to_owned(),
            Value::Int(number) => self.read(number.to_string().as_bytes()),
            Value::Nil => "nil".to_owned(),
            other => format!("{other:?}"),
        }
    }

    /// The opposite of `spell`, for each word of a text.
    fn read(&self, text: &[u8]) -> String {
        let text = String::from_utf8_lossy(text);
        let read = |word: &str| match word.parse::<i64>() {
            Ok(number) if (number - BEGIN).abs() < NEAR => format!("@{}", number - BEGIN),
            _ => CLIENTS.iter().fold(word.to_owned(), |word, client| {
                word.replace(&attempt(self.kind, client), &format!("${client}"))
            }),
        };
        text.split(' ').map(read).collect::<Vec<_>>().join(" ")
    }
}

/// What a client's channel has in its name.
fn client_name(kind: &dyn LockKind, client: &str) -> String {
    client.repeat(if kind.kind() == Kind::ReentrantLock { 32 } else { 1 })
}

/// The owner's value of a client's only attempt.
fn attempt(kind: &dyn LockKind, client: &str) -> String {
    match kind.kind() {
        Kind::ReentrantLock => {
            let parts = [8, 4, 4, 4, 12].map(|length| client.repeat(length));
            format!("{}:1", parts.join("-"))
        }
        Kind::Election => format!("1q:{client}:1:3000:e:7:h:"),
        _ => format!("1q:{client}:1:3000:7:h:"),
    }
}

fn tell(kind: &'static dyn LockKind, stories: &str) {
    let mut wrong = Vec::new();
    for story in stories.split("# ").skip(1) {
        let mut lines = story.lines().map(str::trim).filter(|line| !line.is_empty());
        let title = lines.next().unwrap_or_default();
        let mut lab = Lab::new(kind);
        for line in lines {
            let (step, wanted) = line.split_once(" → ").unwrap_or((line, ""));
            let told = lab.step(step);
            let fits = match wanted.strip_suffix('…') {
                _ if wanted.is_empty() => told.is_ok(),
                Some(begin) => told.as_ref().is_err_and(|told| told.starts_with(begin)),
                None => told.as_deref().unwrap_or_else(|told| told).trim_end() == wanted,
            };
            if !fits {
                wrong.push(format!("{title}\n  {step}\n    wanted {wanted}\n    told {told:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn of(name: &str) -> &'static dyn LockKind {
    kinds().find(|kind| kind.name() == name).expect("a kind")
}

macro_rules! stories {
    ($($test:ident: $kind:expr, $file:literal;)+) => {$(
        #[test]
        fn $test() {
            tell($kind, include_str!($file));
        }
    )+};
}

stories! {
    mutex: of("mutex"), "mutex.txt";
    quorum: &QuorumKind, "quorum.txt";
    reentrant_lock: of("reentrant lock"), "reentrant.txt";
    election: of("election"), "election.txt";
}
