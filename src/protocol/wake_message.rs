//! The messages that wake waiters, and the servers that publish them.

use std::time::Duration;

use crate::base::id::Identity;
use crate::base::share::PermitNumbers;
use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::wire::failure::Failure;
use crate::wire::fork_guard;
use crate::wire::script::Call;
use crate::wire::server_clock::ClockRun;
use crate::wire::subscription::Subscriber;
use crate::wire::transport::Transport;

/// The payload that makes a listener check its list of channels.
pub(crate) const WAKE_LISTENER: &[u8] = b"n";

/// The channel of one client.
pub(crate) fn client_channel(identity: &Identity) -> Vec<u8> {
    format!("leasehold:{}", identity.id()).into_bytes()
}

/// The command that makes this client's listener check its list of channels.
pub(crate) fn wake_listener(identity: &Identity) -> Call {
    // A thread that blocks on its subscription cannot be given work through the socket that it
    // reads, least of all over TLS. A message on its own channel ends that read at once.
    Call::plain(&[b"PUBLISH", &client_channel(identity), WAKE_LISTENER])
}

/// A message, parsed. All are hints except the grant, whose content is relied on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WakeMessage {
    /// An attempt of ours was made the owner.
    Grant { name: Vec<u8>, grant: GrantMessage },
    /// An attempt of this client counts as dead, was upgraded or never fits, or a lock was released: ask again.
    Retry { name: Vec<u8> },
    /// Somebody waits for a lock that an attempt of this client owns.
    Wanted { name: Vec<u8>, number: u64, waiters: u32 },
    /// Somebody asks the holder to release the lock.
    Request { name: Vec<u8>, number: u64 },
    /// An attempt of this client is said to have been evicted: ask whether it was.
    Evicted { name: Vec<u8>, number: u64 },
    /// The subscription to the client's own channel is confirmed.
    Listening,
    /// Messages about names in these hash slots, in ascending order, may have been missed.
    Missed { hash_slots: Vec<u16> },
    /// Not for the slots of this client.
    Ignored,
}

/// The content of a grant message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrantMessage {
    pub(crate) number: u64,
    pub(crate) token: u64,
    /// The server's time in microseconds.
    pub(crate) micros: u64,
    pub(crate) window: Duration,
    pub(crate) waiters: u32,
    pub(crate) permits: PermitNumbers,
    /// The run of the server's clock in which the message was received.
    pub(crate) run: ClockRun,
}

/// The servers that publish what wakes a client's waiters.
pub(crate) trait Publishers: Send + Sync {
    /// The servers to subscribe to now.
    fn all(&self) -> Vec<Arc<dyn Publisher>>;

    /// Changes whenever [`all`](Publishers::all) or [`Publisher::serves`] may return something else.
    fn version(&self) -> u64 {
        0
    }

    /// Whether each lock is on one of them, which publishes its messages.
    fn have_homes(&self) -> bool {
        false
    }

    /// How many of them must have confirmed a subscription, so that no release is missed.
    fn required(&self) -> usize {
        1
    }

    /// Whether to process a message, from the client's own channel or from that of a name.
    fn accepts(&self, _is_own: bool, _payload: &[u8]) -> bool {
        true
    }

    /// How long to delay the wake-up after a release, so that not all clients ask at the same time.
    fn pause(&self) -> Duration {
        Duration::ZERO
    }
}

/// A server that publishes.
pub(crate) trait Publisher: Send + Sync {
    /// A number that differs between servers.
    fn number(&self) -> usize {
        0
    }

    /// Its address, without user information.
    fn address(&self) -> String;

    /// Connects and subscribes to a first channel, on the caller's thread.
    fn subscribe(&self, channel: &[u8]) -> Result<Box<dyn Subscriber>, Failure>;

    /// How many connection attempts were made for callers so far, whether they succeeded or not.
    fn connect_attempts(&self) -> u64 {
        0
    }

    /// How many connections were made for callers so far.
    fn connections_made(&self) -> u64 {
        0
    }

