//! Messages, and replies about channels.

use std::time::Duration;

use super::server_thread::{Delayed, ServerThread, WakeReason};
use super::*;
use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::sync::channel::{Receiver, unbounded};
use crate::base::sync::{self, AtomicU64};
use crate::base::testing::manual_clock::ManualClock;
use crate::base::thread::Threads;
use crate::engine::slot::Slot;
use crate::engine::{Bounds, Callbacks, Engine};
use crate::kind::reentrant::ReentrantKind;
use crate::protocol::script_protocol::ScriptProtocol;
use crate::protocol::target::Target;
use crate::protocol::wake_message::Publisher;
use crate::topology::memory::backend::MemoryBackend;
use crate::topology::memory::server::MemoryServer;
use crate::wire::retry::REFUSED;
use crate::wire::server_clock::ClockRun;
use crate::wire::subscription::{Event, Subscriber};

const SECOND: Duration = Duration::from_secs(1);

/// A connection that delivers nothing.
struct Nothing;

impl Subscriber for Nothing {
    fn next(&mut self, wait: Duration) -> Result<Event, Failure> {
        sync::sleep(wait);
        Ok(Event::Nothing)
    }

    fn subscribe(&mut self, _channel: &[u8]) -> Result<(), Failure> {
        Ok(())
    }

    fn unsubscribe(&mut self, _channel: &[u8]) -> Result<(), Failure> {
        Ok(())
    }
}

/// A live listener with two wishes. The test is its only thread.
struct Stage {
    listener: WakeListener,
    server: ServerThread,
    slot: Arc<Slot>,
    messages: Receiver<WakeMessage>,
}

impl Stage {
    fn new() -> Stage {
        let clock = Arc::new(ManualClock::new(false));
        let as_clock = || Arc::clone(&clock) as Arc<dyn Clock>;
        let memory = MemoryBackend::new(MemoryServer::new(as_clock()), Arc::new(Identity::new("")));
        let memory = Arc::new(ScriptProtocol::new(memory));
        let bounds =
            Bounds { reply: SECOND, exchange: SECOND, give_up_after: SECOND, slow_wait: None };
        let (sender, messages) = unbounded();
        let on_wake = move |wake| _ = sender.send(wake);
        let protocol: Arc<dyn Protocol> = Arc::<ScriptProtocol<MemoryBackend>>::clone(&memory);
        let listener = WakeListener::new(protocol, as_clock(), on_wake);
        let engine = Engine::new(memory, as_clock(), bounds, Callbacks::default());
        let slot = engine.slot(&ReentrantKind, Name::new(b"", b"x").unwrap());
        let shared = Arc::clone(&listener.shared);
        let publisher = shared.publishers.all().remove(0);
        let server = ServerThread { shared, number: 1, publisher };
        let mut state = listener.shared.state.lock();
        state.seen = Some(0);
        state.servers.push(server.state(false));
        state.wish(b"x", &slot, false);
        state.wish(b"y", &slot, false);
        drop(state);
        let stage = Stage { listener, server, slot, messages };
        stage.confirm(&stage.listener.shared.own);
        assert!(
            stage.listener.is_live() && stage.messages.try_recv() == Ok(WakeMessage::Listening)
        );
        stage
    }

    fn confirm(&self, channel: &[u8]) {
        self.server.on_event(
            Event::Subscribed { channel: channel.to_vec() },
            ClockRun::default(),
            &mut Delayed::default(),
        );
    }
}

#[test]
fn confirmation_before_its_request_is_ignored() {
    let stage = Stage::new();
    stage.confirm(b"x");
    assert!(!stage.listener.is_subscribed(b"x"), "it is not asked for yet");
    stage.server.subscribe_wished(&mut Nothing).unwrap();
    stage.confirm(b"x");
    assert!(stage.listener.is_subscribed(b"x") && !stage.listener.is_subscribed(b"y"));
}

#[test]
fn refused_channel_leaves_other_requests_pending() {
    let Stage { listener, server, slot, .. } = &Stage::new();
    server.subscribe_wished(&mut Nothing).unwrap();
    server.refuse(Some(b"x".to_vec()), Failure::wrong_type()).unwrap();
    server.on_event(
        Event::Subscribed { channel: b"y".to_vec() },
        ClockRun::default(),
        &mut Delayed::default(),
    );
    assert!(listener.is_subscribed(b"y"), "it was not refused");
    // The wish of a pause does not repeat a refused request.
    listener.wish_for(b"x", slot, Moment::FAR);
    let state = listener.shared.state.lock();
    assert!(matches!(state.channels[b"x".as_slice()].state, ChannelState::Refused(_)));
}

