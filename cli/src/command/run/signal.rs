//! The signals that this process gets, read one after the other instead of interrupting it.
//!
//! They are blocked and not caught: what a signal does in the job depends on what our caller set, and a job
//! inherits what is ignored, but not what is caught.

use std::os::fd::BorrowedFd;

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getpid, getppid, kill_process};

/// What made the kernel deliver a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "signals tell no sender there"))]
pub(crate) enum Origin {
    /// The terminal, for one, which sends to all processes in the foreground.
    Kernel,
    Process(i32),
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) number: i32,
    pub(crate) origin: Origin,
}

/// What a signal does to a process that does not handle it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    Stop,
    End,
}

impl Arrival {
    pub(crate) fn effect(self) -> Effect {
        match Signal::try_from(self.number) {
            Ok(Signal::SIGCHLD | Signal::SIGCONT | Signal::SIGURG | Signal::SIGWINCH) => {
                Effect::Nothing
            }
            Ok(Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU) => Effect::Stop,
            _ => Effect::End,
        }
    }

    /// Whether the job is to get it too. It did already if the terminal sent it, to the whole foreground. But a
    /// terminal that hangs up tells only the leader of the session, which is then this process and not the job.
    pub(crate) fn is_for_job(self, guardian: i32) -> bool {
        let own = getpid().as_raw_nonzero().get();
        let is_chld = self.number == Signal::SIGCHLD as i32;
        let is_hup = self.number == Signal::SIGHUP as i32;
        match self.origin {
            _ if is_chld => false,
            Origin::Kernel => is_hup,
            Origin::Process(sender) => sender != guardian && sender != own,
            Origin::Unknown => true,
        }
    }

    /// Whether its sender signals the whole process group too, so that the job in it has the signal already: timeout(1)
    /// does, as the parent of this process and the leader of the group.
    pub(crate) fn has_reached_group(self, group: Option<Pid>) -> bool {
        let Origin::Process(sender) = self.origin else { return false };
        let is_it = |pid: Option<Pid>| pid.is_some_and(|pid| pid.as_raw_nonzero().get() == sender);
        let name = || std::fs::read(format!("/proc/{sender}/comm")).unwrap_or_default();
        is_it(group) && is_it(getppid()) && name().trim_ascii_end() == b"timeout"
    }
}

/// Reads the name of a signal, with or without its SIG, or its number.
pub(crate) fn parse(text: &str) -> Result<i32, String> {
    let number = text.parse().ok().and_then(|number: i32| Signal::try_from(number).ok());
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let named =
        || Signal::iterator().find(|signal| signal.as_str().strip_prefix("SIG") == Some(name));
    let signal = number.or_else(named);
    signal
        .map(|signal| signal as i32)
        .ok_or_else(|| "expected a signal, such as TERM or 15".to_owned())
}

/// All signals that another process may send for a purpose.
fn readable() -> SigSet {
    // These are the faults of a program itself; they cannot be read.
    const FAULTS: [Signal; 7] = [
        Signal::SIGABRT,
        Signal::SIGBUS,
        Signal::SIGFPE,
        Signal::SIGILL,
        Signal::SIGSEGV,
        Signal::SIGSYS,
        Signal::SIGTRAP,
    ];
    Signal::iterator().filter(|signal| !FAULTS.contains(signal)).collect()
}

/// The signals that this thread blocks.
pub(crate) fn blocked() -> std::io::Result<SigSet> {
    Ok(SigSet::thread_get_mask()?)
}

/// Keeps the children of this process until they are waited for, even if its caller ignores SIGCHLD: a child
/// of such a process would vanish without an exit status.
fn keep_children() -> std::io::Result<()> {
    signal_hook::flag::register(Signal::SIGCHLD as i32, std::sync::Arc::default()).map(drop)
}

#[cfg(target_os = "linux")]
pub(crate) use linux::Signals;

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::AsFd as _;

    use nix::sys::signalfd::{SfdFlags, SignalFd};

    use super::*;

    #[derive(Debug)]
    pub(crate) struct Signals(SignalFd);

    impl Signals {
        /// Blocks the signals in this thread, in those that it starts, and in processes that it forks, each of which
        /// reads its own.
        pub(crate) fn block() -> std::io::Result<Signals> {
            keep_children()?;
            let set = readable();
            set.thread_block()?;
            Ok(Signals(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
        }

        pub(crate) fn next(&mut self) -> Option<Arrival> {
            let information = self.0.read_signal().ok()??;
            let number = i32::try_from(information.ssi_signo).ok()?;
            let origin = match information.ssi_code {
                // SI_USER, SI_QUEUE and SI_TKILL.
                0 | -1 | -6 => {
                    i32::try_from(information.ssi_pid).map_or(Origin::Unknown, Origin::Process)
                }
                _ => Origin::Kernel,
            };
            Some(Arrival { number, origin })
        }

        pub(crate) fn input(&self) -> Option<BorrowedFd<'_>> {
            Some(self.0.as_fd())
        }
    }
}

