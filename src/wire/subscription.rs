//! A connection that listens to channels.
//!
//! It speaks RESP3, in which messages are told apart from replies, and asks for one reply only: what
//! `HELLO` reports. That is a sign of life, and reports whether the server is a replica, to any user.
//!
//! A replica passes on what its master publishes, to listeners that the master does not count, late, and
//! only while it follows that master. When an address begins to lead to another server, the other
//! connections of the client notice it at the first write that is refused. Nothing refuses a listener, so
//! the listener asks:
//!
//! | when | it |
//! | --- | --- |
//! | it connects | asks, as each connection that speaks RESP3 does, and listens if the server is no replica |
//! | [`ASK_SOON`] has passed since the last reply, and since its question a message was heard or the client made another connection, or a channel is unconfirmed | asks again |
//! | [`ASK_QUIET`] has passed since the last reply | asks again |
//! | there is no reply within [`SIGN_OF_LIFE`] | fails |
//! | the server refuses a channel | returns the refusal |
//! | the server is a replica | fails, and ends the [epoch](crate::wire::epoch) if it was none before |
//! | the epoch is over, as another connection saw | fails |
//!
//! A silent listener at a replica harms only a client that waits, and a waiting client writes every second.
//! Its old connections lead to the replica, which refuses the write and so ends the epoch. A connection
//! that replaces an old one makes the listener ask soon.
//!
//! A confirmation names its channel, a refusal does not. Each command has one reply, and these come in the order of
//! the commands. So a refusal is about the oldest command without a reply.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::time::Duration;

use redis::{PushKind, RedisError, Value};

use crate::base::time::{BootClock, Clock, Moment};
use crate::wire::epoch::Epoch;
use crate::wire::error_context::io_kind;
use crate::wire::failure::{Failure, not_a_master};
use crate::wire::raw_connection::RawConnection;
use crate::wire::script::Call;

/// How long a reply counts where a move would matter.
const ASK_SOON: Duration = Duration::from_secs(3);
/// How long a reply counts at most. Idle waiters are to cost little more than their heartbeats.
const ASK_QUIET: Duration = Duration::from_secs(15);
/// How long a reply may take.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// What was heard.
#[derive(Debug)]
pub(crate) enum Event {
    Message { channel: Vec<u8>, payload: Vec<u8> },
    Subscribed { channel: Vec<u8> },
    Nothing,
}

/// A connection for one thread that listens.
pub(crate) trait Subscriber {
    /// Waits for something to hear, at most this long.
    fn next(&mut self, wait: Duration) -> Result<Event, Failure>;

    /// Asks for one more channel; [`Event::Subscribed`] confirms it.
    fn subscribe(&mut self, channel: &[u8]) -> Result<(), Failure>;

    /// Listens to a channel no longer.
    fn unsubscribe(&mut self, channel: &[u8]) -> Result<(), Failure>;

    /// Which channel the last refusal was about, once, where that is known.
    fn refused(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// The number of the epoch to which belongs what is heard here.
    fn epoch(&self) -> u64 {
        0
    }
}

/// A connection to a real server.
pub(crate) struct Subscription {
    inner: RawConnection,
    /// The time during which the master is there. `None`: the server is listened to whatever its role.
    epoch: Option<Epoch>,
    /// When the server last replied.
    replied: Moment,
    /// Whether a reply on this connection was no replica's.
    was_master: bool,
    /// Since when a reply to `HELLO` is due.
    asked: Option<Moment>,
    /// How many connections the client had made when it last asked.
    connections: u64,
    /// Whether a message was heard since it last asked.
    heard: bool,
    /// The channels of the commands without a reply, in the order of sending. A channel may be left and asked for
    /// anew before the first confirmation comes: only the last reply about it tells whether it is heard.
    unanswered: VecDeque<Vec<u8>>,
    /// Which channel the last refusal was about.
    refused: Option<Vec<u8>>,
}

impl Subscription {
    /// Takes over a connection that speaks RESP3, and asks for a first channel if the server has said that it is the
    /// right one. Each write may take this long.
    pub(crate) fn new(
        mut inner: RawConnection,
        timeout: Duration,
        channel: &[u8],
        epoch: Option<Epoch>,
    ) -> Result<Subscription, Failure> {
        inner.set_write_timeout(Some(timeout)).map_err(Failure::Unknown)?;
        let greeting = std::mem::replace(&mut inner.greeting, Value::Nil);
        let mut subscription = Subscription {
            inner,
            epoch,
            replied: BootClock.now(),
            was_master: false,
            asked: None,
            connections: 0,
            heard: false,
            unanswered: VecDeque::new(),
            refused: None,
        };
        subscription.connections = subscription.connections_made();
        subscription.check_place()?;
        subscription.take_reply(greeting)?;
        subscription.subscribe(channel)?;
        Ok(subscription)
    }

    fn send_about(&mut self, verb: &[u8], channel: &[u8]) -> Result<(), Failure> {
        self.unanswered.push_back(channel.to_vec());
        self.send(&[verb, channel])
    }

    fn send(&mut self, command: &[&[u8]]) -> Result<(), Failure> {
        let packed = Call::plain(command).pack();
        self.inner.send_packed_command(&packed).map_err(Failure::Unknown)
    }

    /// Fails if this is the place to listen no longer, as another connection has seen.
    fn check_place(&self) -> Result<(), Failure> {
        if let Some(epoch) = &self.epoch
            && epoch.is_over()
        {
            return Err(Failure::Unknown(not_a_master("the server is elsewhere by now")));
        }
        Ok(())
    }

    /// How long the last reply counts.
    fn validity(&self) -> Duration {
        let connected = self.connections != self.connections_made();
        let matters = self.heard || connected || !self.unanswered.is_empty();
        if matters { ASK_SOON } else { ASK_QUIET }
    }

