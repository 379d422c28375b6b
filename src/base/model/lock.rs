//! Mutexes and condition variables with the interface of `parking_lot`.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex as RealMutex, PoisonError};
use std::time::Duration;

use super::time::{Event, limit, switch};

/// A mutex that a panic does not poison.
#[derive(Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, inner: Some(self.lock_inner()) }
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.0.try_lock().ok()?;
        Some(MutexGuard { mutex: self, inner: Some(inner) })
    }

    fn lock_inner(&self) -> shuttle::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

/// The guard of a [`Mutex`].
pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// Empty only during a wait for a condition.
    inner: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("it is locked")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("it is locked")
    }
}

impl<T> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutexGuard").finish_non_exhaustive()
    }
}

/// Whether a wait timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub(crate) fn timed_out(self) -> bool {
        self.0
    }
}

/// A condition variable, whose waiters are woken in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Condvar(RealMutex<VecDeque<Arc<Event>>>);

impl Condvar {
    pub(crate) const fn new() -> Condvar {
        Condvar(RealMutex::new(VecDeque::new()))
    }

    fn waiters<T>(&self, with: impl FnOnce(&mut VecDeque<Arc<Event>>) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_inner(guard, None);
    }

    pub(crate) fn wait_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        span: Duration,
    ) -> WaitTimeoutResult {
        WaitTimeoutResult(!self.wait_inner(guard, Some(span)))
    }

    /// Returns true for a notification, and false for the end of the time.
    fn wait_inner<T>(&self, guard: &mut MutexGuard<'_, T>, span: Option<Duration>) -> bool {
        // A thread that notifies without holding the mutex may do so before this one is in the
        // list: the classic lost wake-up. The checker must be able to produce it.
        switch();
        let event = Event::new();
        self.waiters(|waiters| waiters.push_back(Arc::clone(&event)));
        if let Some(span) = span {
            limit(&event, span);
        }
        guard.inner = None;
        let notified = event.wait();
        // A stale entry would swallow a later `notify_one`.
        if !notified {
            self.waiters(|waiters| waiters.retain(|waiter| !Arc::ptr_eq(waiter, &event)));
        }
        guard.inner = Some(guard.mutex.lock_inner());
        notified
    }

    pub(crate) fn notify_one(&self) -> bool {
        switch();
        while let Some(waiter) = self.waiters(VecDeque::pop_front) {
            // One whose time is over has not removed itself yet: the notification goes to the next.
            if waiter.notify() {
                return true;
            }
        }
        false
    }

    pub(crate) fn notify_all(&self) -> usize {
        switch();
        let waiters = self.waiters(std::mem::take);
        waiters.into_iter().filter(|waiter| waiter.notify()).count()
    }
}

/// For many threads that are woken at once.
pub(crate) mod contended {
    use std::time::Duration;

    pub(crate) use super::{Condvar, Mutex, MutexGuard};

    /// Waits to be notified.
    pub(crate) fn wait<'a, T>(
        condvar: &Condvar,
        mut guard: MutexGuard<'a, T>,
    ) -> MutexGuard<'a, T> {
        condvar.wait(&mut guard);
        guard
    }

    /// The same, for no longer than this.
    pub(crate) fn wait_for<'a, T>(
        condvar: &Condvar,
        mut guard: MutexGuard<'a, T>,
        span: Duration,
    ) -> MutexGuard<'a, T> {
        condvar.wait_for(&mut guard, span);
        guard
    }
}
