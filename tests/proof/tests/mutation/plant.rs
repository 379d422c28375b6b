//! The part of the planted bugs that runs inside the library: a bug is at work if the environment
//! variable `LEASEHOLD_MUTATION` names it.
//!
//! A module of the library's `base` in the copy that the gate builds, and of no other build.

#[path = "script.rs"]
mod script;

use std::borrow::Cow;

use crate::base::sync::OnceLock;

/// Whether the bug of this name is at work.
macro_rules! mutated {
    ($name:literal) => {
        $crate::base::mutation::is_at_work($name)
    };
}

/// Whether the bug of this name was chosen. If it was, this writes a note into the file that
/// `LEASEHOLD_MUTATION_NOTE` names: the bug came to pass.
pub(crate) fn is_at_work(name: &str) -> bool {
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    static NOTED: OnceLock<()> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var("LEASEHOLD_MUTATION").ok());
    let at_work = chosen.as_deref() == Some(name);
    if at_work {
        NOTED.get_or_init(|| {
            if let Some(path) = std::env::var_os("LEASEHOLD_MUTATION_NOTE") {
                // Without the note the gate does not count it.
                let _ = std::fs::write(path, name);
            }
        });
    }
    at_work
}

/// A script with the bug that is at work in it, if one is.
pub(crate) fn planted(source: &'static str) -> Cow<'static, str> {
    script::PATCHES
        .iter()
        .filter(|(name, _, from, _)| source.contains(from) && is_at_work(name))
        .fold(Cow::Borrowed(source), |planted, (_, _, from, to)| planted.replace(from, to).into())
}
