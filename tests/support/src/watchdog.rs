//! What tests do that run for long: nothing ends them, but somebody can read where they stand.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

/// A test that runs for longer may hang. The debugger that reads the stacks stops the process, on a machine with much other
/// work for minutes, and what is tested meanwhile fails for that.
const LONG: Duration = Duration::from_secs(900);

/// The tests of this process that run.
static RUNNING: Mutex<BTreeMap<String, Instant>> = Mutex::new(BTreeMap::new());

thread_local! {
    static TEST: Option<Test> = Test::begin();
}

/// The test of this thread, until the thread ends.
struct Test(String);

impl Test {
    /// The harness names a thread after the test that it runs.
    fn begin() -> Option<Test> {
        let name = thread::current().name().filter(|name| name.contains("::"))?.to_owned();
        running(|all| _ = all.insert(name.clone(), Instant::now()));
        Some(Test(name))
    }
}

impl Drop for Test {
    fn drop(&mut self) {
        running(|all| _ = all.remove(&self.0));
    }
}

fn running<T>(body: impl FnOnce(&mut BTreeMap<String, Instant>) -> T) -> T {
    body(&mut RUNNING.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Watches the test of this thread: when it has run for a quarter of an hour, the names of all tests that run, and the stacks of
/// all threads of this process and of the children that play a role for it, are written to standard error.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    // An example or a bench has none.
    if TEST.with(Option::is_some) {
        WATCHED.call_once(|| _ = thread::spawn(|| look()));
    }
}

fn look() -> ! {
    let mut told = Instant::now();
    loop {
        thread::sleep(LONG / 10);
        let now = Instant::now();
        let mut text = "tests that still run:\n".to_owned();
        // Each of them is a reason to tell of all, but only once.
        let is_due = running(|all| {
            for (name, begin) in &*all {
                let _ = writeln!(text, "  {name}: {} s", (now - *begin).as_secs());
            }
            all.values().any(|begin| *begin + LONG <= now && told < *begin + LONG)
        });
        told = now;
        if is_due {
            family().iter().for_each(|process| text.push_str(&stacks(process)));
            // Not by a macro, whose text the harness keeps until a test is over.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

/// This process, and the children that run the same program.
fn family() -> Vec<PathBuf> {
    let program = fs::read_link("/proc/self/exe").ok();
    let parent = format!("PPid:\t{}\n", std::process::id());
    let is_child = |process: &PathBuf| {
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        status.contains(&parent) && fs::read_link(process.join("exe")).ok() == program
    };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let own = PathBuf::from(format!("/proc/{}", std::process::id()));
    [own].into_iter().chain(all.filter(is_child)).collect()
}

/// What each thread of a process waits for, and its stack where a debugger is there and may look.
fn stacks(process: &Path) -> String {
    let id = process.file_name().unwrap_or_default();
    let mut text = format!("process {}\n", id.display());
    let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    for thread in threads.map(|entry| entry.path()) {
        let read = |name: &str| fs::read_to_string(thread.join(name)).unwrap_or_default();
        let state = read("status");
        let state = state.lines().find(|line| line.starts_with("State:")).unwrap_or_default();
        let _ = writeln!(text, "  {} {state} in {}", read("comm").trim(), read("wchan"));
    }
    let debugger = Command::new("gdb")
        .args(["-batch", "-nx", "-ex", "thread apply all backtrace 40", "-p"])
        .arg(id)
        .stdin(std::process::Stdio::null())
        .output();
    if let Ok(output) = debugger {
        text.push_str(&String::from_utf8_lossy(&output.stdout));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_test_and_its_threads_are_named() {
        watch();
        let name = "watchdog::tests::running_test_and_its_threads_are_named";
        assert!(running(|all| all.contains_key(name)));
        let own = family().remove(0);
        let text = stacks(&own);
        assert!(text.contains("watchdog::tests") && text.contains("State:\t"), "{text}");
        let other = thread::Builder::new().name("a::b".to_owned());
        other.spawn(watch).expect("a thread").join().expect("no panic");
        assert!(!running(|all| all.contains_key("a::b")), "it has ended");
    }
}