    /// How many faults of the server's clock were found so far.
    fn clock_faults(&self) -> u64 {
        0
    }

    /// Whether to subscribe to the channel of a name at this server.
    fn serves(&self, _channel: &[u8]) -> bool {
        true
    }

    /// Whether the locks of a hash slot are on this server.
    fn is_home(&self, _hash_slot: u16) -> bool {
        true
    }

    /// Notes that the subscription to the client's own channel was confirmed here, or has ended.
    fn set_listening(&self, _heard: bool) {}

    /// As [`ServerClock::note_subscription_end`](crate::wire::server_clock::ServerClock::note_subscription_end).
    fn lost(&self, _began: Moment, _at: Moment) {}

    /// The message that makes the waiters ask again which may have missed a message of this server
    /// alone.
    fn missed_wake(&self) -> WakeMessage {
        WakeMessage::Ignored
    }
}

impl Publisher for Transport {
    fn number(&self) -> usize {
        // Unique among the servers of a client: the listener keeps each of them alive with its
        // state, so no other can be allocated at the same address meanwhile.
        std::ptr::from_ref(self).addr()
    }

    fn address(&self) -> String {
        self.manager().address()
    }

    fn subscribe(&self, channel: &[u8]) -> Result<Box<dyn Subscriber>, Failure> {
        fork_guard::check()?;
        // Not from the pool: a subscribed connection never serves another caller, and while one is
        // in use for good the pool would have one less.
        Ok(Box::new(self.manager().subscribe(channel)?))
    }

    fn connect_attempts(&self) -> u64 {
        Transport::connect_attempts(self)
    }

    fn connections_made(&self) -> u64 {
        self.manager().attempts().counts().made
    }

    fn clock_faults(&self) -> u64 {
        self.server_clock().faults()
    }

    fn lost(&self, began: Moment, at: Moment) {
        self.server_clock().note_subscription_end(began, at);
    }
}

/// One server, always the same.
pub(crate) struct SinglePublisher(pub(crate) Arc<dyn Publisher>);

impl Publishers for SinglePublisher {
    fn all(&self) -> Vec<Arc<dyn Publisher>> {
        vec![Arc::clone(&self.0)]
    }
}

/// Parses a message on the client's own channel.
pub(crate) fn read(payload: Vec<u8>) -> WakeMessage {
    // Anybody may publish on the channel. What cannot be parsed is dropped without a log line, or a
    // stranger could fill the user's log.
    read_inner(payload).unwrap_or(WakeMessage::Ignored)
}

fn read_inner(payload: Vec<u8>) -> Option<WakeMessage> {
    let mut fields = Fields { payload, at: 0 };
    let &[mark] = fields.next()? else { return None };
    match mark {
        b'g' | b's' => {
            let grant = GrantMessage {
                number: fields.hexadecimal()?,
                token: fields.number()?,
                micros: fields.number()?,
                window: Duration::from_millis(fields.number()?),
                waiters: u32::try_from(fields.number()?).ok()?,
                permits: if mark == b's' { Some(fields.numbers()?) } else { None },
                // Not in the message. The listener knows on which connection the message came, and
                // fills the run in: only a reading of the same run may date the grant (rule 10).
                run: ClockRun::default(),
            };
            Some(WakeMessage::Grant { name: fields.rest(), grant })
        }
        // The reply to the next request of the attempt says the rest: that its upgrade was granted, or
        // that what it asks for is above the limit.
        b'r' | b'u' | b'c' => {
            // Which attempt is meant does not matter: to ask again is harmless for any of this
            // name, and the one that was meant may have been replaced since.
            fields.hexadecimal()?;
            let numbers = match mark {
                b'u' => 4,
                b'c' => 1,
                _ => 0,
            };
            (0..numbers).try_for_each(|_| fields.number().map(drop))?;
            Some(WakeMessage::Retry { name: fields.rest() })
        }
        b'w' => {
            let number = fields.hexadecimal()?;
            let waiters = u32::try_from(fields.number()?).ok()?;
            Some(WakeMessage::Wanted { name: fields.rest(), number, waiters })
        }
        b'p' => {
            let number = fields.hexadecimal()?;
            // The server's time is not used here. It makes two requests different messages, so that
            // a cluster's client, which receives each from several nodes, drops copies and no
            // second request.
            fields.number()?;
            Some(WakeMessage::Request { name: fields.rest(), number })
        }
        b'x' => {
            let number = fields.hexadecimal()?;
            Some(WakeMessage::Evicted { name: fields.rest(), number })
        }
        // A newer version may send more kinds. Clients of both versions share a server during a
        // rollout. A script that sends one knows by the digit before the mark of the attempt whether its
        // client reads it.
        _ => None,
    }
}

