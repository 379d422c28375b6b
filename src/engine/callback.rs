//! What the user wants to be told, and how: on a thread of its own, which nothing waits for.

use std::fmt;
use std::io;
use std::mem::take;

use crate::base::loss::Loss;
use crate::base::panic::catch_panic;
use crate::base::sync::{self, Arc, Mutex};

/// What is called when any lock of the client is lost.
pub(crate) type LossCallback = Arc<dyn Fn(&Loss) + Send + Sync>;

/// What is called when somebody asks for a lock that a thread here holds, with its name.
pub(crate) type RequestCallback = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// What is called when one hold is lost.
pub(crate) type LossHook = Box<dyn FnOnce(&Loss) + Send>;

/// What the user of a client wants to be told.
#[derive(Clone, Default)]
pub(crate) struct Callbacks {
    pub(crate) on_loss: Option<LossCallback>,
    pub(crate) on_release_request: Option<RequestCallback>,
}

/// What the holders of one hold want to be told.
#[derive(Default)]
pub(crate) struct LossHooks(Mutex<Vec<LossHook>>);

/// What the user is told.
#[derive(Clone, Debug)]
pub(crate) enum Notification {
    /// A lock was lost.
    Lost(Loss, Arc<LossHooks>),
    /// A lock was lost before somebody asked to be told.
    LostBefore(Loss, Arc<LossHooks>),
    /// Somebody asks for the lock of this name.
    Requested(Vec<u8>),
}

impl LossHooks {
    pub(crate) fn of(hook: LossHook) -> LossHooks {
        LossHooks(Mutex::new(vec![hook]))
    }

    pub(crate) fn add(&self, hook: LossHook) {
        self.0.lock().push(hook);
    }

    /// Takes them out, so that each is called once, or dropped outside of all locks.
    pub(crate) fn take(&self) -> LossHooks {
        LossHooks(Mutex::new(take(&mut *self.0.lock())))
    }

    fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    fn call(&self, loss: &Loss) {
        // Taken out first: who is called may ask for more, and must not be called twice.
        let hooks = take(&mut *self.0.lock());
        for hook in hooks {
            catch_panic("a callback", || hook(loss));
        }
    }
}

impl Callbacks {
    /// Whether anybody wants to be told this.
    pub(crate) fn wants(&self, notification: &Notification) -> bool {
        match notification {
            Notification::Lost(_, hooks) => self.on_loss.is_some() || !hooks.is_empty(),
            Notification::LostBefore(_, hooks) => !hooks.is_empty(),
            Notification::Requested(_) => self.on_release_request.is_some(),
        }
    }

    /// Tells the user, on a thread of its own that has this name: what the user does there must not hold up renewals.
    ///
    /// # Errors
    ///
    /// If no thread could be started: nothing was told.
    pub(crate) fn call(&self, thread: &str, notification: Arc<[Notification]>) -> io::Result<()> {
        let callbacks = self.clone();
        sync::spawn(thread, move || {
            notification.iter().for_each(|notification| callbacks.run(notification));
        })
    }

    /// The hold's own callbacks come first: the client's may end the process.
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
