//! Transactions and the scripts of every kind, at the level where a real server would be.

mod parity;

use std::time::Duration;

use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::option::{Durability, ReleaseKind};
use crate::base::share::Share;
use crate::base::sync::{Arc, sleep, spawn};
use crate::base::testing::manual_clock::ManualClock;
use crate::base::time::{Clock, Moment};
use crate::kind::mutex::MutexKind;
use crate::kind::{KINDS, QUORUM_KINDS};
use crate::protocol::Protocol;
use crate::protocol::inspection::{View, report};
use crate::protocol::lock_kind::LockKind;
use crate::protocol::reply::{Ownership, released};
use crate::protocol::request::{AcquireMode, AcquireRequest, ForceRequest, ReleaseRequest};
use crate::protocol::script_protocol::ScriptProtocol;
use crate::protocol::server_protocol::ServerProtocol;
use crate::protocol::target::Target;
use crate::protocol::transaction::Applied;
use crate::wire::connection::Reply;
use crate::wire::failure::Failure;
use crate::wire::script::Call;
use crate::wire::{Pipeline, Value};

use super::backend::MemoryBackend;
use super::link::{Delivery, FaultyLink};
use super::server::MemoryServer;

const LEASE: Duration = Duration::from_secs(30);
const MOMENT: Duration = Duration::from_millis(150);

/// A client that holds a mutex.
struct Stage {
    server: Arc<MemoryServer>,
    clock: Arc<ManualClock>,
    link: Arc<FaultyLink>,
    locks: ScriptProtocol<MemoryBackend>,
    target: Arc<Target>,
    owner: Vec<u8>,
}

impl Stage {
    /// The clock stands still.
    fn new() -> Stage {
        Stage::with(ManualClock::new(false))
    }

    fn with(clock: ManualClock) -> Stage {
        let clock = Arc::new(clock);
        let server = MemoryServer::new(Arc::<ManualClock>::clone(&clock));
        let identity = Arc::new(Identity::new(""));
        let owner = MutexKind.owner(&identity, 1, LEASE.into(), false, Share::Whole);
        let memory = MemoryBackend::new(Arc::clone(&server), identity);
        let link = Arc::clone(memory.link());
        let locks = ScriptProtocol::new(memory);
        let target = Target::new(&MutexKind, Name::new(b"", b"x").unwrap());
        let request = AcquireRequest {
            owner: &owner,
            ttl: LEASE,
            tail: Duration::ZERO,
            share: Share::Whole,
            mode: AcquireMode::Try,
            dies_after: Duration::ZERO,
        };
        locks.acquire(&target, &request, clock.now().after(LEASE)).outcome.unwrap();
        Stage { server, clock, link, locks, target, owner }
    }

    fn deadline(&self) -> Moment {
        self.clock.now().after(Duration::from_secs(20))
    }

    fn apply(&self, build: impl FnOnce(&mut Pipeline)) -> Result<Applied, Failure> {
        let mut pipeline = Pipeline::new();
        build(&mut pipeline);
        self.locks.apply(&[(&*self.target, &*self.owner)], &pipeline, self.deadline())
    }

    /// The commands arrive a moment after the owner was looked at, and this happens in between.
    fn meanwhile(
        &self,
        work: impl FnOnce(&MemoryServer) + Send + 'static,
    ) -> Result<Applied, Failure> {
        let link = &self.link;
        let faults = link.faults();
        link.script(Delivery::Served, 2);
        link.script(Delivery::RequestDelayed(MOMENT * 2), 1);
        let (server, clock, held) =
            (Arc::clone(&self.server), Arc::clone(&self.clock), Arc::clone(link));
        spawn("meanwhile", move || {
            while held.faults() == faults {
                sleep(Duration::from_millis(1));
            }
            work(&server);
            clock.put_forward(clock.now().after(MOMENT * 2));
        })
        .unwrap();
        let applied = self.apply(|pipe| _ = pipe.cmd("INCR").arg("count"));
        assert_eq!(link.faults(), faults + 1);
        applied
    }

    fn count(&self) -> Value {
        self.server.call(&[b"GET", b"count"]).unwrap()
    }

    fn release(&self) -> Result<Ownership, Failure> {
        let request = ReleaseRequest {
            owner: &self.owner,
            ttl: LEASE,
            last_token: Some(7),
            kind: ReleaseKind::Watch,
            is_wanted: false,
        };
        let released = self.locks.release(&self.target, &request, self.deadline());
        released.map(|released| released.ownership)
    }
}

fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}

