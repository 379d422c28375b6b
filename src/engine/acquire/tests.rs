//! The end of an acquirer that panics, and one that goes on with the attempt of another thread.

use std::time::Duration;

use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::option::LockOptions;
use crate::base::share::Share;
use crate::base::sync::Arc;
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
    // No machine pauses for so long.
    let (reply, exchange) = (SECOND * 600, SECOND * 600);
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
        leasehold_support::until("somebody can have the permit", || {
            acquire(&there, &options, WaitLimit::TryOnce, |it| it).unwrap().is_some()
        });
        return;
    }
    panic!("it is never passed on");
}

/// That thread's time was over, and its handle had other options.
#[test]
fn hold_of_an_attempt_taken_over_follows_the_options_of_its_own_handle() {
    let here = slot(&MemoryServer::new(Arc::new(BootClock)));
    let of_the_other = LockOptions::new().for_share(Share::Permits { count: 1, limit: 1 });
    let own = of_the_other.reentrant(false).max_hold(SECOND * 60).max_renewals(5);
    let own = own.local_handoffs(3).min_replicas(1, SECOND);
    let mut long_wait = begin_wait(&here, &own);
    let Admission::Acquire { number, .. } = here.enter(&own, ALWAYS, &mut long_wait) else {
        panic!("it has not to wait in the slot");
    };
    let times = (ALWAYS, last_deadline(here.context(), ALWAYS));
    let attempt = Attempt::new(&here, &of_the_other, number);
    let acquirer = AcquireLoop::new(&here, &own, times, &mut long_wait, attempt);
    let hold = acquirer.start(None).unwrap().expect("the permit is free");
    assert!(hold.options.once_per_thread.forbids(None));
    assert_eq!(hold.limit(), hold.lease.grant.sent.after(SECOND * 60));
    assert!(hold.lease.counts_renewals());
    assert_eq!(hold.options.most_handoffs, 3);
    assert_eq!(hold.options.durabilities.len(), 1);
}
