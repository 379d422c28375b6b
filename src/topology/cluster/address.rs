//! What nodes of a cluster report about each other: the hash slots of each master, and redirections.

use std::fmt;

use redis::{ConnectionAddr, Value};

use crate::base::tag::SLOTS;
use crate::wire::endpoint::Endpoint;
use crate::wire::failure::Failure;

/// The address of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// The address in an endpoint; `None` for a Unix socket, which other nodes cannot name.
    pub(crate) fn of(endpoint: &Endpoint) -> Option<Address> {
        match endpoint.addr() {
            ConnectionAddr::Tcp(host, port) => Some(Address { host: host.clone(), port: *port }),
            _ => None,
        }
    }

    /// The address of a node as another node reports it.
    fn reported(host: &str, port: u16, reporter: &Address) -> Address {
        // A node that was never told its own address reports "" for itself, and "?" where
        // `cluster-preferred-endpoint-type` wants a host name and none is set. Both are read as the
        // host through which the client reached the reporter.
        let host = if matches!(host, "" | "?") { &reporter.host } else { host };
        Address { host: host.to_owned(), port }
    }

    /// The endpoint of a node that announces this address, with the user, the password and the
    /// certificates of `template`.
    pub(crate) fn announced(&self, template: &Endpoint) -> Endpoint {
        template.at(self.host.clone(), self.port)
    }

    /// The endpoint at exactly this address, which a user gave.
    pub(crate) fn given(&self, template: &Endpoint) -> Endpoint {
        template.reached_at(self.host.clone(), self.port)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// A range of hash slots, and the master that has them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SlotRange {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) master: Address,
}

/// Reads a node's reply to `CLUSTER SLOTS`; `None` if it has another form.
pub(crate) fn ranges(value: &Value, reporter: &Address) -> Option<Vec<SlotRange>> {
    let Value::Array(ranges) = value else { return None };
    // All or nothing: the map is replaced as a whole, so a reply that is readable in part would
    // erase the hash slots of the other part.
    ranges.iter().map(|range| read(range, reporter)).collect()
}

fn read(range: &Value, reporter: &Address) -> Option<SlotRange> {
    // The master comes first, its replicas after it.
    let Value::Array(parts) = range else { return None };
    // Later versions of Redis append fields (the node's id, its host names), which are ignored.
    let [first, last, Value::Array(master), ..] = parts.as_slice() else { return None };
    let [host, port, ..] = master.as_slice() else { return None };
    let number = |value: &Value| match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    };
    let host = match host {
        // Since Redis 7 a host that is not known is NULL.
        Value::Nil => String::new(),
        host => redis::from_redis_value_ref(host).ok()?,
    };
    let (first, last) = (number(first)?, number(last)?);
    let master = Address::reported(&host, number(port)?, reporter);
    // Checked here, because the map is indexed by these numbers: a reply must not cause a panic.
    (first <= last && last < SLOTS).then_some(SlotRange { first, last, master })
}

/// A refusal that names another node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) slot: u16,
    pub(crate) to: Address,
    /// Valid for this command only: the hash slot is still being moved there (`ASK`).
    pub(crate) once: bool,
}

impl Redirect {
    pub(crate) fn of(failure: &Failure, reporter: &Address) -> Option<Redirect> {
        let Failure::Refused(error) = failure else { return None };
        let (place, slot) = error.redirect_node()?;
        // The last colon: an IPv6 address has colons itself, and Redis writes it without brackets.
        let (host, port) = place.rsplit_once(':')?;
        let to = Address::reported(host, port.parse().ok()?, reporter);
        Some(Redirect { slot, to, once: error.code() == Some("ASK") })
    }
}

#[cfg(test)]
mod tests {
    use redis::{ErrorKind, ServerErrorKind};

    use super::*;

    fn address(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let node = Value::Array(vec![host, Value::Int(port), text("id"), Value::Array(vec![])]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node.clone(), node])
    }

    #[test]
    fn slots_are_parsed_and_an_unknown_host_is_the_senders() {
        let reply = Value::Array(vec![
            range(0, 5460, text("10.0.0.1"), 7000),
            range(5461, 5461, Value::Nil, 7001),
            range(5462, 16383, text("?"), 7002),
        ]);
        let ranges = ranges(&reply, &address("seed", 1)).unwrap();
        let masters: Vec<_> = ranges.iter().map(|range| range.master.to_string()).collect();
        assert_eq!(masters, ["10.0.0.1:7000", "seed:7001", "seed:7002"]);
        assert_eq!((ranges[1].first, ranges[2].last), (5461, 16383));
    }

    #[test]
    fn malformed_slot_lists_are_rejected() {
        let reporter = address("seed", 1);
        let one = |range| Value::Array(vec![range]);
        for odd in [
            Value::Nil,
            Value::Int(1),
            one(Value::Nil),
            one(Value::Array(vec![Value::Int(0), Value::Int(1)])),
            one(range(5, 4, text("a"), 1)),
            one(range(0, 16384, text("a"), 1)),
            one(range(-1, 4, text("a"), 1)),
            one(range(0, 4, text("a"), 70_000)),
        ] {
            assert_eq!(ranges(&odd, &reporter), None, "{odd:?}");
        }
        assert_eq!(ranges(&Value::Array(vec![]), &reporter), Some(vec![]));
    }

    #[test]
    fn redirections_are_parsed_into_slot_and_node() {
        let of = |kind, detail: &str| {
            let error = (ErrorKind::Server(kind), "elsewhere", detail.to_owned());
            Redirect::of(&Failure::Refused(error.into()), &address("seed", 1))
        };
        let moved = of(ServerErrorKind::Moved, "3999 10.0.0.1:6381").unwrap();
        let to = address("10.0.0.1", 6381);
        assert_eq!(moved, Redirect { slot: 3999, to, once: false });
        assert!(of(ServerErrorKind::Ask, "3999 10.0.0.1:6381").unwrap().once);
        let to = |detail| of(ServerErrorKind::Moved, detail).map(|moved| moved.to);
        assert_eq!(to("1 :6381"), Some(address("seed", 6381)));
        assert_eq!(to("1 ?:6381"), Some(address("seed", 6381)));
        assert_eq!(to("1 ::1:6381"), Some(address("::1", 6381)));
        for odd in ["", "x a:1", "1", "1 a", "1 a:x"] {
            assert_eq!(to(odd), None, "{odd}");
        }
        assert_eq!(of(ServerErrorKind::TryAgain, "1 a:1"), None);
    }
}