#[test]
fn listener_is_not_live_while_it_seeks_its_only_server() {
    let stage = Stage::new();
    let (shared, publisher) =
        (Arc::clone(&stage.listener.shared), Arc::clone(&stage.server.publisher));
    let sought = ServerThread { shared, number: 2, publisher };
    stage.listener.shared.state.lock().servers.push(sought.state(true));
    stage.listener.shared.lose(1, Failure::silent());
    assert!(!stage.listener.is_live());
}

#[test]
fn delayed_wake_ups_of_a_channel_merge_and_keep_their_time() {
    let mut delayed = Delayed::default();
    let now = ManualClock::START;
    let later = now.after(SECOND);
    delayed.add(b"x".to_vec(), WakeReason::Released, later);
    delayed.add(b"x".to_vec(), WakeReason::Released, later.after(SECOND));
    delayed.add(b"x".to_vec(), WakeReason::Missed, later.after(SECOND));
    assert_eq!((delayed.next(now), delayed.take(now)), (SECOND, vec![]));
    assert_eq!(delayed.take(later), [(b"x".to_vec(), WakeReason::Released)]);
    assert_eq!(delayed.next(later), SECOND);
    assert_eq!(delayed.take(Moment::FAR), [(b"x".to_vec(), WakeReason::Missed)]);
}

#[test]
fn messages_of_a_departed_server_still_count() {
    let stage = Stage::new();
    stage.listener.shared.state.lock().servers.clear();
    let own = &stage.listener.shared.own;
    let message =
        |payload: &[u8]| Event::Message { channel: own.clone(), payload: payload.to_vec() };
    stage.server.on_event(message(b"r 1f x"), ClockRun::default(), &mut Delayed::default());
    stage.server.on_event(message(b"p 1f 9 x"), ClockRun::default(), &mut Delayed::default());
    let (name, number) = (b"x".to_vec(), 31);
    let messages: Vec<WakeMessage> =
        std::iter::from_fn(|| stage.messages.try_recv().ok()).collect();
    assert_eq!(
        messages,
        [WakeMessage::Retry { name: name.clone() }, WakeMessage::Request { name, number }]
    );
}

/// A server that refuses every subscription. Its clock stands still.
struct Refusing {
    clock: Arc<ManualClock>,
    attempts: AtomicU64,
    tried: AtomicU64,
    /// How many callers connect between a refusal and the rest after it.
    callers: AtomicU64,
}

impl Publisher for Refusing {
    fn address(&self) -> String {
        "refusing:1".to_owned()
    }

    fn subscribe(&self, _: &[u8]) -> Result<Box<dyn Subscriber>, Failure> {
        if self.callers.load(Ordering::SeqCst) > 0 {
            self.callers.fetch_sub(1, Ordering::SeqCst);
            self.tried.fetch_add(1, Ordering::SeqCst);
        }
        self.attempts.fetch_add(1, Ordering::SeqCst);
        Err(Failure::wrong_type())
    }

    fn connect_attempts(&self) -> u64 {
        self.tried.load(Ordering::SeqCst)
    }
}

/// A silent server, and one that refuses.
struct Two(Arc<Refusing>);

struct Silent;

impl Publisher for Silent {
    fn number(&self) -> usize {
        1
    }

    fn address(&self) -> String {
        "silent:1".to_owned()
    }

    fn subscribe(&self, _: &[u8]) -> Result<Box<dyn Subscriber>, Failure> {
        Ok(Box::new(Nothing))
    }
}

impl Publishers for Two {
    fn all(&self) -> Vec<Arc<dyn Publisher>> {
        vec![Arc::new(Silent), self.0.clone()]
    }
}

fn shared(publishers: Arc<dyn Publishers>, clock: Arc<ManualClock>) -> Arc<Shared> {
    Arc::new(Shared {
        publishers,
        own: b"own".to_vec(),
        threads: Threads::of_a_new_client(),
        state: Mutex::default(),
        changed: Condvar::new(),
        live: AtomicBool::new(false),
        partial: AtomicBool::new(false),
        closed: AtomicBool::new(false),
        clock,
        on_wake: Box::new(|_| {}),
    })
}

