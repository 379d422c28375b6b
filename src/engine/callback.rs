//! What the user wants to be told, and how: on a thread of its own, which nothing waits for.

use std::fmt;
use std::io;
use std::mem::take;

use crate::base::loss::Loss;
use crate::base::panic::survive;
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
pub(crate) struct Hooks(Mutex<Vec<LossHook>>);

/// What the user is told.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// A lock was lost.
    Lost(Loss, Arc<Hooks>),
    /// A lock was lost before somebody asked to be told.
    LostBefore(Loss, Arc<Hooks>),
    /// Somebody asks for the lock of this name.
    Requested(Vec<u8>),
}

impl Hooks {
    pub(crate) fn of(hook: LossHook) -> Hooks {
        Hooks(Mutex::new(vec![hook]))
    }

    pub(crate) fn add(&self, hook: LossHook) {
        self.0.lock().push(hook);
    }

    /// Takes them out, so that each is called once, or dropped outside of all locks.
    pub(crate) fn take(&self) -> Hooks {
        Hooks(Mutex::new(take(&mut *self.0.lock())))
    }

    fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    fn tell(&self, loss: &Loss) {
        // Taken out first: who is called may ask for more, and must not be called twice.
        let hooks = take(&mut *self.0.lock());
        for hook in hooks {
            survive("a callback", || hook(loss));
        }
    }
}

impl Callbacks {
    /// Whether anybody wants to be told this.
    pub(crate) fn want(&self, news: &News) -> bool {
        match news {
            News::Lost(_, hooks) => self.on_loss.is_some() || !hooks.is_empty(),
            News::LostBefore(_, hooks) => !hooks.is_empty(),
            News::Requested(_) => self.on_release_request.is_some(),
        }
    }

    /// Tells the user, on a thread of its own that has this name: what the user does there must not hold up renewals.
    ///
    /// # Errors
    ///
    /// If no thread could be started: nothing was told.
    pub(crate) fn call(&self, thread: &str, news: Arc<[News]>) -> io::Result<()> {
        let callbacks = self.clone();
        sync::spawn(thread, move || {
            news.iter().for_each(|news| callbacks.tell(news));
        })
    }

    /// The hold's own callbacks come first: the client's may end the process.
    fn tell(&self, news: &News) {
        match news {
            News::Lost(loss, hooks) => {
                hooks.tell(loss);
                if let Some(on_loss) = &self.on_loss {
                    survive("a callback", || on_loss(loss));
                }
            }
            News::LostBefore(loss, hooks) => hooks.tell(loss),
            News::Requested(name) => {
                if let Some(on_request) = &self.on_release_request {
                    survive("a callback", || on_request(name));
                }
            }
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hooks({})", self.0.lock().len())
    }
}
