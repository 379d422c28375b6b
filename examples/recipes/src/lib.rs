//! What the recipes need besides their subject: a private Redis, and a private PostgreSQL.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use leasehold_support::{Child, Server, child, skip};

/// Any error ends a recipe.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A PostgreSQL server that listens on a socket alone, and ends with this value.
#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    folder: PathBuf,
}

impl Postgres {
    /// Starts one, or returns `None` where none is installed.
    ///
    /// # Errors
    ///
    /// When it is installed and does not start.
    pub fn start() -> Result<Option<Postgres>> {
        let Some(programs) = programs() else { return Ok(None) };
        // A socket's path is short, and the server's user must reach it.
        let folder = PathBuf::from(format!("/tmp/leasehold-postgres-{}", std::process::id()));
        let server = Postgres { programs, folder };
        std::fs::create_dir(&server.folder)?;
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(&server.folder))?;
        }
        let data = server.data();
        run(server.command("initdb").args(["-A", "trust", "-U", "postgres", "-D"]).arg(&data))?;
        let options = format!("-k {} -c listen_addresses=''", server.folder.display());
        let log = server.folder.join("log");
        run(server.control().arg("-l").arg(log).args(["-w", "-o", &options, "start"]))?;
        Ok(Some(server))
    }

    /// Where `postgres::Client::connect` finds it.
    pub fn address(&self) -> String {
        format!("host={} user=postgres", self.folder.display())
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// One of its programs, under a user who may run it: the server refuses root.
    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        if !is_root() {
            return Command::new(program);
        }
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(program).current_dir("/");
        command
    }

    fn control(&self) -> Command {
        let mut control = self.command("pg_ctl");
        control.arg("-D").arg(self.data());
        control
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // It may not have started, and there is nobody to tell.
        drop(run(self.control().args(["-m", "immediate", "stop"])));
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// The folder of `initdb`: on PATH, or where Debian puts the newest version.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let on_path = std::env::split_paths(&path).find(|folder| folder.join("initdb").exists());
    on_path.or_else(|| {
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
        let folders = versions.flatten().map(|version| version.path().join("bin"));
        folders.filter(|folder| folder.join("initdb").exists()).max()
    })
}

fn is_root() -> bool {
    Path::new("/proc/self").metadata().is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0)
}

fn run(command: &mut Command) -> Result<()> {
    // Not piped: the server inherits them, and a reader would wait for its end.
    let null = std::process::Stdio::null;
    let status = command.stdin(null()).stdout(null()).stderr(null()).status();
    let status = status.map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}
