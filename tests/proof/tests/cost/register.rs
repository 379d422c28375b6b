//! The registers of a system call, which each processor has elsewhere.

use nix::Result;
use nix::sys::ptrace;
use nix::unistd::Pid;

/// The number of the call that a thread is about to make, and its first argument.
#[cfg(target_arch = "x86_64")]
pub(crate) fn call(thread: Pid) -> Result<(i64, u64)> {
    let registers = ptrace::getregs(thread)?;
    Ok((registers.orig_rax.cast_signed(), registers.rdi))
}

/// The same on the other processor.
#[cfg(target_arch = "aarch64")]
pub(crate) fn call(thread: Pid) -> Result<(i64, u64)> {
    let registers = ptrace::getregs(thread)?;
    Ok((registers.regs[8].cast_signed(), registers.regs[0]))
}
