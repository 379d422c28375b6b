//! A thread that does what it is told, and keeps its guard.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use leasehold::{Guard, Mutex};

use super::Result;

/// A thread that does not come back in this time hangs.
const MOST: Duration = Duration::from_secs(20);

/// What a thread is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Lock,
    Release,
    /// How many wait for what it holds, as its guard knows.
    Waiters,
    /// Until when its guard is valid.
    ValidUntil,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// It has the lock, with this token.
    Held(u64),
    Released,
    Waiters(usize),
    /// Then, or a little later if the machine stalled in between.
    ValidUntil(Instant),
}

/// A thread with a handle of a lock.
#[derive(Debug)]
pub(crate) struct Actor {
    lock: Mutex,
    asks: Option<Sender<Ask>>,
    reports: Receiver<leasehold::Result<Report>>,
    thread: Option<JoinHandle<()>>,
}

impl Actor {
    pub(crate) fn start(lock: Mutex) -> Actor {
        let (asks, asked) = channel();
        let (tells, reports) = channel();
        let handle = lock.clone();
        let thread = thread::spawn(move || {
            let mut guard: Option<Guard> = None;
            while let Ok(ask) = asked.recv() {
                let outcome = obey(ask, &lock, &mut guard);
                if tells.send(outcome).is_err() {
                    break;
                }
            }
        });
        Actor { lock: handle, asks: Some(asks), reports, thread: Some(thread) }
    }

    /// Tells it what to do, and does not wait.
    pub(crate) fn ask(&self, ask: Ask) -> Result<()> {
        let asks = self.asks.as_ref().ok_or("the thread has ended")?;
        asks.send(ask).map_err(|_| "the thread has ended".into())
    }

    /// Waits until it has done it.
    pub(crate) fn report(&self) -> Result<Report> {
        Ok(self.reports.recv_timeout(MOST)??)
    }
}

fn obey(ask: Ask, lock: &Mutex, guard: &mut Option<Guard>) -> leasehold::Result<Report> {
    match ask {
        Ask::Lock => {
            let held = guard.insert(lock.lock()?);
            Ok(Report::Held(held.fencing_token().get()))
        }
        Ask::Release => {
            guard.take().map_or(Ok(()), Guard::release)?;
            Ok(Report::Released)
        }
        Ask::Waiters => Ok(Report::Waiters(guard.as_ref().map_or(0, Guard::waiters))),
        Ask::ValidUntil => {
            let now = Instant::now();
            let remaining = guard.as_ref().map_or(Duration::ZERO, Guard::remaining);
            Ok(Report::ValidUntil(now + remaining))
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.asks = None;
        // It may wait for a lock that nobody gives it.
        let _ = self.lock.cancel_waits();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
