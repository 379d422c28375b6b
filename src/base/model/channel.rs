//! Channels with the interface of `crossbeam-channel`, as far as this crate uses it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use crossbeam_channel::{
    RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError,
};

use super::lock::{Condvar, Mutex, MutexGuard};
use super::time::ModelClock;
use crate::base::time::{Clock, Moment};

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    most: usize,
}

struct State<T> {
    items: VecDeque<T>,
    senders: usize,
    receivers: usize,
}

/// A channel with a bound.
pub(crate) fn bounded<T>(most: usize) -> (Sender<T>, Receiver<T>) {
    assert!(most > 0, "a channel without room is not modelled");
    let state = State { items: VecDeque::new(), senders: 1, receivers: 1 };
    let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), most });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

/// A channel without a bound.
pub(crate) fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    bounded(usize::MAX)
}

pub(crate) struct Sender<T>(Arc<Shared<T>>);

impl<T> Sender<T> {
    pub(crate) fn send(&self, item: T) -> Result<(), SendError<T>> {
        let mut state = self.0.state.lock();
        while state.receivers > 0 && state.items.len() >= self.0.most {
            self.0.changed.wait(&mut state);
        }
        if state.receivers == 0 {
            return Err(SendError(item));
        }
        self.put(state, item);
        Ok(())
    }

    pub(crate) fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        let state = self.0.state.lock();
        if state.receivers == 0 {
            return Err(TrySendError::Disconnected(item));
        }
        if state.items.len() >= self.0.most {
            return Err(TrySendError::Full(item));
        }
        self.put(state, item);
        Ok(())
    }

    fn put(&self, mut state: MutexGuard<'_, State<T>>, item: T) {
        state.items.push_back(item);
        drop(state);
        self.0.changed.notify_all();
    }

    pub(crate) fn len(&self) -> usize {
        self.0.state.lock().items.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.state.lock().senders += 1;
        Sender(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state.lock().senders -= 1;
        self.0.changed.notify_all();
    }
}

pub(crate) struct Receiver<T>(Arc<Shared<T>>);

impl<T> Receiver<T> {
    pub(crate) fn recv(&self) -> Result<T, RecvError> {
        self.receive(Moment::FAR).map_err(|_| RecvError)
    }

    pub(crate) fn recv_timeout(&self, span: Duration) -> Result<T, RecvTimeoutError> {
        self.receive(ModelClock.now().after(span))
    }

    fn receive(&self, end: Moment) -> Result<T, RecvTimeoutError> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(item) = state.items.pop_front() {
                drop(state);
                self.0.changed.notify_all();
                return Ok(item);
            }
            if state.senders == 0 {
                return Err(RecvTimeoutError::Disconnected);
            }
            if end == Moment::FAR {
                self.0.changed.wait(&mut state);
                continue;
            }
            let left = end.since(ModelClock.now());
            if left.is_zero() {
                return Err(RecvTimeoutError::Timeout);
            }
            self.0.changed.wait_for(&mut state, left);
        }
    }

    /// The items that are there now.
    pub(crate) fn try_iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.try_recv().ok())
    }

    pub(crate) fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut state = self.0.state.lock();
        match state.items.pop_front() {
            Some(item) => {
                drop(state);
                self.0.changed.notify_all();
                Ok(item)
            }
            None if state.senders == 0 => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.state.lock().items.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.receivers -= 1;
        let items = std::mem::take(&mut state.items);
        drop(state);
        // Without the lock: the destructor of an item may use this channel again.
        drop(items);
        self.0.changed.notify_all();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
