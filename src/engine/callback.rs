//! The user's callbacks. They run on a thread of their own, and nothing waits for it.

use std::fmt;
use std::io;
use std::mem::take;

use crate::base::loss::Loss;
use crate::base::panic::catch_panic;
use crate::base::sync::{self, Arc, Mutex};
use crate::observe::observers::Observers;

/// Called when any lock of the client is lost.
pub(crate) type LossCallback = Arc<dyn Fn(&Loss) + Send + Sync>;

/// Called with the name of a lock that a thread here holds, when somebody requests its release.
pub(crate) type RequestCallback = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Called when one hold is lost.
pub(crate) type LossHook = Box<dyn FnOnce(&Loss) + Send>;

/// The callbacks of a client.
#[derive(Clone, Default)]
pub(crate) struct Callbacks {
    pub(crate) on_loss: Option<LossCallback>,
    pub(crate) on_release_request: Option<RequestCallback>,
    pub(crate) observers: Observers,
}

/// The callbacks of one hold.
#[derive(Default)]
pub(crate) struct LossHooks(Mutex<Vec<LossHook>>);

/// An event for which the user may have a callback.
#[derive(Clone, Debug)]
pub(crate) enum Notification {
    /// A lock was lost.
    Lost(Loss, Arc<LossHooks>),
    /// A callback was added to a hold that was lost before.
    LostBefore(Loss, Arc<LossHooks>),
    /// Somebody requests the release of the lock of this name.
    Requested(Vec<u8>),
}

impl LossHooks {
    pub(crate) fn of(hook: LossHook) -> LossHooks {
        LossHooks(Mutex::new(vec![hook]))
    }

    pub(crate) fn add(&self, hook: LossHook) {
        self.0.lock().push(hook);
    }

    /// Takes them out, so that each is called once. The caller drops the rest outside of all locks.
    pub(crate) fn take(&self) -> LossHooks {
        LossHooks(Mutex::new(take(&mut *self.0.lock())))
    }

    fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    fn call(&self, loss: &Loss) {
        // Taken out before any is called: a callback may add another, which needs this lock, and a panic
        // must not leave one behind that was called already.
        let hooks = take(&mut *self.0.lock());
        for hook in hooks {
            // Each by itself: a panic in one does not keep the others from their call.
            catch_panic("a callback", || hook(loss));
        }
    }
}

impl Callbacks {
    /// Whether there is a callback for this.
    pub(crate) fn wants(&self, notification: &Notification) -> bool {
        match notification {
            Notification::Lost(_, hooks) => self.on_loss.is_some() || !hooks.is_empty(),
            Notification::LostBefore(_, hooks) => !hooks.is_empty(),
            Notification::Requested(_) => self.on_release_request.is_some(),
        }
    }

    /// Calls the callbacks on a new thread of this name: the worker's own must go on renewing.
    ///
    /// # Errors
    ///
    /// If no thread could be started: nothing was called.
    pub(crate) fn call(&self, thread: &str, notification: Arc<[Notification]>) -> io::Result<()> {
        // A thread for each batch, and not one that stays: a callback that never returns then delays no
        // later one. The caller keeps the notifications, since a closure that could not be spawned is
        // gone.
        let callbacks = self.clone();
        sync::spawn(thread, move || {
            notification.iter().for_each(|notification| callbacks.run(notification));
        })
    }

    /// Calls the hold's own callbacks first: the client's may end the process.
    fn run(&self, notification: &Notification) {
        match notification {
            Notification::Lost(loss, hooks) => {
                hooks.call(loss);
                if let Some(on_loss) = &self.on_loss {
                    catch_panic("a callback", || on_loss(loss));
                }
            }
            Notification::LostBefore(loss, hooks) => hooks.call(loss),
            Notification::Requested(name) => {
                if let Some(on_request) = &self.on_release_request {
                    catch_panic("a callback", || on_request(name));
                }
            }
        }
    }
}

impl fmt::Debug for LossHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hooks({})", self.0.lock().len())
    }
}
