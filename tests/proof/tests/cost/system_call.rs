//! System calls by number.

use nix::libc;

/// What the allocator, a clock and random numbers need: that differs from system to system, and from moment to moment. A
/// yield is no more than a hint, a restart belongs to the call that it restarts, and the time-outs of a socket are set
/// anew when the time that is left has changed by more than some milliseconds.
const UNCOUNTED: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_getrandom,
    libc::SYS_gettimeofday,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_setsockopt,
];

const NAMES: &[(i64, &str)] = &[
    (libc::SYS_clock_nanosleep, "clock_nanosleep"),
    (libc::SYS_close, "close"),
    (libc::SYS_connect, "connect"),
    (libc::SYS_epoll_pwait, "epoll_pwait"),
    (libc::SYS_fcntl, "fcntl"),
    (libc::SYS_futex, "futex"),
    (libc::SYS_getsockopt, "getsockopt"),
    (libc::SYS_getpid, "getpid"),
    (libc::SYS_ioctl, "ioctl"),
    (libc::SYS_nanosleep, "nanosleep"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, "poll"),
    (libc::SYS_ppoll, "ppoll"),
    (libc::SYS_read, "read"),
    (libc::SYS_recvfrom, "recvfrom"),
    (libc::SYS_sendto, "sendto"),
    (libc::SYS_write, "write"),
    (libc::SYS_writev, "writev"),
];

/// Whether a call counts.
pub(crate) fn is_counted(number: i64) -> bool {
    !UNCOUNTED.contains(&number)
}

/// Whether only another thread, or a clock, ends the sleep in this call.
pub(crate) fn needs_a_thread(number: i64) -> bool {
    [libc::SYS_futex, libc::SYS_nanosleep, libc::SYS_clock_nanosleep].contains(&number)
}

/// Whether a call takes what a server has sent, which may come in several pieces.
pub(crate) fn receives(number: i64) -> bool {
    number == libc::SYS_recvfrom
}

/// Its name, or its number.
pub(crate) fn name(number: i64) -> String {
    let known = NAMES.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("number {number}"), |(_, name)| (*name).to_owned())
}
