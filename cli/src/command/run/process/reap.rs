//! How children end and are waited for.

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, WaitStatus};

/// What happened to a child.
#[derive(Debug)]
pub(crate) enum Reaped {
    Changed(Pid, WaitStatus),
    /// There are children, and none has news.
    Nothing,
    /// There is no child, and so, where orphans come to this process, no descendant.
    NoChild,
}

pub(crate) fn reap() -> Reaped {
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
    match rustix::process::wait(options) {
        Ok(Some((pid, status))) => Reaped::Changed(pid, status),
        Err(rustix::io::Errno::CHILD) => Reaped::NoChild,
        Ok(None) | Err(_) => Reaped::Nothing,
    }
}

/// Whether a child has not ended yet. It leaves the news of its end for [`reap`].
pub(super) fn is_running(child: i32) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let state = Pid::from_raw(child).map(|pid| rustix::process::waitid(WaitId::Pid(pid), options));
    matches!(state, Some(Ok(None)))
}

/// Makes the orphans below this process its children, where systems can do that.
///
/// It fails where this one can, and does not allow it: orphans of a job would go on after its lease.
pub(crate) fn adopt_orphans() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// The process group of this process. None if it began outside the PID namespace: there is no number for it here.
pub(crate) fn group() -> Option<Pid> {
    // rustix takes it for granted that the number is above zero.
    Pid::from_raw(nix::unistd::getpgrp().as_raw())
}
