//! The job's main process: how it begins.

use std::ffi::OsString;
use std::io::{PipeReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::rc::Rc;

use fork::Fork;
use nix::sys::signal::SigSet;
use rustix::process::{Pid, getpid, getppid, setpgid};

use super::environment::Environment;
use super::group::Group;
use super::process;

/// For an error without a number.
const AGAIN: i32 = rustix::io::Errno::AGAIN.raw_os_error();

/// What is to run.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) command: Vec<OsString>,
    pub(crate) environment: Environment,
    /// The process group of the wrapper, so that a terminal and a shell treat the job as if there were no wrapper.
    /// Without a number, the guardian is still in it when it starts the job.
    pub(crate) group: Option<Pid>,
    /// The control group of the job.
    pub(crate) control: Option<Rc<Group>>,
    /// The signals that the caller of the wrapper blocked.
    pub(crate) blocked: SigSet,
}

/// The system's number of an error.
pub(crate) fn number_of(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(AGAIN)
}

/// The number of the error that keeps a program from running; none if it runs. It waits for either.
pub(crate) fn read_error(mut reader: PipeReader) -> Option<i32> {
    let mut error = [0; 4];
    reader.read_exact(&mut error).ok().map(|()| i32::from_le_bytes(error))
}

/// Makes another process of this one, which must have one thread: a lock that another thread holds would stay
/// locked in the new process.
///
/// Returns the new process in the old one, and nothing in the new one.
pub(crate) fn fork() -> std::io::Result<Option<Pid>> {
    if let Ok(threads) = std::fs::read_dir("/proc/self/task")
        && threads.count() > 1
    {
        return Err(std::io::Error::other("this process has several threads"));
    }
    match fork::fork()? {
        Fork::Child => Ok(None),
        Fork::Parent(pid) => Ok(Pid::from_raw(pid)),
    }
}

impl Job {
    /// Starts it with the usual rank.
    ///
    /// The pipe is closed when the program begins. If it cannot begin, the pipe has the [error](read_error) before,
    /// and the process ends. Either may take long, as the file of the program may be on a server that is away.
    pub(crate) fn start(&self, token: u64, rank: i32) -> std::io::Result<(Pid, PipeReader)> {
        let (reader, mut writer) = std::io::pipe()?;
        let guardian = getpid();
        if let Some(child) = fork()? {
            return Ok((child, reader));
        }
        drop(reader);
        process::go_with(rank);
        let error = self.become_job(guardian, token);
        let _ = writer.write_all(&number_of(&error).to_le_bytes());
        std::process::exit(1);
    }

    /// Replaces this process by the job. Returns why not.
    fn become_job(&self, guardian: Pid, token: u64) -> std::io::Error {
        // It dies with its guardian. The guardian may be dead already.
        #[cfg(target_os = "linux")]
        if let Err(error) =
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        {
            return error.into();
        }
        if getppid() != Some(guardian) {
            std::process::exit(1);
        }
        if let Some(group) = self.group
            && let Err(error) = setpgid(None, Some(group))
        {
            return error.into();
        }
        if let Some(control) = &self.control {
            // Where it does not succeed, the job is found as where there is none.
            let _ = control.enter();
        }
        let Some((program, arguments)) = self.command.split_first() else {
            return std::io::ErrorKind::InvalidInput.into();
        };
        let mut command = Command::new(program);
        command.args(arguments);
        for (name, value) in self.environment.variables(token) {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Err(error) = self.blocked.thread_set_mask() {
            return error.into();
        }
        command.exec()
    }
}