    fn connections_made(&self) -> u64 {
        self.epoch.as_ref().map_or(0, Epoch::connections)
    }

    fn ask(&mut self, now: Moment) -> Result<(), Failure> {
        self.asked = Some(now);
        self.connections = self.connections_made();
        self.heard = false;
        // The connection began with this command. The server allows it again, and it changes nothing.
        self.send(&[b"HELLO", b"3"])
    }

    /// Reads what comes next, if it comes in this time.
    fn read(&mut self, wait: Duration) -> Result<Event, Failure> {
        self.inner.set_read_timeout(Some(wait)).map_err(Failure::Unknown)?;
        match self.inner.recv(wait) {
            Ok(Value::Push { kind, data }) => Ok(self.take_push(&kind, data)),
            Ok(reply) => self.take_reply(reply).map(|()| Event::Nothing),
            Err(error) if is_timeout(&error) => Ok(Event::Nothing),
            Err(error) => Err(Failure::Unknown(error)),
        }
    }

    fn take_push(&mut self, kind: &PushKind, data: Vec<Value>) -> Event {
        let mut parts = data.into_iter().map(|part| match part {
            Value::BulkString(bytes) => bytes,
            Value::SimpleString(text) => text.into_bytes(),
            _ => Vec::new(),
        });
        match (kind, parts.next(), parts.next()) {
            (PushKind::Message, Some(channel), Some(payload)) => {
                self.heard = true;
                Event::Message { channel, payload }
            }
            (PushKind::Subscribe | PushKind::Unsubscribe, Some(channel), _) => {
                self.unanswered.pop_front();
                if *kind == PushKind::Unsubscribe || self.unanswered.contains(&channel) {
                    return Event::Nothing;
                }
                Event::Subscribed { channel }
            }
            _ => Event::Nothing,
        }
    }

    fn take_reply(&mut self, reply: Value) -> Result<(), Failure> {
        let reply = reply.extract_error().map_err(|refusal| {
            self.refused = self.unanswered.pop_front();
            Failure::Refused(refusal)
        })?;
        let Value::Map(fields) = reply else {
            return Err(Failure::Unknown((redis::ErrorKind::Parse, "no reply to HELLO").into()));
        };
        (self.asked, self.replied) = (None, BootClock.now());
        if let Some(epoch) = &self.epoch
            && is_of_replica(&fields)
        {
            // A new connection shows no move: an address may lead to several servers for a while, and the
            // other connections may be at the right one.
            if self.was_master {
                epoch.end();
            }
            return Err(Failure::Unknown(not_a_master("the server is a replica")));
        }
        self.was_master = true;
        Ok(())
    }
}

impl Subscriber for Subscription {
    fn next(&mut self, wait: Duration) -> Result<Event, Failure> {
        self.check_place()?;
        let now = BootClock.now();
        match self.asked {
            Some(asked) if now.since(asked) >= SIGN_OF_LIFE => return Err(Failure::silent()),
            None if now.since(self.replied) >= self.validity() => self.ask(now)?,
            _ => {}
        }
        self.read(wait)
    }

    fn subscribe(&mut self, channel: &[u8]) -> Result<(), Failure> {
        self.send_about(b"SUBSCRIBE", channel)
    }

    fn unsubscribe(&mut self, channel: &[u8]) -> Result<(), Failure> {
        self.send_about(b"UNSUBSCRIBE", channel)
    }

    fn refused(&mut self) -> Option<Vec<u8>> {
        self.refused.take()
    }

    fn epoch(&self) -> u64 {
        self.epoch.as_ref().map_or(0, Epoch::number)
    }
}

fn is_timeout(error: &RedisError) -> bool {
    error.is_timeout() || io_kind(error) == Some(io::ErrorKind::Interrupted)
}

/// Whether a reply to `HELLO` is a replica's. A sentinel reports no role.
fn is_of_replica(fields: &[(Value, Value)]) -> bool {
    let text = |value| redis::from_redis_value_ref::<String>(value).unwrap_or_default();
    let is_replica = |value| matches!(text(value).as_str(), "replica" | "slave");
    fields.iter().any(|(field, value)| text(field) == "role" && is_replica(value))
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use leasehold_support::Server;

    use super::*;
    use crate::wire::endpoint;

    #[test]
    fn replies_match_commands_in_order() {
        let server = Server::builder().tcp().start().unwrap();
        let mut user = redis::cmd("ACL");
        user.arg(&["SETUSER", "locks", "on", ">secret", "+@all", "resetchannels", "&x", "&y"]);
        user.exec(&mut server.connection()).unwrap();
        let url = format!("redis://locks:secret@{}?protocol=resp3", server.addr());
        let second = Duration::from_secs(1);
        let line = RawConnection::connect(&endpoint::parse(&url).unwrap(), second).unwrap();
        let mut subscription = Subscription::new(line, second, b"x", None).unwrap();
        subscription.unsubscribe(b"x").unwrap();
        for channel in [b"x", b"z", b"y"] {
            subscription.subscribe(channel).unwrap();
        }
        let mut told = Vec::new();
        while !subscription.unanswered.is_empty() {
            match subscription.next(second * 10) {
                Ok(Event::Subscribed { channel }) => told.push((true, channel)),
                Err(Failure::Refused(_)) => told.push((false, subscription.refused().unwrap())),
                other => assert!(matches!(other, Ok(Event::Nothing)), "{other:?}"),
            }
        }
        let expected = [(true, b"x"), (false, b"z"), (true, b"y")];
        assert_eq!(told, expected.map(|(heard, channel)| (heard, channel.to_vec())));
    }
}