/// The client does nothing else, so that no other connection shows it.
#[test]
fn end_of_a_subscription_is_a_break() {
    let clock = Arc::new(ManualClock::new(false));
    let server = MemoryServer::new(Arc::<ManualClock>::clone(&clock));
    let memory = MemoryBackend::new(Arc::clone(&server), Arc::new(Identity::new("")));
    let protocol = ScriptProtocol::new(memory);
    let target = Target::new(&ReentrantKind, Name::new(b"", b"x").unwrap());
    let shared = shared(protocol.publishers(), clock);
    shared.update_servers();
    leasehold_support::until("it listens", || shared.live.load(Ordering::Acquire));
    assert_eq!(protocol.unbroken_since(&target), Moment::PAST);
    server.break_connections();
    leasehold_support::until("the break is known", || {
        protocol.unbroken_since(&target) != Moment::PAST
    });
    shared.closed.store(true, Ordering::Release);
}

/// A server of a cluster, which has one hash slot.
struct Home {
    hash_slot: u16,
    subscribed: AtomicU64,
}

impl Publisher for Home {
    fn number(&self) -> usize {
        self.hash_slot.into()
    }

    fn address(&self) -> String {
        format!("home:{}", self.hash_slot)
    }

    fn subscribe(&self, _: &[u8]) -> Result<Box<dyn Subscriber>, Failure> {
        self.subscribed.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Nothing))
    }

    fn is_home(&self, hash_slot: u16) -> bool {
        hash_slot == self.hash_slot
    }
}

struct Homes([Arc<Home>; 3]);

impl Publishers for Homes {
    fn all(&self) -> Vec<Arc<dyn Publisher>> {
        self.0.iter().map(|home| Arc::clone(home) as Arc<dyn Publisher>).collect()
    }

    fn have_homes(&self) -> bool {
        true
    }
}

/// A holder needs no message of other servers. One that waits does, and must not count as one that hears before.
#[test]
fn holder_listens_where_its_locks_are_and_waiter_everywhere() {
    let homes = [0, 1, 2].map(|hash_slot| Home { hash_slot, subscribed: AtomicU64::new(0) });
    let homes = homes.map(Arc::new);
    let clock = Arc::new(ManualClock::new(false));
    let memory = MemoryServer::new(Arc::<ManualClock>::clone(&clock));
    let memory = MemoryBackend::new(memory, Arc::new(Identity::new("")));
    let shared = shared(Arc::new(Homes(homes.clone())), clock);
    let protocol = Arc::new(ScriptProtocol::new(memory));
    let listener = WakeListener { shared: Arc::clone(&shared), protocol };
    let until = |expected: [u64; 3]| {
        let seen = || homes.each_ref().map(|home| home.subscribed.load(Ordering::SeqCst));
        leasehold_support::until("it subscribes there", || seen() == expected);
    };
    listener.start_at(1);
    until([0, 1, 0]);
    listener.start_at(1);
    listener.start_at(2);
    until([0, 1, 1]);
    // As when both have confirmed.
    let mut state = shared.state.lock();
    state.servers.iter_mut().for_each(|server| server.link = state::ServerLink::Listening);
    shared.live.store(true, Ordering::Release);
    drop(state);
    assert!(!listener.is_live(), "not for one that waits");
    listener.start();
    assert!(listener.is_live());
    until([1, 1, 1]);
    // It stays so.
    listener.start_at(1);
    listener.start();
    assert!(listener.is_live());
    assert_eq!(shared.state.lock().servers.len(), 3);
}

/// A listener of a server that refuses and of one that does not.
fn refused(callers: u64) -> (Arc<Refusing>, Arc<Shared>) {
    let refusing = Refusing {
        clock: Arc::new(ManualClock::new(false)),
        attempts: AtomicU64::new(0),
        tried: AtomicU64::new(0),
        callers: AtomicU64::new(callers),
    };
    let refusing = Arc::new(refusing);
    let clock = Arc::<ManualClock>::clone(&refusing.clock);
    let shared = shared(Arc::new(Two(Arc::clone(&refusing))), clock);
    shared.update_servers();
    (refusing, shared)
}

#[track_caller]
fn until_attempt(refusing: &Refusing, number: u64) {
    let is_made = || refusing.attempts.load(Ordering::SeqCst) >= number;
    leasehold_support::until("it tries again", is_made);
}

#[test]
fn attempt_after_a_refusal_ends_the_rest_at_once() {
    let (refusing, shared) = refused(1);
    until_attempt(&refusing, 2);
    shared.closed.store(true, Ordering::Release);
}

#[test]
fn refusing_server_is_tried_again_after_a_minute() {
    let (refusing, shared) = refused(0);
    until_attempt(&refusing, 1);
    sync::sleep(SECOND);
    assert_eq!(refusing.attempts.load(Ordering::SeqCst), 1, "unasked");
    refusing.clock.put_forward(refusing.clock.now().after(REFUSED));
    until_attempt(&refusing, 2);
    shared.closed.store(true, Ordering::Release);
}