#[test]
fn transaction_applies_and_errors_of_its_commands_are_values() {
    let stage = Stage::new();
    let applied = stage.apply(|pipe| {
        pipe.cmd("SET").arg("count").arg(41).cmd("INCR").arg("count");
        pipe.cmd("HGET").arg("count").arg("field").cmd("GET").arg("count");
    });
    let Applied::Done(replies) = applied.unwrap() else { panic!("it is the owner's") };
    assert_eq!(
        [&replies[0], &replies[1], &replies[3]],
        [&Value::Okay, &Value::Int(42), &text("42")]
    );
    let Value::ServerError(error) = &replies[2] else { panic!("{replies:?}") };
    assert_eq!(error.code(), "WRONGTYPE");
}

#[test]
fn transaction_does_nothing_once_the_lock_is_lost() {
    let stage = Stage::new();
    stage.server.call(&[b"SET", b"x", b"another"]).unwrap();
    assert_eq!(
        stage.apply(|pipe| _ = pipe.cmd("INCR").arg("count")).unwrap(),
        Applied::NotOwned(0, Ownership::Taken)
    );
    stage.server.call(&[b"DEL", b"x"]).unwrap();
    assert_eq!(
        stage.apply(|pipe| _ = pipe.cmd("INCR").arg("count")).unwrap(),
        Applied::NotOwned(0, Ownership::Gone)
    );
    assert_eq!(stage.count(), Value::Nil);
}

#[test]
fn touched_key_makes_the_transaction_start_again() {
    let stage = Stage::new();
    let renewed = stage.meanwhile(|server| {
        server.call(&[b"PEXPIRE", b"x", b"60000"]).unwrap();
    });
    assert_eq!(renewed.unwrap(), Applied::Done(vec![Value::Int(1)]));
    // The renewal was seen: nothing else makes it look once more, and find another owner.
    let stolen = stage.meanwhile(|server| {
        server.call(&[b"SET", b"x", b"another"]).unwrap();
    });
    assert_eq!(stolen.unwrap(), Applied::NotOwned(0, Ownership::Taken));
    assert_eq!(stage.count(), text("1"));
}

#[test]
fn key_that_expires_is_touched() {
    let stage = Stage::new();
    stage.server.call(&[b"PEXPIRE", b"x", b"200"]).unwrap();
    assert_eq!(stage.meanwhile(|_| {}).unwrap(), Applied::NotOwned(0, Ownership::Gone));
    let stage = Stage::new();
    assert_eq!(
        stage.meanwhile(MemoryServer::flush).unwrap(),
        Applied::NotOwned(0, Ownership::Gone)
    );
}

#[test]
fn unknown_command_is_rejected_by_name_and_nothing_applies() {
    let stage = Stage::new();
    let applied = stage.apply(|pipe| {
        pipe.cmd("INCR").arg("count").cmd("BITFIELD").arg("count");
    });
    let refusal = applied.unwrap_err();
    let text = refusal.to_string();
    assert!(text.contains("unknown command 'BITFIELD'") && text.contains("in-memory"), "{text}");
    assert_eq!(stage.count(), Value::Nil);
    assert_eq!(
        stage.apply(|pipe| _ = pipe.cmd("INCR").arg("count")).unwrap(),
        Applied::Done(vec![Value::Int(1)])
    );
}

#[test]
fn release_by_watch_deletes_only_the_owners_key() {
    let stage = Stage::new();
    assert_eq!(stage.release().unwrap(), Ownership::Owned);
    assert_eq!(stage.server.keys(), [b"{x}:fence"]);
    assert_eq!(stage.server.call(&[b"GET", b"{x}:fence"]).unwrap(), text("7"));
    assert_eq!(stage.release().unwrap(), Ownership::Gone);
    stage.server.call(&[b"SET", b"x", b"another"]).unwrap();
    assert_eq!(stage.release().unwrap(), Ownership::Taken);
}

#[test]
fn release_by_watch_works_out_of_memory() {
    let stage = Stage::new();
    stage.server.set_out_of_memory(true);
    let refusal = stage.apply(|pipe| _ = pipe.cmd("DEL").arg("count")).unwrap_err();
    assert!(refusal.is_out_of_memory(), "{refusal}");
    assert_eq!(stage.release().unwrap(), Ownership::Owned);
    assert!(!stage.server.keys().contains(&b"x".to_vec()));
}

