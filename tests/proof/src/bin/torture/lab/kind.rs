//! The kinds of fault, and which of them go together.

use std::time::Duration;

use fastrand::Rng;
use leasehold_support::Action;
use leasehold_support::fault::network::{AtOperation, BlackHole, Refused, Reset, SILENCE, Slow};
use leasehold_support::fault::{Injector, Operation, command, process, server, setting};

/// The target of a fault. Two faults of the server do not go together: one would keep the command
/// of the other from reaching it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Network,
    Server,
    Process,
}

/// A kind of fault.
pub(crate) struct Kind {
    pub(crate) class: Class,
    /// Whether the server loses its data: when the fault begins, or until it is healed.
    pub(crate) forgets: Option<Forgets>,
    /// Whether waiters may be cut off from their wake-ups, and so be skipped in the queue.
    pub(crate) cuts_off: bool,
    /// Whether the process is gone after it.
    pub(crate) kills: bool,
    /// How long it lasts, as parts of the lease.
    pub(crate) span: (f64, f64),
    make: Box<Make>,
}

type Make = dyn Fn(&mut Rng, Duration) -> Box<dyn Injector>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgets {
    AtOnce,
    UntilHealed,
}

impl Kind {
    /// The fault, as it is for this lease.
    pub(crate) fn make(&self, rng: &mut Rng, lease: Duration) -> Box<dyn Injector> {
        (self.make)(rng, lease)
    }

    /// Whether it may keep a holder from renewing its lease until that is over.
    pub(crate) fn may_silence(&self) -> bool {
        !self.kills && self.forgets.is_none() && self.span.1 > 1.0
    }

    fn new<I: Injector + 'static>(
        class: Class,
        span: (f64, f64),
        make: impl Fn(&mut Rng, Duration) -> I + 'static,
    ) -> Kind {
        Kind {
            class,
            forgets: None,
            cuts_off: class == Class::Network,
            kills: false,
            span,
            make: Box::new(move |rng, lease| Box::new(make(rng, lease))),
        }
    }

    fn of<I: Injector + Copy + 'static>(class: Class, span: (f64, f64), injector: I) -> Kind {
        Kind::new(class, span, move |_, _| injector)
    }

    fn forgets(mut self, forgets: Forgets) -> Kind {
        self.forgets = Some(forgets);
        self
    }

    fn cuts_off(mut self) -> Kind {
        self.cuts_off = true;
        self
    }

    fn kills(mut self) -> Kind {
        self.kills = true;
        self
    }
}

/// Half of the time once, else to all messages until it is healed.
fn at(make: fn() -> AtOperation) -> Kind {
    Kind::new(
        Class::Network,
        (0.1, 0.6),
        move |rng, _| {
            if rng.bool() { make() } else { make().sticky() }
        },
    )
}

macro_rules! at {
    ($kinds:ident, $way:ident, $fault:literal, $action:expr, $($operation:ident)+) => {
        $kinds.extend([$(at(|| AtOperation::$way($fault, Operation::$operation, $action))),+]);
    };
}

const SLOWLY: Duration = Duration::from_millis(120);

/// All kinds, always in the same order.
pub(crate) fn all() -> Vec<Kind> {
    let mut kinds = Vec::new();
    at!(kinds, request, "dropped", Action::Drop, Acquire Release Renew Beat Transaction Hello);
    at!(kinds, request, "reset", Action::Cut, Acquire Release Renew Beat Transaction Subscribe);
    at!(kinds, request, "reset-halfway", Action::CutHalf, Acquire Release Renew);
    at!(kinds, request, "reply-lost", Action::LoseReply, Acquire Release Renew Beat Transaction);
    at!(kinds, request, "reply-partial", Action::HalfReply, Acquire Release Renew);
    at!(kinds, request, "silence", SILENCE, Acquire Release Renew Beat);
    at!(kinds, request, "garbage", Action::Garbage(b"*1\r\n:7\r\n".to_vec()), Acquire Release Renew);
    at!(kinds, request, "request-late", Action::Delay(SLOWLY), Acquire Release Renew Transaction);
    at!(kinds, reply, "reply-late", Action::Delay(SLOWLY), Acquire Release Renew Transaction);
    at!(kinds, reply, "dropped", Action::Drop, Message);
    at!(kinds, reply, "doubled", Action::Twice, Message);
    at!(kinds, reply, "reordered", Action::Swap, Message);
    at!(kinds, reply, "late", Action::Delay(SLOWLY), Message);
    at!(kinds, reply, "reset", Action::Cut, Message);

    kinds.push(Kind::of(Class::Network, (0.2, 1.3), BlackHole));
    let slow = |rng: &mut Rng, lease: Duration| Slow(lease.mul_f64(0.06 + 0.6 * rng.f64()));
    kinds.push(Kind::new(Class::Network, (0.4, 0.9), slow));
    kinds.push(Kind::of(Class::Network, (0.1, 1.3), Refused { cut: true }));
    kinds.push(Kind::of(Class::Network, (0.1, 0.6), Refused { cut: false }));

    kinds.push(Kind::of(Class::Server, (0.0, 0.1), Reset).cuts_off());
    kinds.push(Kind::of(Class::Server, (0.2, 1.4), server::Stopped));
    let killed = Kind::of(Class::Server, (0.0, 0.6), server::Killed).cuts_off();
    kinds.push(killed.forgets(Forgets::UntilHealed));
    kinds.push(Kind::of(Class::Server, (0.1, 0.8), server::Busy));
    let loading = server::Loading(Duration::from_millis(200));
    kinds.push(Kind::of(Class::Server, (0.1, 0.2), loading).cuts_off());
    kinds.push(Kind::of(Class::Server, (0.2, 0.8), server::Forgetful));
    kinds.push(Kind::of(Class::Server, (0.2, 0.8), server::MaxClients).cuts_off());
    for which in ["normal", "pubsub"] {
        kinds.push(Kind::of(Class::Server, (0.0, 0.1), server::ClientsKilled { which }).cuts_off());
    }
    let paused = |_: &mut Rng, lease: Duration| server::ClientsPaused(lease * 2);
    kinds.push(Kind::new(Class::Server, (0.4, 1.4), paused));
    for refusing in [
        setting::OUT_OF_MEMORY,
        setting::READ_ONLY,
        setting::MASTER_DOWN,
        setting::NO_REPLICAS,
        setting::NO_PERMISSION,
        setting::NO_PUBLISH,
    ] {
        kinds.push(Kind::of(Class::Server, (0.1, 0.8), refusing).cuts_off());
    }
    for command in [command::FLUSHED, command::DELETED, command::EXPIRED] {
        kinds.push(Kind::of(Class::Server, (0.0, 0.1), command).forgets(Forgets::AtOnce));
    }
    let evicted = Kind::of(Class::Server, (0.0, 0.1), command::Evicted).cuts_off();
    kinds.push(evicted.forgets(Forgets::AtOnce));

    kinds.push(Kind::of(Class::Process, (0.3, 1.5), process::Stopped));
    kinds.push(Kind::of(Class::Process, (0.0, 0.1), process::Killed).kills());
    kinds.push(Kind::of(Class::Process, (0.2, 0.5), process::SignalStorm));
    kinds
}
