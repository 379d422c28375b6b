//! A file that all processes share, and in which each critical section leaves its mark.
//!
//! A section writes its fencing token when it begins, and reads it again before it ends. Of two
//! sections that overlap, the one that wrote first reads the other's token, so between write and
//! read no overlap goes unseen: tokens are unique, the page is the same for all processes, and eight
//! aligned bytes of it are written in one piece (were they not, that would be one overlap too many).
//! Before it writes, a section reads what the last one left, which must be a lower token.
//!
//! It cannot see what happens between the grant and the write, or between the last read and the
//! release: there a section does nothing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What was seen that must never be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Sections that found another's token in place of their own.
    pub(crate) overlaps: u64,
    /// Sections whose token was not greater than that of the one before.
    pub(crate) disorder: u64,
}

/// The file.
#[derive(Debug)]
pub(crate) struct Witness(File);

impl Witness {
    /// Opens the file, which is made if need be.
    pub(crate) fn open(path: &Path) -> io::Result<Witness> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        let witness = Witness(file);
        if witness.0.metadata()?.len() < 8 {
            witness.write(0, 0)?;
        }
        Ok(witness)
    }

    /// A critical section with this token, in which `work` is done.
    pub(crate) fn section(&self, token: u64, seen: &mut Seen, work: impl FnOnce()) {
        let marked = self.read(0).and_then(|last| {
            seen.disorder += u64::from(last >= token);
            self.write(0, token)
        });
        work();
        let mark = marked.and_then(|()| self.read(0)).expect("the shared file stays");
        seen.overlaps += u64::from(mark != token);
    }

    /// Reads the number in this place. The mark of the sections has place 0.
    pub(crate) fn read(&self, place: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, place * 8)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Writes the number in this place.
    pub(crate) fn write(&self, place: u64, number: u64) -> io::Result<()> {
        self.0.write_all_at(&number.to_ne_bytes(), place * 8)
    }
}
