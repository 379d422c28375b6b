//! The scripts of the weighted lock as they are shipped, with a bug planted or none.

use std::borrow::Cow;
use std::cell::Cell;

use crate::patch::PATCHES;

/// A file below `src`, and its text.
type Part = (&'static str, &'static str);

macro_rules! parts {
    ($($file:literal),*) => {
        &[$(($file, include_str!(concat!("../../../../src/", $file)))),*]
    };
}

/// What a request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Acquire,
    Release,
    Renew,
    Touch,
    Force,
    Change,
    Resize,
    Inspect,
    Transaction,
    Look,
}

pub(crate) const ALL: [(Name, &[Part]); 10] = [
    (
        Name::Acquire,
        parts!(
            "kind/weighted/state.lua",
            "kind/weighted/acquire.lua",
            "kind/token.lua",
            "kind/weighted/hold.lua",
            "kind/weighted/give.lua",
            "kind/line.lua",
            "kind/weighted/serve.lua",
            "kind/weighted/wait.lua"
        ),
    ),
    (
        Name::Release,
        parts!(
            "kind/weighted/state.lua",
            "kind/weighted/release.lua",
            "kind/token.lua",
            "kind/weighted/hold.lua",
            "kind/weighted/give.lua",
            "kind/line.lua",
            "kind/weighted/serve.lua",
            "kind/weighted/leave.lua"
        ),
    ),
    (Name::Renew, parts!("kind/weighted/state.lua", "kind/token.lua", "kind/weighted/renew.lua")),
    (
        Name::Touch,
        parts!(
            "kind/weighted/state.lua",
            "kind/token.lua",
            "kind/weighted/owner.lua",
            "kind/touch.lua"
        ),
    ),
    (
        Name::Force,
        parts!(
            "kind/weighted/state.lua",
            "kind/token.lua",
            "kind/weighted/hold.lua",
            "kind/weighted/give.lua",
            "kind/line.lua",
            "kind/weighted/serve.lua",
            "kind/weighted/force.lua"
        ),
    ),
    (
        Name::Change,
        parts!(
            "kind/weighted/state.lua",
            "kind/token.lua",
            "kind/weighted/hold.lua",
            "kind/weighted/give.lua",
            "kind/line.lua",
            "kind/weighted/serve.lua",
            "kind/weighted/change.lua"
        ),
    ),
    (
        Name::Resize,
        parts!(
            "kind/weighted/state.lua",
            "kind/token.lua",
            "kind/weighted/hold.lua",
            "kind/weighted/give.lua",
            "kind/line.lua",
            "kind/weighted/serve.lua",
            "kind/weighted/resize.lua"
        ),
    ),
    (
        Name::Inspect,
        parts!("kind/weighted/state.lua", "kind/token.lua", "kind/weighted/inspect.lua"),
    ),
    (
        Name::Transaction,
        parts!(
            "kind/weighted/state.lua",
            "kind/token.lua",
            "kind/weighted/owner.lua",
            "kind/weighted/transaction.lua"
        ),
    ),
    (Name::Look, parts!("kind/weighted/state.lua", "kind/weighted/look.lua")),
];

/// What stands before each script: that of a semaphore, and that of a read-write lock.
const KINDS: &[Part] = parts!("kind/weighted/semaphore.lua", "kind/weighted/rw_lock.lua");

thread_local! {
    /// The bug that a test of the tests has planted.
    static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Runs with a bug in the scripts.
pub(crate) fn with_bug<T>(name: &'static str, run: impl FnOnce() -> T) -> T {
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }
    PLANTED.set(Some(name));
    let _restore = Restore;
    run()
}

/// The bug that is at work, if one is: planted by a test here, or chosen by the mutation gate.
pub(crate) fn bug() -> Option<&'static str> {
    PLANTED.get().or_else(|| {
        let chosen = std::env::var("LEASEHOLD_MUTATION").ok()?;
        let (name, ..) =
            PATCHES.iter().find(|(name, file, ..)| *name == chosen && is_here(file))?;
        if let Some(path) = std::env::var_os("LEASEHOLD_MUTATION_NOTE") {
            // Without the note the gate does not count it.
            let _ = std::fs::write(path, name);
        }
        Some(*name)
    })
}

fn is_here(file: &str) -> bool {
    ALL.iter().any(|(_, parts)| parts.iter().any(|(part, _)| *part == file))
}

/// The texts of all scripts.
#[derive(Clone, Debug)]
pub(crate) struct Scripts(Vec<(Name, [Vec<u8>; 2])>);

impl Scripts {
    /// As they are shipped, but for the bug that is at work.
    pub(crate) fn new() -> Scripts {
        let bug = bug();
        let patches = || PATCHES.iter().filter(|(name, ..)| Some(*name) == bug);
        for (name, file, ..) in patches() {
            assert!(is_here(file), "{name}: {file} is in no script");
        }
        let patched = |(file, source): &Part| {
            let mut text = Cow::Borrowed(*source);
            for (name, _, from, to) in patches().filter(|(_, patched, ..)| patched == file) {
                assert!(text.matches(from).count() == 1, "{name} replaces one piece of {file}");
                text = text.replace(from, to).into();
            }
            text
        };
        let whole = |parts: &[Part]| {
            let rest: String = parts.iter().map(patched).collect();
            [0, 1].map(|kind| format!("{}{rest}", KINDS[kind].1).into_bytes())
        };
        Scripts(ALL.iter().map(|(name, parts)| (*name, whole(parts))).collect())
    }

    /// The same, where the server refuses a command. A script sees it like that of a missing permission.
    pub(crate) fn without(&self, command: &str) -> Scripts {
        let refuse = |script: &Vec<u8>| {
            let text = String::from_utf8_lossy(script);
            text.replace(&format!("'{command}'"), &format!("'{command}-REFUSED'")).into_bytes()
        };
        Scripts(self.0.iter().map(|(name, texts)| (*name, texts.each_ref().map(refuse))).collect())
    }

    /// The script of a semaphore, or of a read-write lock.
    pub(crate) fn text(&self, wanted: Name, is_rw: bool) -> &[u8] {
        let found = self.0.iter().find(|(name, _)| *name == wanted);
        &found.expect("all are there").1[usize::from(is_rw)]
    }
}
