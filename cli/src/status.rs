//! The exit statuses that scripts rely on. Their table is in `docs/command.md`.

/// All is done.
pub(crate) const DONE: u8 = 0;
/// The lock was not had in time, nobody was there, or what was asked about is so.
pub(crate) const NOT_HAD: u8 = 1;
/// The arguments are wrong.
pub(crate) const USAGE: u8 = 64;
/// Redis cannot be reached.
pub(crate) const UNREACHABLE: u8 = 69;
/// Nothing of the others.
pub(crate) const INTERNAL: u8 = 70;
/// Processes of the job may be left, which the system does not show.
pub(crate) const UNSEEN: u8 = 71;
/// It is not known whether the lock was taken; a second try is safe.
pub(crate) const UNKNOWN_OUTCOME: u8 = 75;
/// The server refused the user, the password or a command.
pub(crate) const DENIED: u8 = 77;
/// The lock was lost, and the job was ended.
pub(crate) const LOST: u8 = 76;
/// The job's program cannot be run.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such program.
pub(crate) const NOT_FOUND: u8 = 127;
