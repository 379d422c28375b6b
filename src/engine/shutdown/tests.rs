//! A thread that closes a client, where no time passes: it goes on when it is told to.

use std::sync::mpsc::channel;
use std::thread;

use super::*;
use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::option::LockOptions;
use crate::base::sync::{Arc, AtomicBool, Ordering};
use crate::base::time::Clock;
use crate::engine::acquire::acquire;
use crate::engine::slot::WaitLimit;
use crate::engine::{Bounds, Callbacks};
use crate::kind::mutex::MutexKind;
use crate::protocol::script_protocol::ScriptProtocol;
use crate::topology::memory::backend::MemoryBackend;
use crate::topology::memory::server::MemoryServer;

const SECOND: Duration = Duration::from_secs(1);

const NOW: Moment = Moment::from_nanos(1_000_000_000_000_000);
const GRACE: Duration = Duration::from_secs(3600);

/// A clock that stands still, and on which nobody looks again by himself while a test lasts. It knows whether a
/// thread has come to wait for the end of the grace.
#[derive(Debug, Default)]
struct Frozen(AtomicBool);

impl Clock for Frozen {
    fn now(&self) -> Moment {
        NOW
    }

    fn wait_until(&self, until: Moment, wait: &mut dyn FnMut(Duration)) {
        self.0.fetch_or(until == NOW.after(GRACE), Ordering::SeqCst);
        wait(GRACE);
    }
}

#[test]
fn release_wakes_the_thread_that_closes() {
    let clock = Arc::new(Frozen::default());
    let as_clock = || Arc::clone(&clock) as Arc<dyn Clock>;
    let memory = MemoryBackend::new(MemoryServer::new(as_clock()), Arc::new(Identity::new("")));
    let bounds = Bounds { reply: SECOND, exchange: SECOND, give_up_after: SECOND, slow_wait: None };
    let engine = Engine::new(
        Arc::new(ScriptProtocol::new(memory)),
        as_clock(),
        bounds,
        Callbacks::default(),
    );
    let slots = [b"x", b"y"].map(|name| engine.slot(&MutexKind, Name::new(b"", name).unwrap()));
    let take =
        |slot| acquire(slot, &LockOptions::new(), WaitLimit::TryOnce, |it| it).unwrap().unwrap();
    let holdings = slots.each_ref().map(take);
    let (sender, reported) = channel();
    let closing = Arc::clone(&engine);
    thread::spawn(move || sender.send(close(&closing, GRACE, SECOND)));
    while !clock.0.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    for holding in &holdings {
        assert!(reported.try_recv().is_err());
        holding.release().unwrap();
    }
    assert_eq!(reported.recv().unwrap().finished(), 2);
}
