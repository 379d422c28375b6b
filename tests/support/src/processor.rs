//! Which processors threads run on, where the system lets a program choose.

use std::fmt;
use std::io;
use std::thread;

/// Returns the processors that this thread may use; none if the system does not report them.
#[cfg(target_os = "linux")]
pub fn allowed() -> Vec<usize> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let Ok(allowed) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&number| allowed.is_set(number)).collect()
}

/// Keeps this thread, and all that it starts from now on, on these processors.
///
/// # Errors
///
/// If the system refuses.
#[cfg(target_os = "linux")]
pub fn pin(processors: &[usize]) -> io::Result<()> {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    for &number in processors {
        set.set(number);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Returns nothing: this system does not report them.
#[cfg(not(target_os = "linux"))]
pub fn allowed() -> Vec<usize> {
    Vec::new()
}

/// Does nothing: this system does not let programs choose.
///
/// # Errors
///
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn pin(_processors: &[usize]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The processors of a bench's server and of its clients.
///
/// Unpinned, the kernel wakes a client now on the processor of the server, now on another one. What
/// that costs is more than the measured time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// The server has one processor, and the clients have the others.
    Apart {
        /// The server's.
        server: usize,
        /// The clients'.
        clients: Vec<usize>,
    },
    /// The system decides, for this reason.
    Anywhere(String),
}

impl Placement {
    /// Keeps this thread and all that it starts on the processors of the clients.
    ///
    /// Call it before any other thread runs: those that run already stay where they are.
    pub fn take() -> Placement {
        let placement = Placement::among(&allowed());
        match placement.pin_client() {
            Ok(()) => placement,
            Err(error) => Placement::Anywhere(error.to_string()),
        }
    }

    fn among(processors: &[usize]) -> Placement {
        match processors {
            [] => Placement::Anywhere("this system does not pin threads".to_owned()),
            [_] => Placement::Anywhere("there is one processor only".to_owned()),
            // The first processor often handles interrupts, which would stop the one server.
            [clients @ .., server] => {
                Placement::Apart { server: *server, clients: clients.to_vec() }
            }
        }
    }

    fn pin_client(&self) -> io::Result<()> {
        match self {
            Placement::Apart { clients, .. } => pin(clients),
            Placement::Anywhere(_) => Ok(()),
        }
    }

    /// Starts servers, which stay on their processor.
    ///
    /// # Panics
    ///
    /// If the system no longer pins threads.
    pub fn serve<T: Send>(&self, start: impl FnOnce() -> T + Send) -> T {
        let Placement::Apart { server, .. } = self else { return start() };
        // A thread of its own, so that the caller stays where it is.
        let started = thread::scope(|scope| {
            let starter = scope.spawn(|| {
                pin(&[*server]).expect("the system pinned a thread before");
                start()
            });
            starter.join()
        });
        started.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// For the header of a table of figures.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Apart { server, clients } => {
                let clients: Vec<_> = clients.iter().map(usize::to_string).collect();
                let many = if clients.len() > 1 { "s" } else { "" };
                let clients = clients.join(", ");
                write!(f, "server on processor {server}, clients on processor{many} {clients}")
            }
            Placement::Anywhere(why) => write!(f, "not pinned: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_clients_share_no_processor() {
        let placement = Placement::among(&[0, 2, 5]);
        assert_eq!(placement, Placement::Apart { server: 5, clients: vec![0, 2] });
        assert_eq!(placement.to_string(), "server on processor 5, clients on processors 0, 2");
    }

    #[test]
    fn one_processor_is_not_shared_out() {
        let placement = Placement::among(&[3]);
        assert_eq!(placement.to_string(), "not pinned: there is one processor only");
        assert_eq!(placement.serve(|| 7), 7);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn pinned_threads_and_processes_stay_apart() {
        let before = allowed();
        let seen = thread::spawn(|| {
            let placement = Placement::take();
            let server = placement.serve(|| {
                let status = std::fs::read_to_string("/proc/thread-self/status").expect("a status");
                let child = std::process::Command::new("cat").arg("/proc/self/status").output();
                let child = String::from_utf8(child.expect("cat").stdout).expect("text");
                let list = |status: &str| {
                    let line =
                        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
                    line.expect("a list of processors").trim().to_owned()
                };
                assert_eq!(list(&child), list(&status), "a child inherits it");
                allowed()
            });
            (placement, server, thread::spawn(allowed).join().expect("no panic"))
        });
        let (placement, seen_server, seen_clients) = seen.join().expect("no panic");
        match placement {
            Placement::Apart { server, clients } => {
                assert_eq!((seen_server, seen_clients), (vec![server], clients));
            }
            Placement::Anywhere(why) => assert!(before.len() < 2, "{why}"),
        }
        assert_eq!(allowed(), before, "other threads stay where they are");
    }
}
