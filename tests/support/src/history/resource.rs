//! The protected resource: a number in a file, with the highest token so far.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::record::now;

/// A number that holders of several processes read and write one by one, and that refuses a token
/// lower than one it has seen. The file is a list of all that it accepted.
#[derive(Debug)]
pub struct Resource {
    file: File,
    fenced: bool,
}

/// One entry of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch {
    /// When it was accepted.
    pub at: u64,
    /// The token.
    pub token: u64,
    /// The number from then on.
    pub value: u64,
    /// Whether it was written; else the hold was let in.
    pub wrote: bool,
}

const SIZE: usize = 32;

impl Resource {
    /// Opens the file, which is made if need be; a thread opens its own.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        Ok(Self { file, fenced: true })
    }

    /// Does not look at tokens from now on: for the proof that the checkers notice.
    pub fn unfenced(mut self) -> Self {
        self.fenced = false;
        self
    }

    /// Lets a hold in if its token is not lower than one seen before: from then on nobody with an
    /// earlier one writes. Returns the number and the moment, or the moment of the refusal.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or written.
    pub fn enter(&mut self, token: u64) -> io::Result<Result<Touch, u64>> {
        self.touch(token, None)
    }

    /// Writes one more than `read`, as [`enter`](Self::enter) accepts or refuses.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or written.
    pub fn write(&mut self, token: u64, read: u64) -> io::Result<Result<Touch, u64>> {
        self.touch(token, Some(read + 1))
    }

    fn touch(&mut self, token: u64, value: Option<u64>) -> io::Result<Result<Touch, u64>> {
        // A killed process's lock ends with it.
        self.file.lock()?;
        let touched = self.touch_inner(token, value);
        self.file.unlock()?;
        touched
    }

    fn touch_inner(&mut self, token: u64, value: Option<u64>) -> io::Result<Result<Touch, u64>> {
        let last = self.last()?;
        let at = now();
        if self.fenced && last.is_some_and(|last| token < last.token) {
            return Ok(Err(at));
        }
        let wrote = value.is_some();
        let value = value.unwrap_or_else(|| last.map_or(0, |last| last.value));
        let numbers = [at, token, value, u64::from(wrote)];
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.file.write_all(&bytes)?;
        Ok(Ok(Touch { at, token, value, wrote }))
    }

    /// Reads all that was accepted.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn accepted(path: &Path) -> io::Result<Vec<Touch>> {
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        Ok(bytes.chunks_exact(SIZE).map(entry).collect())
    }

    fn last(&mut self) -> io::Result<Option<Touch>> {
        let size = SIZE as u64;
        let end = self.file.seek(SeekFrom::End(0))?;
        let Some(start) = (end - end % size).checked_sub(size) else { return Ok(None) };
        self.file.seek(SeekFrom::Start(start))?;
        let mut bytes = [0; SIZE];
        self.file.read_exact(&mut bytes)?;
        Ok(Some(entry(&bytes)))
    }
}

fn entry(bytes: &[u8]) -> Touch {
    let number = |place: usize| {
        let bytes = bytes[place * 8..][..8].try_into().expect("eight bytes");
        u64::from_le_bytes(bytes)
    };
    Touch { at: number(0), token: number(1), value: number(2), wrote: number(3) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Directory;

    #[test]
    fn a_lower_token_is_refused_and_the_number_grows_by_one() {
        let directory = Directory::create().unwrap();
        let open = || Resource::open(&directory.path().join("resource")).unwrap();
        let (mut one, mut two) = (open(), open());
        assert_eq!(one.enter(5).unwrap().unwrap().value, 0);
        assert_eq!(one.write(5, 0).unwrap().unwrap().value, 1);
        assert_eq!(two.enter(7).unwrap().unwrap().value, 1);
        assert!(one.write(5, 1).unwrap().is_err());
        assert_eq!(two.write(7, 1).unwrap().unwrap().value, 2);
        assert!(one.enter(6).unwrap().is_err());
        assert!(open().unfenced().write(1, 9).unwrap().is_ok());
        let accepted = Resource::accepted(&directory.path().join("resource")).unwrap();
        let values: Vec<_> = accepted.iter().map(|touch| (touch.value, touch.wrote)).collect();
        assert_eq!(values, [(0, false), (1, true), (1, false), (2, true), (10, true)]);
    }
}
