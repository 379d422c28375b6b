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
    /// `/proc` shows nobody what is another's, and the run is by a user without rights.
    Hiding,
}

impl Host {
    /// The program and the arguments in front of a command.
    fn prefix(self) -> Option<[&'static str; 4]> {
        // Programs that root has for itself alone are none for another user.
        const HIDING: &str = "mount -t proc -o hidepid=2 proc /proc && export PATH=/usr/bin:/bin && \
                              exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
        match self {
            Host::This => None,
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
        command.args(plain.get_args()).env("REDIS_URL", url);
        command
    }

    /// A path for a file that the user of a run may write to.
    pub(crate) fn path(self, server: &Server, name: &str) -> PathBuf {
        let folder = server.directory();
        match self {
            Host::This => folder.join(name),
            // The folder is private.
            Host::Hiding => PathBuf::from(format!("{}-{name}", folder.display())),
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
