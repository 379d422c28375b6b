//! The observers of a client, and how they are called.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;

use crate::base::panic::catch_panic;
use crate::base::sync::{self, Arc, LongTally, Mutex, Ordering, thread_local};
use crate::observe::{Exchange, Observer};

/// The name of a thread that calls observers.
const THREAD: &str = "lease-observe";

/// At most this many events wait for the thread that reports them. An observer that never returns must not take all memory.
const MOST_ASIDE: usize = 4_096;

/// At most this many exchanges of one call are reported at its end. A call that waits for a day has many more.
const MOST_DEFERRED: usize = 64;

/// The number of the last call for a lock in this process; 0 is none.
static CALLS: LongTally = LongTally::new(0);

/// The observers of a client, none of them as a rule.
#[derive(Clone, Default)]
pub(crate) struct Observers(Option<Arc<ObserverList>>);

/// At least one observer.
pub(crate) struct ObserverList {
    observers: Vec<Arc<dyn Observer>>,
    aside: Mutex<Aside>,
}

/// Something to tell an observer.
type Event = Box<dyn Fn(&dyn Observer) + Send>;

/// Events of threads that must not be held up, in their order.
#[derive(Default)]
struct Aside {
    events: VecDeque<Event>,
    /// Whether a thread tells of them. It ends when there are none.
    has_thread: bool,
    /// Whether the log has a line about events that found no room.
    is_full: bool,
}

/// What a thread does, as far as it matters for observers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// Code of the user, or a call of it.
    User,
    /// An observer: what that does is not observed.
    Observer,
    /// The client's own work, which must not be held up.
    Client,
}

/// A thread, as its observers are called.
struct Thread {
    activity: Cell<Activity>,
    /// How many calls and releases are under way, during which no exchange is reported.
    under_way: Cell<u32>,
    /// Exchanges that are yet to be reported.
    deferred: RefCell<Vec<(Arc<ObserverList>, Exchange)>>,
}

thread_local! {
    static CURRENT: Thread = Thread {
        activity: Cell::new(Activity::User),
        under_way: Cell::new(0),
        deferred: RefCell::default(),
    };
}

impl Observers {
    /// One more.
    pub(crate) fn add(&mut self, observer: Arc<dyn Observer>) {
        let before = self.0.iter().flat_map(|list| list.observers.iter().map(Arc::clone));
        let observers = before.chain([observer]).collect();
        self.0 = Some(Arc::new(ObserverList { observers, aside: Mutex::default() }));
    }

    /// The observers of what this thread does; `None` if there are none, or if the thread is in one of them.
    pub(crate) fn active(&self) -> Option<&Arc<ObserverList>> {
        let list = self.0.as_ref()?;
        // An observer that locks would be told of its own lock, and lock again, without an end.
        (activity() != Activity::Observer).then_some(list)
    }

    /// The observers of a hold that ends. They were told of its begin, and are told of its end although the thread is
    /// in one of them.
    pub(crate) fn of_an_end(&self) -> Option<&Arc<ObserverList>> {
        self.0.as_ref()
    }

    /// Tells of an event on a thread of its own, because this one must not be held up.
    pub(crate) fn tell_aside(&self, event: impl Fn(&dyn Observer) + Send + 'static) {
        if let Some(list) = self.active() {
            list.tell_aside(event);
        }
    }
}