#[test]
fn delayed_transaction_runs_when_it_arrives() {
    let stage = Stage::new();
    let link = &stage.link;
    link.script(Delivery::Served, 2);
    link.script(Delivery::RequestDelayed(MOMENT * 2), 1);
    let mut pipeline = Pipeline::new();
    pipeline.cmd("INCR").arg("count");
    let begin = stage.clock.now();
    let deadline = begin.after(MOMENT);
    let (clock, held) = (Arc::clone(&stage.clock), Arc::clone(link));
    spawn("time", move || {
        while held.waited_for_until(clock.now()).is_none() {
            sleep(Duration::from_millis(1));
        }
        clock.put_forward(deadline);
    })
    .unwrap();
    let failure =
        stage.locks.apply(&[(&*stage.target, &*stage.owner)], &pipeline, deadline).unwrap_err();
    assert!(failure.is_unknown(), "{failure}");
    assert_eq!(stage.count(), Value::Nil);
    stage.clock.put_forward(begin.after(MOMENT * 2));
    assert_eq!(stage.count(), text("1"));
}

#[test]
fn wait_for_replicas_lasts_its_timeout_and_counts_none() {
    let stage = Stage::with(ManualClock::new(true));
    let begin = stage.clock.now();
    let wanted = Durability { on_disk: false, local: false, replicas: 1, within: MOMENT };
    let found = stage.locks.replicate(&stage.target, &stage.owner, wanted, stage.deadline());
    assert_eq!(found.unwrap().unwrap(), Durability { replicas: 0, ..wanted });
    assert!(stage.clock.now().since(begin) >= MOMENT);
    let wanted = Durability { on_disk: true, local: true, replicas: 0, within: MOMENT };
    let found = stage.locks.replicate(&stage.target, &stage.owner, wanted, stage.deadline());
    assert!(found.unwrap_err().to_string().contains("appendonly"));
}

/// The replies of a kind's scripts, in order.
fn replies(
    kind: &'static dyn LockKind,
    acquire: impl Fn(&Target, &AcquireRequest<'_>) -> Call,
) -> Vec<Value> {
    let stage = Stage::new();
    let target = Target::new(kind, Name::new(b"", b"y").unwrap());
    let owner = kind.owner(&Identity::new(""), 1, LEASE.into(), false, Share::Whole);
    let request = AcquireRequest {
        owner: &owner,
        ttl: LEASE,
        tail: Duration::ZERO,
        share: Share::Whole,
        mode: AcquireMode::Try,
        dies_after: LEASE,
    };
    let calls = [
        acquire(&target, &request),
        target.renew(&owner, LEASE, 1),
        target.touch(&owner),
        target.inspect(View::Holders),
        // Nobody waits, whatever it is told.
        target.hand_over(&owner, LEASE, None),
        target.release(&owner, LEASE, None),
        target.touch(&owner),
        target.force(&ForceRequest { owner: &owner, takes_any: false }, u64::MAX >> 11),
    ];
    let sent = stage.server.exchange(&stage.link, None, &calls, stage.deadline());
    let value = |reply: Result<Reply, Failure>| reply.unwrap().value;
    sent.into_iter().map(value).collect()
}

#[test]
fn scripts_of_every_kind_run() {
    let done = |kind: &dyn LockKind, replies: &[Value]| {
        let Value::Array(renewed) = &replies[1] else { panic!("{replies:?}") };
        assert_eq!((&renewed[0], &replies[2]), (&Value::Int(1), &Value::Int(1)));
        let report = report(kind.parts(), replies[3].clone()).unwrap();
        assert_eq!(report.holders.len(), 1);
        assert!(report.holders[0].last_token.is_some());
        let [given, gone, rest @ ..] = &replies[4..] else { panic!("{replies:?}") };
        let gone = released(gone, true).unwrap().ownership;
        assert_eq!((given, gone), (&Value::Int(1), Ownership::Gone));
        assert_eq!(*rest, [0, 0].map(Value::Int));
    };
    for &kind in KINDS {
        let replies = replies(kind, |target, request| target.acquire(request, 0));
        assert!(matches!(replies[0], Value::Int(_) | Value::Array(_)), "{replies:?}");
        done(kind, &replies);
    }
    // A token above the server's time.
    let token = 2_000_000_000_000_000;
    for &kind in QUORUM_KINDS {
        let propose = |target: &Target, request: &AcquireRequest<'_>| {
            target.propose(request, token - 1, token, token)
        };
        let replies = replies(kind, propose);
        let Value::Array(accepted) = &replies[0] else { panic!("{replies:?}") };
        assert_eq!(accepted[..2], [Value::Int(1), Value::Int(token.cast_signed())]);
        done(kind, &replies);
    }
}
