//! The clocks of all servers of one client: by how much they may differ, and who learns that one is wrong, or that the
//! connections to its server have ended.

use std::fmt;
use std::time::Duration;

use crate::base::sync::contended::Mutex;
use crate::base::sync::{Arc, OnceLock, Weak};
use crate::base::text::Span;
use crate::wire::server_clock::ServerClock;
use crate::wire::server_clock::reading::{Deviation, Reading};

/// A smaller deviation is never noticed, whatever `max_clock_skew` is: clocks are slewed, and threads are held up.
const LEAST_BOUND: Duration = Duration::from_millis(100);

/// What may run apart in this time is little, compared with the bound.
const PRECISE: Duration = Duration::from_secs(5);

/// The clocks of all servers of one client.
pub(crate) struct ServerClocks {
    bound: Duration,
    /// Whether a lock can come from one of them to another.
    is_shared: bool,
    members: Mutex<Members>,
    on_fault: OnceLock<Box<OnFault>>,
    on_break: OnceLock<Box<OnBreak>>,
}

type OnBreak = dyn Fn() + Send + Sync;
type OnFault = dyn Fn(ClockFault) + Send + Sync;

#[derive(Default)]
struct Members {
    clocks: Vec<Weak<ServerClock>>,
    /// The number of the last clock.
    last: u64,
    /// The numbers of two clocks each that are known to differ.
    apart: Vec<(u64, u64)>,
}

/// A server's clock is not what its client had to expect.
#[derive(Debug)]
pub(crate) struct ClockFault {
    /// The number of that clock.
    pub(crate) clock: u64,
    text: String,
}

impl ServerClocks {
    /// Those of servers whose clocks may differ by `max_clock_skew`. With `is_shared` a lock can come from one of them
    /// to another.
    pub(crate) fn new(max_clock_skew: Duration, is_shared: bool) -> Arc<ServerClocks> {
        Arc::new(ServerClocks {
            bound: max_clock_skew.max(LEAST_BOUND),
            is_shared,
            members: Mutex::default(),
            on_fault: OnceLock::new(),
            on_break: OnceLock::new(),
        })
    }

    /// The clock of one more server.
    pub(crate) fn add(self: &Arc<ServerClocks>) -> Arc<ServerClock> {
        let mut members = self.members.lock();
        members.last += 1;
        let clock = Arc::new(ServerClock::new(Arc::clone(self), members.last));
        members.clocks.retain(|clock| clock.strong_count() > 0);
        members.clocks.push(Arc::downgrade(&clock));
        clock
    }

    /// Sets who learns of faults: once, before the first request. The thread that has received a reply calls it, and must
    /// not be held up.
    pub(crate) fn on_fault(&self, on_fault: impl Fn(ClockFault) + Send + Sync + 'static) {
        self.on_fault.get_or_init(|| Box::new(on_fault));
    }

    /// Sets who learns that the connections to a server have ended: once, before the first request. The thread that has
    /// noticed it calls it, and must not be held up.
    pub(crate) fn on_break(&self, on_break: impl Fn() + Send + Sync + 'static) {
        self.on_break.get_or_init(|| Box::new(on_break));
    }

    pub(super) fn tell_break(&self) {
        if let Some(on_break) = self.on_break.get() {
            on_break();
        }
    }

    pub(crate) fn bound(&self) -> Duration {
        self.bound
    }

    pub(super) fn tell(&self, fault: ClockFault) {
        if let Some(on_fault) = self.on_fault.get() {
            on_fault(fault);
        }
    }

    /// Compares a clock with all others. Returns the fault if it differs from one of them, and did not before.
    pub(super) fn compare(&self, clock: &ServerClock, reading: &Reading) -> Option<ClockFault> {
        if !self.is_shared {
            return None;
        }
        let others: Vec<Arc<ServerClock>> =
            self.members.lock().clocks.iter().filter_map(Weak::upgrade).collect();
        let mut fault = None;
        for other in others.iter().filter(|other| other.number() != clock.number()) {
            let Some(known) = other.reading() else { continue };
            let deviation = known.deviation(reading, self.bound);
            // Old readings are not precise enough to show that clocks agree.
            if deviation.is_none() && reading.received.since(known.received) > PRECISE {
                continue;
            }
            let is_new = self.note_pair(clock.number(), other.number(), deviation.is_some());
            if let Some(deviation) = deviation.filter(|_| is_new) {
                let (this, other) = (clock.address(), other.address());
                fault = Some(format!("the clock of {this} is {deviation} of that of {other}"));
            }
        }
        fault.map(|text| self.fault(clock, text))
    }

    /// Notes whether two clocks differ. Returns whether that has changed.
    fn note_pair(&self, one: u64, other: u64, are_apart: bool) -> bool {
        let pair = (one.min(other), one.max(other));
        let apart = &mut self.members.lock().apart;
        match (apart.iter().position(|known| *known == pair), are_apart) {
            (None, true) => apart.push(pair),
            (Some(place), false) => _ = apart.swap_remove(place),
            _ => return false,
        }
        true
    }

    /// The fault of a clock that its own last reading does not let expect, of this server or of the one before it.
    pub(super) fn step(
        &self,
        clock: &ServerClock,
        deviation: Deviation,
        has_moved: bool,
    ) -> ClockFault {
        let server = clock.address();
        let text = match deviation {
            _ if has_moved => {
                format!("the clock of {server} is {deviation} of that of the server before it")
            }
            Deviation::Ahead(_) => format!(
                "the clock of {server} is {deviation} of what it should be: it was set, or this machine was paused"
            ),
            Deviation::Behind(_) => {
                format!("the clock of {server} is {deviation} of what it should be: it was set")
            }
        };
        self.fault(clock, text)
    }

    fn fault(&self, clock: &ServerClock, text: String) -> ClockFault {
        let text =
            format!("{text}; {} are allowed for. Redis is asked about its locks", Span(self.bound));
        ClockFault { clock: clock.number(), text }
    }
}

impl fmt::Display for ClockFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ServerClocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerClocks").field("bound", &self.bound).finish_non_exhaustive()
    }
}
