//! What replies about channels mean to those who wish for them.

use std::time::Duration;

use super::ear::Ear;
use super::*;
use crate::base::driven::DrivenClock;
use crate::base::id::Identity;
use crate::base::name::Name;
use crate::engine::slot::Slot;
use crate::engine::{Bounds, Callbacks, Engine};
use crate::kind::reentrant::ReentrantKind;
use crate::protocol::scripted::Scripted;
use crate::protocol::wake::Listener;
use crate::topology::memory::client::Memory;
use crate::topology::memory::server::Server;

const SECOND: Duration = Duration::from_secs(1);

/// A listener that hears nothing, and was refused a channel.
struct Refused(Option<Vec<u8>>);

impl Listener for Refused {
    fn next(&mut self, _wait: Duration) -> Result<Wake, Failure> {
        Ok(Wake::Nothing)
    }

    fn add(&mut self, _channel: &[u8]) -> Result<(), Failure> {
        Ok(())
    }

    fn remove(&mut self, _channel: &[u8]) -> Result<(), Failure> {
        Ok(())
    }

    fn refused(&mut self) -> Option<Vec<u8>> {
        self.0.take()
    }
}

/// A hub that is live, whose thread the test is, and two channels that are wished for.
fn live() -> (Hub, Arc<Slot>) {
    let clock = Arc::new(DrivenClock::new(false));
    let as_clock = || Arc::clone(&clock) as Arc<dyn Clock>;
    let memory = Memory::new(Server::new(as_clock()), Arc::new(Identity::new("")));
    let memory = Arc::new(Scripted::new(memory));
    let bounds = Bounds { reply: SECOND, exchange: SECOND, give_up_after: SECOND };
    let hub = Hub::new(Arc::clone(&memory) as Arc<dyn Protocol>, as_clock(), |_| {});
    let engine = Engine::new(memory, as_clock(), bounds, Callbacks::default());
    hub.shared.live.store(true, Ordering::Release);
    let slot = engine.slot(&ReentrantKind, Name::new(b"", b"x").unwrap());
    let mut state = hub.shared.state.lock();
    state.started = true;
    for name in [b"x", b"y"] {
        let mut channel = Channel::new();
        channel.add(&slot);
        state.channels.insert(name.to_vec(), channel);
    }
    drop(state);
    (hub, slot)
}

fn ear(hub: &Hub, refused: Option<Vec<u8>>) -> Ear<'_> {
    Ear { shared: &hub.shared, listener: Box::new(Refused(refused)) }
}

#[test]
fn confirmation_before_its_question_confirms_nothing() {
    let (hub, _slot) = live();
    let mut ear = ear(&hub, None);
    let confirmation = || Wake::Listening { channel: b"x".to_vec() };
    ear.take(confirmation());
    assert!(!hub.hears(b"x"), "it is not asked for yet");
    ear.ask().unwrap();
    ear.take(confirmation());
    assert!(hub.hears(b"x") && !hub.hears(b"y"));
}

#[test]
fn refusal_of_one_channel_leaves_another_asked_for() {
    let (hub, slot) = live();
    let mut ear = ear(&hub, Some(b"x".to_vec()));
    ear.ask().unwrap();
    assert_eq!(ear.refuse(Failure::wrong_type()).unwrap(), Wake::Nothing);
    ear.take(Wake::Listening { channel: b"y".to_vec() });
    assert!(hub.hears(b"y"), "it was not refused");
    // A pause does not ask again for what was refused.
    hub.wish_for(b"x", &slot, Moment::FAR);
    let state = hub.shared.state.lock();
    assert!(matches!(state.channels[b"x".as_slice()].heard, Heard::Refused(_)));
}
