//! The common interface of all injectors.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Child, Proxy, Server};

/// The site of a fault: a server, the proxy in front of it, and a process that uses a lock.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// The server.
    pub server: &'a Server,
    /// The proxy through which the client or clients under test reach it.
    pub proxy: &'a Proxy,
    /// A process that holds the lock or waits for it, where there is one.
    pub child: Option<&'a Child>,
    /// The lock's key in Redis.
    pub key: &'a str,
}

impl<'a> Site<'a> {
    /// Returns a site without a process of its own.
    pub fn new(server: &'a Server, proxy: &'a Proxy, key: &'a str) -> Self {
        Self { server, proxy, child: None, key }
    }
}

/// One kind of fault, which can be made to happen at a site.
pub trait Injector: fmt::Debug + Send + Sync {
    /// Returns the name of the fault and where it happens, as in `reply-lost@acquire`.
    fn name(&self) -> String;

    /// Begins the fault. Those of the network wait for their operation to come by.
    ///
    /// # Panics
    ///
    /// If the fault is impossible here, as with a command that the server does not know.
    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a>;
}

/// A fault that is on, or waits for its operation; healed on drop.
#[must_use = "it is healed as soon as this is dropped"]
pub struct Active<'a> {
    name: String,
    count: Box<dyn Fn() -> Fired + Send + Sync + 'a>,
    heal: Option<Box<dyn FnOnce() + Send + Sync + 'a>>,
}

/// How often a fault took effect, as two parties count it that do not know of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fired {
    /// The injector's count.
    pub injected: u64,
    /// The witness's count.
    pub witnessed: u64,
    /// The name of the witness, as in `errorstat_OOM` or `the proxy's journal`.
    pub witness: &'static str,
}

impl Fired {
    /// Returns whether the fault took effect by both counts.
    ///
    /// A fault whose injector counts states (a server out of memory) is met by many commands: the
    /// witness must have seen at least one.
    pub fn is_proven(&self) -> bool {
        self.injected > 0 && self.witnessed >= self.injected
    }
}

impl<'a> Active<'a> {
    /// Makes a fault from its name, its counter, and its end.
    pub fn new(
        name: String,
        count: impl Fn() -> Fired + Send + Sync + 'a,
        heal: impl FnOnce() + Send + Sync + 'a,
    ) -> Self {
        Self { name, count: Box::new(count), heal: Some(Box::new(heal)) }
    }

    /// Returns the name of its injector.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asks the injector and the witness how often it took effect.
    ///
    /// # Panics
    ///
    /// If the witness is a server that does not reply before it is healed.
    pub fn fired(&self) -> Fired {
        (self.count)()
    }

    /// Ends it, and lets go of held messages. Once is enough.
    ///
    /// # Panics
    ///
    /// If the server does not come back.
    pub fn heal(&mut self) {
        if let Some(heal) = self.heal.take() {
            heal();
        }
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A trial that failed: whatever it used goes on, but nothing may panic twice.
            let _ = catch_unwind(AssertUnwindSafe(|| self.heal()));
        } else {
            self.heal();
        }
    }
}

impl fmt::Debug for Active<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let healed = self.heal.is_none();
        f.debug_struct("Active").field("name", &self.name).field("healed", &healed).finish()
    }
}
