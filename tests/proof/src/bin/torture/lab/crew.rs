//! The server, the child processes, and a proxy for each.

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_support::{Child, ChildBuilder, Proxy, Server};

use super::Result;
use super::holder::{FOLDER, ROLE, URL};

/// How long a child may take to start, and to end a task.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// All that a trial needs.
pub(crate) struct Crew {
    pub(crate) server: Server,
    pub(crate) members: Vec<Member>,
    pub(crate) folder: PathBuf,
    make: fn(ChildBuilder) -> ChildBuilder,
}

/// A child process, and the proxy through which it reaches the server.
pub(crate) struct Member {
    pub(crate) proxy: Proxy,
    pub(crate) child: Child,
}

impl Crew {
    /// Starts a private server and this number of processes; `make` starts this program again.
    pub(crate) fn hire(processes: usize, make: fn(ChildBuilder) -> ChildBuilder) -> Result<Crew> {
        let server = Server::start()?;
        let folder = server.directory().join("torture");
        std::fs::create_dir(&folder)?;
        let mut members = Vec::new();
        for _ in 0..processes {
            let proxy = Proxy::start(&server)?;
            let child = start(&proxy.url(), &folder, make)?;
            members.push(Member { proxy, child });
        }
        Ok(Crew { server, members, folder, make })
    }

    /// Puts another process in the place of one that is gone.
    pub(crate) fn replace(&mut self, index: usize) -> Result<()> {
        let member = &mut self.members[index];
        member.child.kill9();
        member.child = start(&member.proxy.url(), &self.folder, self.make)?;
        Ok(())
    }
}

/// Starts a process that uses the server of this URL, or the servers of several.
pub(crate) fn start(
    url: &str,
    folder: &Path,
    make: fn(ChildBuilder) -> ChildBuilder,
) -> Result<Child> {
    let child = make(Child::role(ROLE)).env(URL, url).env(FOLDER, folder);
    let mut child = child.start()?;
    child.expect_line("ready", PATIENCE);
    Ok(child)
}