/// Fields that end with a space. The last one, a name, is the rest, and may contain any bytes.
struct Fields {
    payload: Vec<u8>,
    /// Where the next one begins.
    at: usize,
}

impl Fields {
    fn next(&mut self) -> Option<&[u8]> {
        let rest = &self.payload[self.at..];
        let length = rest.iter().position(|&byte| byte == b' ')?;
        self.at += length + 1;
        Some(&rest[..length])
    }

    fn number(&mut self) -> Option<u64> {
        std::str::from_utf8(self.next()?).ok()?.parse().ok()
    }

    fn numbers(&mut self) -> Option<Arc<[u32]>> {
        let text = std::str::from_utf8(self.next()?).ok()?;
        text.split(',').map(|number| number.parse().ok()).collect()
    }

    fn hexadecimal(&mut self) -> Option<u64> {
        u64::from_str_radix(std::str::from_utf8(self.next()?).ok()?, 16).ok()
    }

    /// The rest, in the memory of the payload.
    fn rest(mut self) -> Vec<u8> {
        self.payload.drain(..self.at);
        self.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_parsed_or_ignored() {
        let grant = GrantMessage {
            number: 31,
            token: 1_795_248_287_440_245,
            micros: 1_795_248_287_440_246,
            window: Duration::from_millis(3000),
            waiters: 2,
            permits: None,
            run: ClockRun::default(),
        };
        let permits = GrantMessage { permits: Some([4, 0, 17].into()), ..grant.clone() };
        assert_eq!(
            read(b"g 1f 1795248287440245 1795248287440246 3000 2 a name\xff".to_vec()),
            WakeMessage::Grant { name: b"a name\xff".to_vec(), grant }
        );
        assert_eq!(
            read(b"s 1f 1795248287440245 1795248287440246 3000 2 4,0,17 a name".to_vec()),
            WakeMessage::Grant { name: b"a name".to_vec(), grant: permits }
        );
        assert_eq!(read(b"u 1f 9 8 3 0 x".to_vec()), WakeMessage::Retry { name: b"x".to_vec() });
        assert_eq!(read(b"c 1f 4 x y".to_vec()), WakeMessage::Retry { name: b"x y".to_vec() });
        assert_eq!(read(b"r 1f x".to_vec()), WakeMessage::Retry { name: b"x".to_vec() });
        assert_eq!(
            read(b"w 1 7 x y".to_vec()),
            WakeMessage::Wanted { name: b"x y".to_vec(), number: 1, waiters: 7 }
        );
        assert_eq!(
            read(b"p a 7 x".to_vec()),
            WakeMessage::Request { name: b"x".to_vec(), number: 10 }
        );
        assert_eq!(
            read(b"x a y z".to_vec()),
            WakeMessage::Evicted { name: b"y z".to_vec(), number: 10 }
        );
        for odd in [
            "",
            "n",
            "x",
            "x y z",
            "y 1 x",
            "g",
            "g 1 2 3 4 x",
            "g z 1 1 1 1 x",
            "g 1 -1 1 1 1 x",
            "w 1 x",
            "p 1 x",
            "s 1 2 3 4 5 x",
            "s 1 2 3 4 5 1, x",
            "s 1 2 3 4 5 -1 x",
            "u 1 2 3 4 x",
            "c 1 x",
        ] {
            assert_eq!(read(odd.into()), WakeMessage::Ignored, "{odd}");
        }
    }
}
