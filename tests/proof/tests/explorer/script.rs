//! The scripts of the mutex as they are shipped, at the scale of a scenario, with a bug planted or
//! none.

use std::borrow::Cow;
use std::cell::RefCell;

use crate::encoding::{BEATS, FENCE, IN_A_CLUSTER, LOCK, QUEUE, WORD, arguments};
use crate::mutation;
use crate::patch::PATCHES;
use crate::protocol::Request;
use crate::scenario::{Listeners, Setting};
use crate::unit::step;

/// A file below `src`, and its text.
type Part = (&'static str, &'static str);

macro_rules! parts {
    ($($file:literal),*) => {
        &[$(($file, include_str!(concat!("../../../../src/", $file)))),*]
    };
}

const ACQUIRE: &[Part] = parts!(
    "kind/mutex/acquire.lua",
    "kind/token.lua",
    "kind/line.lua",
    "kind/mutex/hand_over.lua",
    "kind/mutex/wait.lua"
);
const RELEASE: &[Part] = parts!(
    "kind/mutex/release.lua",
    "kind/token.lua",
    "kind/line.lua",
    "kind/mutex/hand_over.lua",
    "kind/mutex/pass.lua"
);
const RENEW: &[Part] = parts!("kind/mutex/owner.lua", "kind/renew.lua");

const ACQUIRE_OF_ELECTION: &[Part] = parts!(
    "kind/election/keys.lua",
    "kind/election/layout.lua",
    "kind/token.lua",
    "kind/line.lua",
    "kind/mutex/hand_over.lua",
    "kind/election/word.lua",
    "kind/election/begin.lua",
    "kind/mutex/acquire.lua",
    "kind/mutex/wait.lua",
    "kind/election/acquired.lua"
);
const RELEASE_OF_ELECTION: &[Part] = parts!(
    "kind/election/keys.lua",
    "kind/token.lua",
    "kind/line.lua",
    "kind/mutex/hand_over.lua",
    "kind/election/word.lua",
    "kind/election/begin.lua",
    "kind/mutex/release.lua",
    "kind/mutex/pass.lua",
    "kind/election/released.lua"
);
const RENEW_OF_ELECTION: &[Part] = parts!(
    "kind/mutex/owner.lua",
    "kind/election/begin.lua",
    "kind/renew.lua",
    "kind/election/renewed.lua"
);

/// Name, script, the piece to replace, and its replacement.
type Patch<'a> = (&'a str, &'a str, &'a str, &'a str);

/// The scripts of a scenario.
#[derive(Debug)]
pub(crate) struct Scripts {
    acquire: Script,
    release: Script,
    renew: Script,
}

/// A script: the words of its command but for the arguments.
#[derive(Debug)]
struct Script(RefCell<Vec<Vec<u8>>>);

/// A command that no server knows. A script sees its refusal like that of a missing permission.
const REFUSED: Patch<'_> =
    ("who listens is not told", "kind/line.lua", "'PUBSUB', 'NUMSUB'", "'NUMSUB-REFUSED'");

impl Scripts {
    pub(crate) fn new(setting: &Setting) -> Scripts {
        let planted = PATCHES.iter().chain(mutation::PATCHES).copied();
        let mut patches: Vec<Patch<'_>> =
            planted.filter(|(name, ..)| setting.script_bug == Some(name)).collect();
        assert!(setting.script_bug.is_none() || !patches.is_empty(), "no {:?}", setting.script_bug);
        // A patch of the original text also applies to a text with a bug.
        let above = format!("tonumber(last) + {})", step(setting));
        patches.push(("scale", "kind/token.lua", "tonumber(last) + 1)", above.as_str()));
        let behind = format!("-head) + {}", step(setting));
        patches.push(("scale", "kind/line.lua", "-head) + 1", behind.as_str()));
        // Two servers do not have the same microsecond.
        patches.push(("chance", "kind/mutex/wait.lua", "place % 8 == 1", "false"));
        // Redis keeps a key for the millisecond in which it ends. Here a lease is over by then, as a key is.
        patches.push(("edge", "kind/mutex/wait.lua", "left < tail", "left <= tail"));
        if setting.listeners == Listeners::Refused {
            patches.push(REFUSED);
        }
        let all = match setting.is_election {
            false => [ACQUIRE, RELEASE, RENEW],
            true => [ACQUIRE_OF_ELECTION, RELEASE_OF_ELECTION, RENEW_OF_ELECTION],
        };
        for (name, patched, ..) in &patches {
            let mut parts = all.into_iter().flatten();
            assert!(parts.any(|(file, _)| file == patched), "{name}: {patched} is in no script");
        }
        let script = |(parts, most): (&[Part], usize)| {
            let text: String = parts.iter().map(|part| patched(*part, &patches)).collect();
            Script::new(&text, setting, most)
        };
        // A renewal has those that exist for as long as the lock is held, the line, and the signs of life.
        let kept = if setting.is_election { 5 } else { 4 };
        let [acquire, release, renew] = all;
        let [acquire, release, renew] =
            [(acquire, usize::MAX), (release, usize::MAX), (renew, kept)].map(script);
        Scripts { acquire, release, renew }
    }

    /// Hands on the words of the command that carries a request out.
    pub(crate) fn command<T>(
        &self,
        request: &Request,
        setting: &Setting,
        run: impl FnOnce(&[Vec<u8>]) -> T,
    ) -> T {
        let script = match request {
            Request::Acquire(_) => &self.acquire,
            Request::Release { .. } => &self.release,
            Request::Renew { .. } => &self.renew,
        };
        script.call(arguments(request, setting), run)
    }
}

impl Script {
    fn new(text: &str, setting: &Setting, most: usize) -> Script {
        let mut keys = vec![LOCK, FENCE, QUEUE, BEATS];
        if setting.is_election {
            keys.insert(2, WORD);
        }
        if setting.listeners == Listeners::InACluster {
            keys.push(IN_A_CLUSTER);
        }
        keys.truncate(most);
        let count = keys.len().to_string();
        let words = ["EVAL", text, &count].into_iter().chain(keys);
        Script(RefCell::new(words.map(|word| word.as_bytes().to_vec()).collect()))
    }

    /// To copy its text would take as long as to run it.
    fn call<T>(&self, arguments: Vec<String>, run: impl FnOnce(&[Vec<u8>]) -> T) -> T {
        let mut words = self.0.borrow_mut();
        let length = words.len();
        words.extend(arguments.into_iter().map(String::into_bytes));
        let result = run(&words);
        words.truncate(length);
        result
    }
}

fn patched((file, source): Part, patches: &[Patch<'_>]) -> Cow<'static, str> {
    let mut text = Cow::Borrowed(source);
    for (name, _, from, to) in patches.iter().filter(|(_, patched, ..)| *patched == file) {
        // Another patch may have taken the piece away: then this one would do nothing.
        assert!(text.matches(from).count() == 1, "{name} replaces one piece of {file}");
        text = text.replace(from, to).into();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::USUAL;

    #[test]
    #[should_panic(expected = "second replaces one piece of a.lua")]
    fn patch_without_its_text_is_rejected() {
        patched(
            ("a.lua", "one"),
            &[("first", "a.lua", "one", "two"), ("second", "a.lua", "one", "")],
        );
    }

    #[test]
    #[should_panic(expected = "is in no script")]
    fn patch_of_a_script_not_run_here_is_rejected() {
        Scripts::new(&Setting { script_bug: Some("repeated-request-counts"), ..USUAL });
    }
}