#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct Signals(signal_hook::iterator::Signals);

#[cfg(not(target_os = "linux"))]
impl Signals {
    /// Catches the signals in this process: they tell nothing of their sender here.
    pub(crate) fn block() -> std::io::Result<Signals> {
        keep_children()?;
        let readable = readable();
        let numbers = readable.iter().map(|signal| signal as i32);
        let forbidden = signal_hook::consts::FORBIDDEN;
        let numbers = numbers.filter(|number| !forbidden.contains(number));
        Ok(Signals(signal_hook::iterator::Signals::new(numbers)?))
    }

    pub(crate) fn next(&mut self) -> Option<Arrival> {
        let number = self.0.pending().next()?;
        Some(Arrival { number, origin: Origin::Unknown })
    }

    pub(crate) fn input(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Whether our caller made this process ignore the signal, as nohup(1) does.
pub(crate) fn is_ignored(number: i32) -> bool {
    // It has the name of this process, which need not be UTF-8.
    let status = std::fs::read("/proc/self/status").unwrap_or_default();
    ignored_in(&status, number)
}

fn ignored_in(status: &[u8], number: i32) -> bool {
    let mask = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"SigIgn:"));
    let mask = mask.and_then(|mask| std::str::from_utf8(mask).ok());
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = u32::try_from(number - 1).ok().and_then(|bit| 1_u64.checked_shl(bit));
    mask.unwrap_or(0) & bit.unwrap_or(0) != 0
}

/// Does to this process what the signal does to one that does not handle it: stops it, so that its caller sees by
/// which signal, and returns when it goes on.
pub(crate) fn stop_by(number: i32) {
    #[cfg(target_os = "linux")]
    raise(number);
    // Elsewhere the signal is caught, and not blocked.
    #[cfg(not(target_os = "linux"))]
    let _ = signal_hook::low_level::emulate_default_handler(number);
}

/// Ends this process by the signal, so that its caller sees why. Returns if the signal does not end it.
pub(crate) fn die_of(number: i32) {
    #[cfg(not(target_os = "linux"))]
    let _ = signal_hook::low_level::emulate_default_handler(number);
    raise(number);
}

/// Lets this process be hit by a signal that is blocked otherwise.
fn raise(number: i32) {
    if let (Ok(name), Some(signal)) =
        (Signal::try_from(number), rustix::process::Signal::from_named_raw(number))
    {
        let set = SigSet::from(name);
        let _ = set.thread_unblock();
        let _ = kill_process(getpid(), signal);
        let _ = set.thread_block();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status = b"Name:\tsauvegarde-\xc3\nSigIgn:\t0000000000001001\nSigCgt:\tffff\n";
        assert!(ignored_in(status, 1) && ignored_in(status, 13));
        assert!(!ignored_in(status, 2) && !ignored_in(status, 0) && !ignored_in(b"", 1));
    }

    #[test]
    fn job_gets_what_people_send_and_not_what_it_has() {
        let is_for_job = |number, origin| Arrival { number, origin }.is_for_job(7);
        assert!(is_for_job(Signal::SIGTERM as i32, Origin::Process(1)));
        assert!(is_for_job(Signal::SIGTERM as i32, Origin::Process(0)), "from another container");
        assert!(!is_for_job(Signal::SIGINT as i32, Origin::Kernel), "the terminal sent it to both");
        assert!(is_for_job(Signal::SIGHUP as i32, Origin::Kernel), "to the session's leader alone");
        assert!(!is_for_job(Signal::SIGCONT as i32, Origin::Process(7)), "the guardian wakes us");
        assert!(!is_for_job(Signal::SIGCHLD as i32, Origin::Process(1)));
    }

    #[test]
    fn signals_are_read_by_name_and_number() {
        for text in ["TERM", "SIGTERM", "sigterm", "15"] {
            assert_eq!(parse(text), Ok(15), "{text}");
        }
        for odd in ["", "0", "99", "SIG", "SIGSIGTERM", "TERMS"] {
            assert!(parse(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn effects_are_those_of_signal_7() {
        let effect = |signal| Arrival { number: signal as i32, origin: Origin::Unknown }.effect();
        assert_eq!(effect(Signal::SIGTERM), Effect::End);
        assert_eq!(effect(Signal::SIGUSR1), Effect::End);
        assert_eq!(effect(Signal::SIGTSTP), Effect::Stop);
        assert_eq!(effect(Signal::SIGWINCH), Effect::Nothing);
    }
}
