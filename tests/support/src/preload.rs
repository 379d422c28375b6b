//! Libraries that a server loads before the C library.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Command;

/// Compiles one into a folder.
///
/// # Errors
///
/// If there is no C compiler (`cc`), or it cannot compile.
pub(crate) fn compile(folder: &Path, name: &str, source: &str) -> io::Result<()> {
    let [text, library] = ["c", "so"].map(|ending| folder.join(format!("{name}.{ending}")));
    std::fs::write(&text, source)?;
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(library).arg(text);
    let output = compiler.output()?;
    if output.status.success() {
        Ok(())
    } else {
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

/// The environment variables of a process that loads it, and reads one more variable.
pub(crate) fn variables(
    folder: &Path,
    name: &str,
    (variable, path): (&str, &Path),
) -> [(OsString, OsString); 2] {
    let library = folder.join(format!("{name}.so"));
    [("LD_PRELOAD".into(), library.into()), (variable.into(), path.into())]
}
