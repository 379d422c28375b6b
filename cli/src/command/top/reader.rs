//! Asks the server, again and again, on a thread of its own.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread;
use std::time::Duration;

use leasehold::LockClient;

use crate::command::list::{Found, Selection};
use crate::report::row::Row;

/// A refresh that takes long is followed by a pause of so many times its length.
const REST: u32 = 9;

/// What the server had at one moment.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) found: Found,
    pub(super) rows: Vec<Row>,
    /// How long it took to ask.
    pub(super) took: Duration,
}

/// The thread that reads. It ends with its `Reader`, as soon as the call under way has ended.
#[derive(Debug)]
pub(super) struct Reader {
    frames: Receiver<Result<Frame, String>>,
    /// Whether to pause.
    orders: Sender<bool>,
}

/// The reader's thread is gone.
#[derive(Debug)]
pub(super) struct ReaderGone;

impl Reader {
    /// Starts with a pause: the first frame was just read.
    pub(super) fn start(
        client: LockClient,
        selection: Selection,
        interval: Duration,
    ) -> io::Result<Reader> {
        // A frame that nobody takes stops the reading: a terminal that is stuck must not cost the server.
        let (sender, frames) = mpsc::sync_channel(1);
        let (orders, inbox) = mpsc::channel();
        thread::Builder::new().name("top-read".to_owned()).spawn(move || {
            let mut pause = interval;
            while await_turn(&inbox, pause) {
                let frame = Frame::read(&client, &selection);
                pause = match &frame {
                    Ok(frame) => interval.max(frame.took * REST),
                    Err(_) => interval,
                };
                if sender.send(frame.map_err(|error| error.to_string())).is_err() {
                    return;
                }
            }
        })?;
        Ok(Reader { frames, orders })
    }

    pub(super) fn pause(&self, pause: bool) {
        // Where the thread is gone, the next `take` says so.
        let _ = self.orders.send(pause);
    }

    /// The frame that was read since the last call, if there is one.
    pub(super) fn take(&self) -> Result<Option<Result<Frame, String>>, ReaderGone> {
        match self.frames.try_recv() {
            Ok(frame) => Ok(Some(frame)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(ReaderGone),
        }
    }
}

/// Waits for the next turn to read, and longer while paused. Returns false when the reader is gone.
fn await_turn(inbox: &Receiver<bool>, pause: Duration) -> bool {
    let mut is_paused = match inbox.recv_timeout(pause) {
        Ok(is_paused) => is_paused,
        Err(RecvTimeoutError::Timeout) => return true,
        Err(RecvTimeoutError::Disconnected) => return false,
    };
    while is_paused {
        match inbox.recv() {
            Ok(order) => is_paused = order,
            Err(_) => return false,
        }
    }
    // A key that is held down must not make it faster.
    inbox.recv_timeout(pause) != Err(RecvTimeoutError::Disconnected)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    #[test]
    fn pause_lasts_until_it_is_taken_back() {
        let (orders, inbox) = mpsc::channel();
        orders.send(true).unwrap();
        orders.send(true).unwrap();
        orders.send(false).unwrap();
        assert!(await_turn(&inbox, Duration::ZERO));
        orders.send(true).unwrap();
        drop(orders);
        assert!(!await_turn(&inbox, LONG), "the program ends while it is paused");
    }

    #[test]
    fn end_of_the_program_ends_a_long_interval() {
        let (orders, inbox) = mpsc::channel();
        drop(orders);
        assert!(!await_turn(&inbox, LONG));
    }
}
