//! How a worker of each language is built and started.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::peer::{Peer, Result};

/// Of all leases: a dead holder is in the way for that long.
pub const LEASE_MILLIS: u64 = 3_000;
/// The client for Python, from its registry.
const REDIS_PY: &str = "redis==8.1.0";

fn source() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where built and fetched things go: beside this program, below cargo's target folder.
///
/// # Errors
///
/// When it cannot be made.
pub fn output() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folder = program.parent().ok_or("no folder")?.join("interop-peers");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Whether this machine has a program.
pub fn exists(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Runs a command to its end.
///
/// # Errors
///
/// With what it printed, if it failed.
pub fn run(command: &mut Command) -> Result<()> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&text)).into())
}

/// The command `leasehold`, built by the cargo that runs this.
///
/// # Errors
///
/// When it cannot be built.
pub fn command() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let folder = output()?.join("command");
    let mut build = Command::new(cargo);
    build.args(["build", "--package", "leasehold-cli", "--target-dir"]).arg(&folder);
    run(build.current_dir(source()))?;
    Ok(folder.join("debug/leasehold"))
}

/// This library, in a process of its own: the program that calls this, whose `worker` role is
/// [`worker::run`](crate::worker::run).
///
/// # Errors
///
/// When it cannot be started.
pub fn rust(url: &str, kind: &str) -> Result<Peer> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["worker", url, kind, &LEASE_MILLIS.to_string()]);
    Peer::start("leasehold", command)
}

/// What Maven built and fetched.
#[derive(Debug)]
pub struct Java {
    classpath: String,
}

impl Java {
    /// `None` where there is no Java or no Maven.
    ///
    /// # Errors
    ///
    /// When Maven fails.
    pub fn build() -> Result<Option<Java>> {
        if !(exists("java") && exists("mvn")) {
            return Ok(None);
        }
        let folder = output()?.join("java");
        let list = folder.join("classpath");
        let mut maven = Command::new("mvn");
        maven.args(["--quiet", "--batch-mode", "compile", "dependency:build-classpath"]);
        maven.arg(format!("-Doutput={}", folder.display()));
        maven.arg(format!("-Dmdep.outputFile={}", list.display()));
        run(maven.arg("--file").arg(source().join("java/pom.xml")))?;
        let libraries = std::fs::read_to_string(&list)?;
        let classes = folder.join("classes");
        Ok(Some(Java { classpath: format!("{}:{}", classes.display(), libraries.trim()) }))
    }

    /// A process that locks.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start(&self, url: &str) -> Result<Peer> {
        let mut command = Command::new("java");
        command.args(["-cp", &self.classpath, "Worker", url, &LEASE_MILLIS.to_string()]);
        Peer::start("Redisson", {
            command.arg(source());
            command
        })
    }
}

/// An environment of its own, with the client for Python.
#[derive(Debug)]
pub struct Python {
    program: PathBuf,
}

impl Python {
    /// `None` where there is no Python.
    ///
    /// # Errors
    ///
    /// When pip fails.
    pub fn build() -> Result<Option<Python>> {
        if !exists("python3") {
            return Ok(None);
        }
        let folder = output()?.join("python");
        let program = folder.join("bin/python3");
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        run(Command::new(&program).args(["-m", "pip", "install", "--quiet", REDIS_PY]))?;
        Ok(Some(Python { program }))
    }

    /// A process that locks.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start(&self, url: &str) -> Result<Peer> {
        let mut command = Command::new(&self.program);
        command.arg(source().join("python/worker.py")).arg(url);
        command.arg(LEASE_MILLIS.to_string()).arg(source());
        Peer::start("redis-py", command)
    }
}
