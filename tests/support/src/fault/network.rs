//! Faults of the network: the proxy does something to the messages of one operation, or to all.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::Proxy;
use crate::fault::server::{client_ids, gone};
use crate::fault::{Action, Active, Direction, Fault, Fired, Injector, Operation, Site};

const JOURNAL: &str = "the proxy's journal";

/// No reply, and the connection stays open.
pub const SILENCE: Action = Action::Garbage(Vec::new());

/// A fault of the messages of one operation; the witness is the proxy's journal.
#[derive(Debug, Clone)]
pub struct AtOperation {
    fault: &'static str,
    operation: Operation,
    direction: Direction,
    action: Action,
    pattern: Vec<u8>,
    sticky: bool,
}

impl AtOperation {
    /// Returns a fault of the requests of an operation; of the next one only.
    pub fn request(fault: &'static str, operation: Operation, action: Action) -> Self {
        Self::new(fault, operation, Direction::Request, action)
    }

    /// Returns a fault of the replies of an operation, or of messages; of the next one only.
    pub fn reply(fault: &'static str, operation: Operation, action: Action) -> Self {
        Self::new(fault, operation, Direction::Reply, action)
    }

    fn new(
        fault: &'static str,
        operation: Operation,
        direction: Direction,
        action: Action,
    ) -> Self {
        Self { fault, operation, direction, action, pattern: Vec::new(), sticky: false }
    }

    /// Makes it a fault of all messages until it is healed.
    pub fn sticky(mut self) -> Self {
        self.sticky = true;
        self
    }

    /// Makes it a fault only of messages that contain these bytes.
    pub fn containing(mut self, pattern: impl AsRef<[u8]>) -> Self {
        self.pattern = pattern.as_ref().to_vec();
        self
    }
}

impl Injector for AtOperation {
    fn name(&self) -> String {
        format!("{}@{}", self.fault, self.operation)
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let (proxy, operation) = (site.proxy, self.operation);
        let mut fault = match self.direction {
            Direction::Request => Fault::request(&self.pattern, self.action.clone()),
            Direction::Reply => Fault::reply(&self.pattern, self.action.clone()),
        };
        fault = fault.at(operation);
        if self.sticky {
            fault = fault.sticky();
        }
        // A fault of a request may come about when it is answered.
        let of_reply =
            matches!(self.action, Action::LoseReply | Action::HalfReply | Action::Garbage(_));
        let shows = if of_reply { Direction::Reply } else { self.direction };
        let before = proxy.tally(shows, operation);
        let injection = proxy.add(fault);
        let counted = injection.clone();
        let count = move || Fired {
            injected: counted.fired(),
            witnessed: proxy.tally(shows, operation).since(before).harmed(),
            witness: JOURNAL,
        };
        Active::new(self.name(), count, move || injection.remove())
    }
}

/// Counts the messages that the whole proxy holds up from now on. The journal has them once they
/// are let go.
fn held_up(proxy: &Proxy) -> impl Fn() -> Fired + Send + Sync + '_ {
    let harmed = move || {
        let ways = [Direction::Request, Direction::Reply];
        ways.map(|way| proxy.tally_all(way).harmed()).iter().sum::<u64>()
    };
    let before = (proxy.held_up(), harmed());
    move || Fired {
        injected: proxy.held_up() - before.0,
        witnessed: harmed() - before.1,
        witness: JOURNAL,
    }
}

/// No byte passes, either way, and connections stay open. The counts are complete once it is
/// healed.
#[derive(Debug, Clone, Copy)]
pub struct BlackHole;

impl Injector for BlackHole {
    fn name(&self) -> String {
        "black-hole".to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let proxy = site.proxy;
        let count = held_up(proxy);
        proxy.black_hole();
        Active::new(self.name(), count, || proxy.heal())
    }
}

/// All messages take this much longer, each way; at least 20 ms, or the journal does not see it.
#[derive(Debug, Clone, Copy)]
pub struct Slow(
    /// How much longer.
    pub Duration,
);

impl Injector for Slow {
    fn name(&self) -> String {
        "slow".to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let proxy = site.proxy;
        let count = held_up(proxy);
        proxy.delay(self.0);
        Active::new(self.name(), count, || proxy.heal())
    }
}

/// All connections are reset, at once and by [`Active::heal`]'s time no more.
#[derive(Debug, Clone, Copy)]
pub struct Reset;

impl Injector for Reset {
    fn name(&self) -> String {
        "reset".to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let (server, proxy) = (site.server, site.proxy);
        let open = u64::try_from(proxy.connections()).unwrap_or(0);
        let before = client_ids(server);
        proxy.cut();
        // The server sees each of them close.
        let closed = move || gone(server, &before);
        let count = move || Fired { injected: open, witnessed: closed(), witness: "CLIENT LIST" };
        Active::new(self.name(), count, || ())
    }
}

/// New connections are refused, and with `cut` the open ones are reset.
#[derive(Debug, Clone, Copy)]
pub struct Refused {
    /// Whether open connections end too.
    pub cut: bool,
}

impl Injector for Refused {
    fn name(&self) -> String {
        if self.cut { "refused" } else { "refused-new" }.to_owned()
    }

    fn inject<'a>(&self, site: &Site<'a>) -> Active<'a> {
        let proxy = site.proxy;
        proxy.refuse();
        if self.cut {
            proxy.cut();
        }
        // A socket that happens to have the port itself is connected to itself; and a process that
        // is being started has the listening socket too, until it runs its own program.
        let refused = (0..100).any(|_| {
            let refused = TcpStream::connect(proxy.addr()).is_err();
            if !refused {
                thread::sleep(Duration::from_millis(5));
            }
            refused
        });
        let refused = u64::from(refused);
        let count = move || Fired { injected: 1, witnessed: refused, witness: "a probe" };
        Active::new(self.name(), count, || proxy.heal())
    }
}
