//! What the library warns of.

use std::sync::{Mutex, Once, PoisonError};

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Collect;

impl log::Log for Collect {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let text = record.args().to_string();
            WARNINGS.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
    }

    fn flush(&self) {}
}

/// How many warnings with all of these parts came since the first call of this.
pub(crate) fn warnings(parts: &[&str]) -> usize {
    texts(parts).len()
}

/// The warnings with all of these parts that came since the first call of this. A thread writes those of threads that must
/// not be held up, and ends when it has written them.
pub(crate) fn texts(parts: &[&str]) -> Vec<String> {
    static BEGIN: Once = Once::new();
    BEGIN.call_once(|| {
        log::set_logger(&Collect).expect("no other logger");
        log::set_max_level(log::LevelFilter::Warn);
    });
    let is_written = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("/proc").flatten();
        let mut names = tasks.filter_map(|task| std::fs::read(task.path().join("comm")).ok());
        !names.any(|name| name == b"lease-log\n")
    };
    super::until("all lines are written", is_written);
    let warnings = WARNINGS.lock().unwrap_or_else(PoisonError::into_inner);
    warnings.iter().filter(|text| parts.iter().all(|part| text.contains(part))).cloned().collect()
}
