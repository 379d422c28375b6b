//! The end of an acquirer that panics.

use std::time::Duration;

use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::option::LockOptions;
use crate::base::share::Share;
use crate::base::sync::{Arc, sleep};
use crate::base::time::{BootClock, Clock, Moment};
use crate::engine::acquire::{AcquireLoop, acquire, begin_wait, last_deadline};
use crate::engine::slot::{Admission, Attempt, Slot, Standing, WaitLimit};
use crate::engine::{Bounds, Callbacks, Engine};
use crate::kind::weighted::SEMAPHORE;
use crate::protocol::script_protocol::ScriptProtocol;
use crate::topology::memory::backend::MemoryBackend;
use crate::topology::memory::server::MemoryServer;

const SECOND: Duration = Duration::from_secs(1);
const ALWAYS: WaitLimit = WaitLimit::Until(Moment::FAR);

/// The slot of a semaphore in a client of this server.
fn slot(server: &Arc<MemoryServer>) -> Arc<Slot> {
    let memory = MemoryBackend::new(Arc::clone(server), Arc::new(Identity::new("")));
    let (reply, exchange) = (SECOND * 5, SECOND * 5);
    let bounds = Bounds { reply, exchange, give_up_after: exchange, slow_wait: None };
    let protocol = Arc::new(ScriptProtocol::new(memory));
    let engine = Engine::new(protocol, Arc::new(BootClock), bounds, Callbacks::default());
    engine.slot(&SEMAPHORE, Name::new(b"", b"x").unwrap())
}

/// No thread would have it, and its permit would come back only when the lease of 30 s ends.
#[test]
fn lease_passed_to_an_acquirer_that_panics_is_released() {
    let clock: Arc<dyn Clock> = Arc::new(BootClock);
    let server = MemoryServer::new(clock);
    let (here, there) = (slot(&server), slot(&server));
    let options = LockOptions::new().for_share(Share::Permits { count: 1, limit: 1 });
    let listener = &here.context().listener;
    listener.ready(here.context().exchange_deadline()).unwrap();
    for _ in 0..1_000 {
        let held = acquire(&here, &options, WaitLimit::TryOnce, |it| it).unwrap().unwrap();
        let mut long_wait = begin_wait(&here, &options);
        let Admission::Acquire { number, .. } = here.enter(&options, ALWAYS, &mut long_wait) else {
            panic!("it has not to wait in the slot");
        };
        let times = (ALWAYS, last_deadline(here.context(), ALWAYS));
        let attempt = Attempt::new(&here, &options, number);
        let acquirer = AcquireLoop::new(&here, &options, times, &mut long_wait, attempt);
        here.held_elsewhere(None, Some(Standing { options: &options, ahead: 0 }));
        held.release().unwrap();
        if let Some(other) = acquire(&there, &options, WaitLimit::TryOnce, |it| it).unwrap() {
            // It was not passed on, as the client has just begun to listen.
            other.release().unwrap();
            continue;
        }
        // As it unwinds.
        drop(acquirer);
        let begin = BootClock.now();
        while acquire(&there, &options, WaitLimit::TryOnce, |it| it).unwrap().is_none() {
            assert!(BootClock.now().since(begin) < SECOND * 10, "the permit is with nobody");
            sleep(Duration::from_millis(5));
        }
        return;
    }
    panic!("it is never passed on");
}