impl ObserverList {
    /// The number of a call that begins.
    pub(crate) fn next_number(&self) -> u64 {
        CALLS.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Tells of an event on this thread, which has nothing locked.
    pub(crate) fn tell(&self, event: impl Fn(&dyn Observer)) {
        let before = set_activity(Activity::Observer);
        for observer in &self.observers {
            catch_panic("an observer", || event(&**observer));
        }
        set_activity(before);
    }

    fn tell_aside(self: &Arc<ObserverList>, event: impl Fn(&dyn Observer) + Send + 'static) {
        let mut aside = self.aside.lock();
        if aside.events.len() >= MOST_ASIDE {
            let was_full = std::mem::replace(&mut aside.is_full, true);
            drop(aside);
            if !was_full {
                log!(warn, "an observer is too slow: it is not told of everything");
            }
            return;
        }
        aside.events.push_back(Box::new(event));
        if std::mem::replace(&mut aside.has_thread, true) {
            return;
        }
        drop(aside);
        let list = Arc::clone(self);
        if let Err(error) = sync::spawn(THREAD, move || list.tell_what_waits()) {
            // The next event tries again.
            self.aside.lock().has_thread = false;
            log!(error, "no thread for an observer could be started: {error}");
        }
    }

    fn tell_what_waits(&self) {
        loop {
            let mut aside = self.aside.lock();
            let Some(event) = aside.events.pop_front() else {
                aside.has_thread = false;
                aside.is_full = false;
                return;
            };
            drop(aside);
            self.tell(event);
        }
    }

    /// Tells of an exchange, at the end of the call to which it belongs.
    pub(crate) fn tell_exchange(self: &Arc<ObserverList>, exchange: Exchange) {
        if activity() == Activity::Client {
            self.tell_aside(move |observer| observer.exchange(&exchange));
            return;
        }
        let deferred = CURRENT.try_with(|thread| {
            if thread.under_way.get() == 0 {
                return false;
            }
            let mut deferred = thread.deferred.borrow_mut();
            if deferred.len() < MOST_DEFERRED {
                deferred.push((Arc::clone(self), exchange));
            } else {
                // It may write to the log, whose logger may be code that locks and comes here again.
                drop(deferred);
                self.tell_aside(move |observer| observer.exchange(&exchange));
            }
            true
        });
        // While the thread ends there is nothing left that could tell of it later.
        if deferred == Ok(false) {
            self.tell(|observer| observer.exchange(&exchange));
        }
    }
}

/// While this lives, its thread is in the midst of a call, in which it asks for a lock or releases one. An observer that
/// uses the same lock would wait for this thread. So exchanges are reported when the last of these is dropped.
pub(crate) struct CallUnderWay(());

impl CallUnderWay {
    pub(crate) fn begin() -> CallUnderWay {
        let _ = CURRENT.try_with(|thread| thread.under_way.set(thread.under_way.get() + 1));
        CallUnderWay(())
    }
}

impl Drop for CallUnderWay {
    fn drop(&mut self) {
        let deferred = CURRENT.try_with(|thread| {
            thread.under_way.set(thread.under_way.get().saturating_sub(1));
            (thread.under_way.get() == 0).then(|| thread.deferred.take())
        });
        let Ok(Some(mut deferred)) = deferred else { return };
        for (list, exchange) in deferred.drain(..) {
            list.tell(|observer| observer.exchange(&exchange));
        }
        // The memory serves the next call, which then allocates nothing.
        let _ = CURRENT.try_with(|thread| thread.deferred.replace(deferred));
    }
}

/// From now on this thread does the client's own work: nobody is to hold it up.
pub(crate) fn begin_client_work() {
    set_activity(Activity::Client);
}

fn activity() -> Activity {
    CURRENT.try_with(|thread| thread.activity.get()).unwrap_or(Activity::User)
}

fn set_activity(next: Activity) -> Activity {
    CURRENT.try_with(|thread| thread.activity.replace(next)).unwrap_or(Activity::User)
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observers({})", self.0.as_ref().map_or(0, |list| list.observers.len()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::sync::channel::{Receiver, Sender, unbounded};

    /// Says that it was called, and returns when it is let go.
    struct Stuck(Sender<()>, Receiver<()>);

    impl Observer for Stuck {
        fn exchange(&self, _event: &Exchange) {
            self.0.send(()).unwrap();
            let _ = self.1.recv();
        }
    }

    #[test]
    fn observer_that_does_not_return_costs_one_thread() {
        let (called, calls) = unbounded();
        let (go, lets_go) = unbounded();
        let mut observers = Observers::default();
        observers.add(Arc::new(Stuck(called, lets_go)));
        let tell = || {
            observers
                .tell_aside(|it| it.exchange(&Exchange { took: Duration::ZERO, outcome: Ok(()) }));
        };
        tell();
        calls.recv().unwrap();
        (0..2 * MOST_ASIDE).for_each(|_| tell());
        assert_eq!(observers.of_an_end().unwrap().aside.lock().events.len(), MOST_ASIDE);
        assert!(calls.is_empty(), "another thread calls it, too");
        // From now on it returns at once, and is told of all that waits.
        drop(go);
        (0..MOST_ASIDE).for_each(|_| calls.recv().unwrap());
    }
}
