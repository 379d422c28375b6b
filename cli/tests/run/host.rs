//! Machines that differ from this one: in what `/proc` shows, in what a filter forbids, in what is below a container.

use std::path::PathBuf;
use std::process::Command;

use leasehold_support::{Server, skip};

use crate::common::run;

/// Where a run happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// This machine, as it is.
    This,
    /// This machine without groups of version 2, so that processes are killed one by one.
    Ungrouped,
    /// `/proc` shows nobody what is another's, and the run is by a user without rights.
    Hiding,
}

impl Host {
    /// The program and the arguments in front of a command.
    fn prefix(self) -> Option<[&'static str; 4]> {
        // Programs that root has for itself alone are none for another user.
        const HIDING: &str = "mount -t proc -o hidepid=2 proc /proc && export PATH=/usr/bin:/bin && \
                              exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
        const UNGROUPED: &str = "umount --all --lazy --types cgroup2 && exec \"$@\"";
        match self {
            Host::This => None,
            Host::Ungrouped => Some(["--mount", "sh", "-c", UNGROUPED]),
            Host::Hiding => Some(["--mount", "sh", "-c", HIDING]),
        }
    }

    /// The command there, in the process that is started.
    pub(crate) fn command(self, program: &str) -> Command {
        let Some(prefix) = self.prefix() else { return Command::new(program) };
        let mut command = Command::new("unshare");
        command.args(prefix).args(["sh", program]);
        command
    }

    /// `leasehold run` there, against this URL.
    pub(crate) fn run(self, url: &str) -> Command {
        let plain = run(url);
        let mut command = self.command(plain.get_program().to_str().expect("a path"));
        command.args(plain.get_args()).env("REDIS_URL", url).env_remove("LEASEHOLD_URL");
        command
    }

    /// A path for a file that the user of a run may write to.
    pub(crate) fn path(self, server: &Server, name: &str) -> PathBuf {
        let folder = server.directory();
        match self {
            Host::This | Host::Ungrouped => folder.join(name),
            // The folder is private.
            Host::Hiding => PathBuf::from(format!("{}-{name}", folder.display())),
        }
    }

    /// The ways there are here to kill the processes of a job: all of a control group at once, and one by one.
    pub(crate) fn ways() -> Vec<Host> {
        let has_group = groups_are_used(Host::This);
        match (has_group, has_group && !groups_are_used(Host::Ungrouped)) {
            (true, true) => vec![Host::This, Host::Ungrouped],
            (true, false) => {
                skip("this user cannot hide the control groups: no process was killed alone");
                vec![Host::This]
            }
            (false, _) => {
                skip("this user has no control group: no process was killed by cgroup.kill");
                vec![Host::This]
            }
        }
    }

    /// Whether this machine can be such a one; says so if not.
    pub(crate) fn is_there(self) -> bool {
        let program = env!("CARGO_BIN_EXE_leasehold");
        let output = self.command(program).arg("--version").output();
        let is_there = output.is_ok_and(|output| output.status.success());
        if !is_there {
            skip(format!("this user cannot make such a host: {self:?}"));
        }
        is_there
    }
}

/// Whether a run there says that it uses a control group.
fn groups_are_used(host: Host) -> bool {
    let mut command = host.run("redis://127.0.0.1:1");
    let output = command.args(["-v", "x", "--", "true"]).output().expect("the program");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.contains("are killed by cgroup.kill, in /")
}
