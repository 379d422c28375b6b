//! The switch that chooses a swapped comparison at run time.
//!
//! A module of the programs in the copy that `every_swap_is_caught` builds, and of no other build.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

/// Whether the comparison of this number is swapped: `LEASEHOLD_SWAP` names it.
#[allow(dead_code, reason = "programs that run scripts alone have no Rust to swap")]
pub(crate) fn is_at_work(number: usize) -> bool {
    static CHOSEN: OnceLock<Option<usize>> = OnceLock::new();
    let chosen = *CHOSEN.get_or_init(|| std::env::var("LEASEHOLD_SWAP").ok()?.parse().ok());
    if chosen != Some(number) {
        return false;
    }
    static NOTED: OnceLock<()> = OnceLock::new();
    NOTED.get_or_init(|| {
        if let Some(path) = std::env::var_os("LEASEHOLD_SWAP_NOTE") {
            // Without the note the table says that it never ran.
            let _ = std::fs::write(path, "");
        }
    });
    true
}

/// A script, or a file of one, as it is with the swap. `LEASEHOLD_SWAP_FROM` and `LEASEHOLD_SWAP_TO` name the file
/// without the swap and with it.
pub(crate) fn script(source: &'static str) -> &'static str {
    static FILES: OnceLock<Option<(String, String)>> = OnceLock::new();
    static SWAPPED: Mutex<Option<HashMap<&str, &str>>> = Mutex::new(None);
    let files = FILES.get_or_init(|| {
        let read = |name: &str| std::fs::read_to_string(std::env::var_os(name)?).ok();
        Some((read("LEASEHOLD_SWAP_FROM")?, read("LEASEHOLD_SWAP_TO")?))
    });
    let Some((from, to)) = files.as_ref().filter(|(from, _)| source.contains(from)) else {
        return source;
    };
    let mut swapped = SWAPPED.lock().expect("nobody panics with it");
    let known = swapped.get_or_insert_default();
    known.entry(source).or_insert_with(|| source.replace(from, to).leak())
}
