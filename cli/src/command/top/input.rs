//! What the terminal has for the program, looked at before the reader of keys, which never returns on a terminal that
//! is gone.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::stdio::{stdin, stdout};

/// What a look at the terminal found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Nothing,
    /// There may be a key.
    Some,
    /// The window was closed, the connection was cut, or the program that had the terminal has ended.
    HungUp,
}

/// Waits for a key for this long at most, and less if a signal comes.
pub(super) fn await_input(longest: Duration) -> io::Result<Input> {
    look(PollFlags::IN, longest)
}

/// Waits for this long at most until the terminal is gone. Returns whether it is.
pub(super) fn await_hang_up(longest: Duration) -> io::Result<bool> {
    Ok(look(PollFlags::empty(), longest)? == Input::HungUp)
}

/// Writes it, if the terminal takes it now. What holds it up may last for ever.
pub(super) fn write_at_once(text: &[u8]) {
    let output = stdout();
    let mut outputs = [PollFd::new(&output, PollFlags::OUT)];
    let is_ready = poll(&mut outputs, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    if is_ready.is_ok_and(|ready| ready > 0) {
        let _ = rustix::io::write(output, text);
    }
}

fn look(flags: PollFlags, longest: Duration) -> io::Result<Input> {
    let terminal = stdin();
    let mut inputs = [PollFd::new(&terminal, flags)];
    let seconds = i64::try_from(longest.as_secs()).unwrap_or(i64::MAX);
    let longest = Timespec { tv_sec: seconds, tv_nsec: longest.subsec_nanos().into() };
    match poll(&mut inputs, Some(&longest)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let seen = inputs[0].revents();
    Ok(if seen.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        Input::HungUp
    } else if seen.contains(PollFlags::IN) {
        Input::Some
    } else {
        Input::Nothing
    })
}
