//! The scripts of the mutex as they are shipped, at the scale of a scenario, with a bug planted or none.

use std::borrow::Cow;

use crate::mutation;
use crate::patch::PATCHES;
use crate::scenario::Setting;
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
    "kind/mutex/queue.lua",
    "kind/mutex/wait.lua"
);
const RELEASE: &[Part] = parts!(
    "kind/mutex/release.lua",
    "kind/token.lua",
    "kind/mutex/queue.lua",
    "kind/mutex/pass.lua"
);
const RENEW: &[Part] = parts!("kind/mutex/renew.lua");

/// Name, script, the piece to replace, and its replacement.
type Patch<'a> = (&'a str, &'a str, &'a str, &'a str);

/// The texts of the scripts.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) acquire: Vec<u8>,
    pub(crate) release: Vec<u8>,
    pub(crate) renew: Vec<u8>,
}

impl Scripts {
    pub(crate) fn new(setting: &Setting) -> Scripts {
        let above = format!("tonumber(last) + {})", step(setting));
        let mut patches = vec![("scale", "kind/token.lua", "tonumber(last) + 1)", above.as_str())];
        let all = PATCHES.iter().chain(mutation::PATCHES);
        patches.extend(all.filter(|(name, ..)| setting.script_bug == Some(name)));
        assert!(setting.script_bug.is_none() || patches.len() > 1, "no {:?}", setting.script_bug);
        let text = |parts: &[Part]| {
            let texts = parts.iter().map(|part| patched(*part, &patches));
            texts.collect::<String>().into_bytes()
        };
        Scripts { acquire: text(ACQUIRE), release: text(RELEASE), renew: text(RENEW) }
    }
}

fn patched((file, source): Part, patches: &[Patch<'_>]) -> Cow<'static, str> {
    let mut text = Cow::Borrowed(source);
    for (name, _, from, to) in patches.iter().filter(|(_, patched, ..)| *patched == file) {
        assert_eq!(source.matches(from).count(), 1, "{name} replaces one piece of {file}");
        text = text.replace(from, to).into();
    }
    text
}
