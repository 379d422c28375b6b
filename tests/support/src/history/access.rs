//! Readers and writers of a read-write lock: who is in together, and their tokens (rules 32 and 45).

use super::Violation;

/// The way in which a window has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessKind {
    /// Beside others.
    Read,
    /// Beside readers, and one at a time.
    Upgradable,
    /// Alone.
    Write,
}

impl AccessKind {
    /// The weight, as Redis counts it.
    fn weight(self) -> u64 {
        match self {
            AccessKind::Read => 1,
            AccessKind::Upgradable => (1 << 31) + 1,
            AccessKind::Write => CAPACITY,
        }
    }
}

/// What the weights may add up to.
const CAPACITY: u64 = 1 << 32;

/// A time in which a holder has the lock in one way. A hold that changes its way has one window after the other. All
/// moments are those of the one clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessWindow {
    /// The way.
    pub kind: AccessKind,
    /// Its token.
    pub token: u64,
    /// When it was asked for: Redis granted it later.
    pub invoked: u64,
    /// When the grant was known: the window begins.
    pub begin: u64,
    /// When the window ended: by release, change, end of validity, loss or death.
    pub end: u64,
}

impl AccessWindow {
    fn is_empty(&self) -> bool {
        self.end <= self.begin
    }
}

/// Checks the windows of one read-write lock:
///
/// - at each moment the weights inside their windows are no more than a writer's: a writer is alone, and one of the
///   readers at most is upgradable;
/// - a writer has a token above that of each window before it, and a reader none below that of a writer before it.
///
/// A window is before another if it began before the other was asked for. It also is if it merely began earlier, where
/// neither is empty and one is a writer's: they cannot have been granted in the other order.
pub fn check_accesses(windows: &[AccessWindow]) -> Vec<Violation> {
    let mut windows: Vec<&AccessWindow> = windows.iter().collect();
    windows.sort_by_key(|window| window.begin);
    let mut found = overlaps(&windows);
    let with = |filter: fn(&AccessWindow) -> bool| Highest::new(&windows, filter);
    let (all, full) = (with(|_| true), with(|it| !it.is_empty()));
    let writers = with(|it| it.kind == AccessKind::Write);
    let full_writers = with(|it| it.kind == AccessKind::Write && !it.is_empty());
    for window in &windows {
        let writes = window.kind == AccessKind::Write;
        let (any, full) = if writes { (&all, &full) } else { (&writers, &full_writers) };
        // Its own invocation may be the moment at which the hold before it ended.
        let asked_later = any.before(window.invoked);
        let began_later = full.before(window.begin).filter(|_| !window.is_empty());
        // A writer that becomes a reader keeps its token.
        let is_wrong =
            |it: &&AccessWindow| it.token > window.token || writes && it.token == window.token;
        if let Some(before) = [asked_later, began_later].into_iter().flatten().find(is_wrong) {
            found.push(Violation::new("C8", format!("token of {window:?} after {before:?}")));
        }
    }
    found
}

/// Of all sets of windows that meet, the largest ones have one that has just begun.
fn overlaps(windows: &[&AccessWindow]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut inside: Vec<&AccessWindow> = Vec::new();
    for window in windows.iter().filter(|window| !window.is_empty()) {
        inside.retain(|other| window.begin < other.end);
        inside.push(window);
        if inside.iter().map(|it| it.kind.weight()).sum::<u64>() > CAPACITY {
            found.push(Violation::new("C8", format!("together: {inside:?}")));
        }
    }
    found
}

/// The window with the highest token among those that began before a moment.
struct Highest<'a>(Vec<(u64, &'a AccessWindow)>);

impl<'a> Highest<'a> {
    /// Of those that the filter lets through. They are sorted by their beginnings.
    fn new(windows: &[&'a AccessWindow], filter: fn(&AccessWindow) -> bool) -> Self {
        let mut highest: Vec<(u64, &AccessWindow)> = Vec::new();
        for window in windows.iter().copied().filter(|window| filter(window)) {
            let best = highest.last().map_or(window, |(_, best)| best);
            highest.push((window.begin, if window.token > best.token { window } else { best }));
        }
        Highest(highest)
    }

    fn before(&self, moment: u64) -> Option<&'a AccessWindow> {
        let count = self.0.partition_point(|(begin, _)| *begin < moment);
        count.checked_sub(1).map(|last| self.0[last].1)
    }
}

#[cfg(test)]
mod tests {
    use super::AccessKind::{Read, Upgradable, Write};
    use super::*;

    fn window(kind: AccessKind, token: u64, begin: u64, end: u64) -> AccessWindow {
        AccessWindow { kind, token, invoked: begin - 1, begin, end }
    }

    #[test]
    fn writer_beside_anybody_is_found() {
        for kind in [Read, Upgradable, Write] {
            let (first, second) = (window(kind, 1, 10, 20), window(Write, 2, 20, 30));
            assert_eq!(check_accesses(&[second.clone(), first.clone()]), []);
            let longer = AccessWindow { end: 21, ..first };
            assert_eq!(check_accesses(&[second, longer]).len(), 1);
            let later = window(kind, 3, 29, 40);
            assert_eq!(check_accesses(&[window(Write, 2, 20, 30), later]).len(), 1);
        }
    }

    #[test]
    fn two_upgradable_readers_are_found() {
        let readers = [window(Read, 1, 10, 40), window(Read, 9, 10, 40)];
        let with = |first: u64| {
            let upgradable = [window(Upgradable, 2, 20, first), window(Upgradable, 3, 30, 40)];
            check_accesses(&[&readers[..], &upgradable].concat()).len()
        };
        assert_eq!((with(30), with(31)), (0, 1));
    }

    #[test]
    fn writer_that_outlives_its_downgrade_is_found() {
        let (writer, reader) = (window(Write, 1, 10, 20), window(Read, 1, 20, 40));
        let other = window(Read, 2, 25, 30);
        assert_eq!(check_accesses(&[writer.clone(), reader.clone(), other.clone()]), []);
        let late = AccessWindow { end: 26, ..writer };
        assert_eq!(check_accesses(&[late, reader, other]).len(), 2);
    }

    #[test]
    fn token_of_a_writer_below_one_before_it_is_found() {
        for kind in [Read, Upgradable, Write] {
            let before = window(kind, 5, 10, 20);
            let check =
                |token| check_accesses(&[before.clone(), window(Write, token, 30, 40)]).len();
            assert_eq!((check(4), check(5), check(6)), (1, 1, 0));
        }
    }

    #[test]
    fn token_of_a_reader_below_a_writers_is_found() {
        let check =
            |token| check_accesses(&[window(Write, 5, 10, 20), window(Read, token, 20, 40)]).len();
        assert_eq!((check(4), check(5), check(6)), (1, 0, 0));
        // Readers have no order.
        assert_eq!(check_accesses(&[window(Read, 5, 10, 20), window(Read, 4, 20, 40)]), []);
    }

    #[test]
    fn empty_window_counts_where_the_order_is_certain() {
        let writer = AccessWindow { invoked: 15, ..window(Write, 4, 30, 40) };
        // It may have been granted long before it was known.
        assert_eq!(check_accesses(&[window(Read, 5, 20, 20), writer.clone()]), []);
        assert_eq!(check_accesses(&[window(Read, 5, 14, 14), writer.clone()]).len(), 1);
        assert_eq!(check_accesses(&[window(Read, 5, 20, 21), writer]).len(), 1);
    }
}
