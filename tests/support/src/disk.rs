//! A disk that loses, in a crash, what was written to a file after its last fsync.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::directory::Directory;
use crate::preload;

/// The disk of the processes that were started with its variables. Linux only, and it needs a C compiler.
#[derive(Debug)]
pub struct Disk(Directory);

impl Disk {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// If there is no C compiler (`cc`), or it cannot compile.
    pub fn new() -> io::Result<Self> {
        let disk = Self(Directory::create()?);
        preload::compile(disk.0.path(), "disk", include_str!("disk.c"))?;
        Ok(disk)
    }

    /// Returns the environment variables of a process with this disk.
    pub fn variables(&self) -> [(OsString, OsString); 2] {
        preload::variables(self.0.path(), "disk", ("LEASEHOLD_DISK", self.0.path()))
    }

    /// Takes from each file of a folder what was written after its last fsync, as a crash of the machine does. A file that
    /// was never synced becomes empty. The process that wrote them must have ended. Returns how many bytes are gone.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or cut.
    pub fn lose(&self, folder: &Path) -> io::Result<u64> {
        let mut gone = 0;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let data = fs::metadata(&path)?;
            let kept = match fs::read(self.0.path().join(data.ino().to_string())) {
                Ok(bytes) => bytes.try_into().map_or(0, u64::from_ne_bytes).min(data.len()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
                Err(error) => return Err(error),
            };
            gone += data.len() - kept;
            fs::OpenOptions::new().write(true).open(&path)?.set_len(kept)?;
        }
        Ok(gone)
    }
}
