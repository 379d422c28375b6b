//! Memory that all processes share, and in which each critical section leaves its mark.
//!
//! A section writes its fencing token when it begins, and reads it again before it ends. Of two
//! sections that overlap, the one that wrote first reads the other's token, so between write and
//! read no overlap goes unseen, for tokens are unique. When it writes, a section also sees what the
//! last one left, which must be a lower token.
//!
//! Holders of different slots of a semaphore leave their marks in different places. A writer's mark says
//! whether it is still in. A reader leaves none, but it sees such a mark, and one that changes.
//!
//! It cannot see what happens between the grant and the write, or between the last read and the
//! release: there a section does nothing.
//!
//! Among processes the memory is a page of a file, the same for all of them. Eight aligned bytes of
//! it are written in one piece; were they not, that would be one overlap too many. One process
//! alone has a variable.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::AddAssign;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// What was seen that must never be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Sections that found another's token in place of their own.
    pub(crate) overlaps: u64,
    /// Sections whose token was not greater than that of the one before.
    pub(crate) disorder: u64,
}

impl Seen {
    /// Adds what another process says that it saw, and answers what else it says: numbers all.
    pub(crate) fn read<'a>(&mut self, line: &'a str) -> impl Iterator<Item = u64> + use<'a> {
        let mut numbers = line.split(' ').filter_map(|number| number.parse().ok());
        // Who does not say may have seen anything.
        self.overlaps += numbers.next().unwrap_or(1);
        self.disorder += numbers.next().unwrap_or(1);
        numbers
    }
}

impl AddAssign for Seen {
    fn add_assign(&mut self, other: Seen) {
        self.overlaps += other.overlaps;
        self.disorder += other.disorder;
    }
}

/// As `read` reads it.
impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.overlaps, self.disorder)
    }
}

/// Where sections leave their marks.
#[derive(Debug)]
pub(crate) enum Witness {
    Alone([AtomicU64; PLACES]),
    Shared(Shared),
}

impl Witness {
    /// For the sections of this process, if there is no file.
    pub(crate) fn open(path: Option<&Path>) -> io::Result<Witness> {
        match path {
            None => Ok(Witness::Alone(Default::default())),
            Some(path) => Shared::open(path).map(Witness::Shared),
        }
    }

    /// The section of one that is alone, with this token, in which `work` is done.
    pub(crate) fn section(&self, token: u64, seen: &mut Seen, work: impl FnOnce()) {
        self.enter(Mark::Alone, token, seen, work);
    }

    /// A critical section with this mark and token, in which `work` is done.
    pub(crate) fn enter(&self, mark: Mark, token: u64, seen: &mut Seen, work: impl FnOnce()) {
        let place = match mark {
            Mark::Slot(slot) => u64::from(slot),
            Mark::Alone | Mark::Reader | Mark::Writer => MARK,
        };
        let last = self.load(place);
        let inside = 2 * token + 1;
        if mark != Mark::Reader {
            self.store(place, inside);
        }
        work();
        let left = self.load(place);
        seen.disorder += u64::from(last / 2 >= token);
        seen.overlaps += u64::from(match mark {
            Mark::Reader => last % 2 == 1 || left != last,
            Mark::Alone | Mark::Slot(_) | Mark::Writer => left != inside,
        });
        if mark == Mark::Writer && left == inside {
            self.store(place, inside - 1);
        }
    }

    fn load(&self, place: u64) -> u64 {
        match self {
            Witness::Alone(numbers) => numbers[place as usize].load(Ordering::SeqCst),
            Witness::Shared(file) => file.read(place),
        }
    }

    fn store(&self, place: u64, number: u64) {
        match self {
            Witness::Alone(numbers) => numbers[place as usize].store(number, Ordering::SeqCst),
            Witness::Shared(file) => file.write(place, number),
        }
    }
}

/// Whom a section must not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Anybody.
    Alone,
    /// Others of this slot.
    Slot(u32),
    /// Writers.
    Reader,
    /// Readers and other writers.
    Writer,
}

/// The place of the mark where there is one: twice the token, and one more while the section lasts.
const MARK: u64 = 0;
/// How many places one process alone has.
const PLACES: usize = 8;

/// A file of numbers that processes share; place 0 is for the marks of sections.
#[derive(Debug)]
pub(crate) struct Shared(File);

impl Shared {
    /// Opens the file, which is made if need be.
    pub(crate) fn open(path: &Path) -> io::Result<Shared> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Shared(file))
    }

    /// Reads the number in this place, which is zero at first.
    pub(crate) fn read(&self, place: u64) -> u64 {
        let mut bytes = [0; 8];
        let read = self.0.read_at(&mut bytes, place * 8);
        let read = read.expect("the shared file stays");
        if read == bytes.len() { u64::from_ne_bytes(bytes) } else { 0 }
    }

    /// Writes the number in this place.
    pub(crate) fn write(&self, place: u64, number: u64) {
        let written = self.0.write_all_at(&number.to_ne_bytes(), place * 8);
        written.expect("the shared file stays");
    }
}
