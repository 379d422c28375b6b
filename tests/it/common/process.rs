//! Tests of what belongs to a whole process: its logger, its threads, its memory.

use leasehold_support::Child;
use leasehold_support::child::role;

const ROLE: &str = "alone";

/// Ends the calling test here, having run it in a process of its own, where this does nothing.
macro_rules! in_own_process {
    () => {{
        fn here() {}
        if !crate::common::process::is_own(std::any::type_name_of_val(&here)) {
            return;
        }
    }};
}
pub(crate) use in_own_process;

/// Whether this process runs one test alone. If not, it starts one that does, and waits for it.
///
/// `place` is the path of an item within the test.
#[track_caller]
pub(crate) fn is_own(place: &str) -> bool {
    if role().as_deref() == Some(ROLE) {
        return true;
    }
    let (_, test) = place.split_once("::").expect("the program's name comes first");
    let (test, _) = test.rsplit_once("::").expect("the item's name comes last");
    let mut child = Child::role(ROLE).test(test).start().expect("a process");
    let status = child.wait();
    let output = child.output();
    assert!(status.success() && output.contains("1 passed"), "{output}");
    false
}
