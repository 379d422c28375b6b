//! A connection that is subscribed to channels.
//!
//! It speaks RESP3, which separates messages from replies. The only reply that it requests is that
//! to `HELLO`: a sign of life, which also reports to any user whether the server is a replica.
//!
//! A replica forwards what its master publishes, but late, only while it follows that master, and
//! to subscribers that the master does not count. When an address begins to lead to another server,
//! the client's other connections notice it at the first refused write. Nothing refuses a
//! subscription, so this one asks:
//!
//! | when | the subscription |
//! | --- | --- |
//! | it connects | sends `HELLO`, as each connection with RESP3 does, and goes on if the server is no replica |
//! | [`ASK_SOON`] has passed since the last reply, and since the last `HELLO` a message arrived or the client opened another connection, or a channel is unconfirmed | sends `HELLO` again |
//! | [`ASK_QUIET`] has passed since the last reply | sends `HELLO` again |
//! | there is no reply within [`SIGN_OF_LIFE`] | fails |
//! | the server refuses a channel | returns the refusal |
//! | the server is a replica | fails, and ends the [epoch](crate::wire::epoch) if it was none before |
//! | another connection has ended the epoch | fails |
//!
//! A silent subscription at a replica harms only a client that waits, and a waiting client writes
//! every second. Its old connections lead to the replica, which refuses the write and so ends the
//! epoch. A new connection in place of an old one makes the subscription send `HELLO` soon.
//!
//! A confirmation contains its channel, a refusal does not. Each command has one reply, and the
//! replies come in the order of the commands. So a refusal is about the oldest command without a
//! reply.

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

/// How long a reply is believed while a fail-over would matter.
const ASK_SOON: Duration = Duration::from_secs(3);
/// How long a reply is believed at most. Idle waiters should cost little more than their
/// heartbeats.
const ASK_QUIET: Duration = Duration::from_secs(15);
/// How long a reply may take.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// A wait below this is not left to the socket's time-out, which the system rounds to its ticks: the
/// waiters of a quorum spread over less than a millisecond, and would all come after those milliseconds.
const FINE_WAIT: Duration = Duration::from_millis(10);

/// What a subscription received.
#[derive(Debug)]
pub(crate) enum Event {
    Message { channel: Vec<u8>, payload: Vec<u8> },
    Subscribed { channel: Vec<u8> },
    Nothing,
}

/// A subscribed connection, for one thread.
pub(crate) trait Subscriber {
    /// Waits for the next event, for no longer than `wait`.
    fn next(&mut self, wait: Duration) -> Result<Event, Failure>;

    /// Subscribes to one more channel; [`Event::Subscribed`] confirms it.
    fn subscribe(&mut self, channel: &[u8]) -> Result<(), Failure>;

    /// Unsubscribes from a channel.
    fn unsubscribe(&mut self, channel: &[u8]) -> Result<(), Failure>;

    /// Takes the channel of the last refusal, if it is known.
    fn refused(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// The epoch of the messages that arrive here.
    fn epoch(&self) -> u64 {
        0
    }
}

/// A connection to a real server.
pub(crate) struct Subscription {
    inner: RawConnection,
    /// The epoch during which the master is there. `None` if the server's role does not matter.
    epoch: Option<Epoch>,
    /// When the server last replied.
    replied: Moment,
    /// Whether the server has replied as a master on this connection.
    was_master: bool,
    /// When the `HELLO` without a reply was sent.
    asked: Option<Moment>,
    /// How many connections the client had opened at the last `HELLO`.
    connections: u64,
    /// Whether a message has arrived since the last `HELLO`.
    heard: bool,
    /// The channels of the commands without a reply, in the order of sending. A channel may be in
    /// it several times.
    unanswered: VecDeque<Vec<u8>>,
    /// The channel of the last refusal.
    refused: Option<Vec<u8>>,
    /// The time-out of each read.
    timeout: Option<Duration>,
}

impl Subscription {
    /// Wraps a connection in RESP3, and subscribes to a first channel if the server is the right
    /// one. Each write may take `timeout`.
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
            timeout: None,
        };
        // The reply to `HELLO` is judged before the first `SUBSCRIBE`. On a replica the client
        // would otherwise have a confirmed channel for a moment, and join a queue whose grants it
        // may not hear (rule 12).
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
        self.inner.send_packed_command(Call::plain(command).packed()).map_err(Failure::Unknown)
    }

    /// Fails if another connection has noticed that the server has moved.
    fn check_place(&self) -> Result<(), Failure> {
        if let Some(epoch) = &self.epoch
            && epoch.is_over()
        {
            return Err(Failure::Unknown(not_a_master("the server is elsewhere by now")));
        }
        Ok(())
    }

    /// How long the last reply is believed.
    fn validity(&self) -> Duration {
        // Each of the three is a sign that somebody needs the messages of the right server now:
        // traffic on a channel, a pool that reconnects as it would after a fail-over, a waiter
        // whose channel is new.
        let connected = self.connections != self.connections_made();
        let matters = self.heard || connected || !self.unanswered.is_empty();
        if matters { ASK_SOON } else { ASK_QUIET }
    }

    fn connections_made(&self) -> u64 {
        self.epoch.as_ref().map_or(0, Epoch::connections)
    }

    fn ask(&mut self, now: Moment) -> Result<(), Failure> {
        // Reset before the reply. What happens while `HELLO` is on its way is not covered by it,
        // and makes the next one come soon.
        self.asked = Some(now);
        self.connections = self.connections_made();
        self.heard = false;
        // `HELLO`, because the handshake has shown that this user may run it. `ROLE` or `INFO` may
        // be denied. Repeating it with the same version changes nothing.
        self.send(&[b"HELLO", b"3"])
    }

    /// Reads the next event, if it comes within `wait`.
    fn read(&mut self, wait: Duration) -> Result<Event, Failure> {
        // A message that was read together with an earlier one is not seen here, and comes with the
        // next call, a few milliseconds later.
        if wait < FINE_WAIT && !self.inner.is_readable(wait) {
            return Ok(Event::Nothing);
        }
        let wait = wait.max(FINE_WAIT);
        // Nearly each wait is as long as the one before: to set the same time-out again is a system call for nothing.
        if self.timeout != Some(wait) {
            self.inner.set_read_timeout(Some(wait)).map_err(Failure::Unknown)?;
            self.timeout = Some(wait);
        }
        match self.inner.recv(wait) {
            Ok(Value::Push { kind, data }) => Ok(self.take_push(&kind, data)),
            Ok(reply) => self.take_reply(reply).map(|()| Event::Nothing),
            // Silence is no failure: a channel may be quiet for hours. `next` decides by `HELLO`
            // whether the connection is alive.
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
                // A waiter may leave a channel and another ask for it before the first confirmation
                // comes. Then this one belongs to the earlier subscription, and an `UNSUBSCRIBE`
                // may follow it on its way. Only the reply to the last command about a channel says
                // whether it is subscribed.
                if *kind == PushKind::Unsubscribe || self.unanswered.contains(&channel) {
                    return Event::Nothing;
                }
                Event::Subscribed { channel }
            }
            _ => Event::Nothing,
        }
    }

    fn take_reply(&mut self, reply: Value) -> Result<(), Failure> {
        // An error is not the reply to `HELLO`: this user may run it, and a busy server still does.
        // So it refuses the oldest command about a channel.
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
            // On a new connection a replica proves no fail-over: during one an address may lead to
            // either server for a while, and the pool may have reached the right one. Ending the
            // epoch would close those connections again and again.
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
        // One `HELLO` at a time. Messages do not prove that the server is the master, as a replica
        // forwards them, so only a reply ends the wait for it.
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

/// Whether a reply to `HELLO` comes from a replica. A sentinel reports no role.
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
        // No machine pauses for so long.
        let long = Duration::from_secs(600);
        let line = RawConnection::connect(&endpoint::parse(&url).unwrap(), long).unwrap();
        let mut subscription = Subscription::new(line, long, b"x", None).unwrap();
        subscription.unsubscribe(b"x").unwrap();
        for channel in [b"x", b"z", b"y"] {
            subscription.subscribe(channel).unwrap();
        }
        let mut outcomes = Vec::new();
        while !subscription.unanswered.is_empty() {
            match subscription.next(long) {
                Ok(Event::Subscribed { channel }) => outcomes.push((true, channel)),
                Err(Failure::Refused(_)) => outcomes.push((false, subscription.refused().unwrap())),
                other => assert!(matches!(other, Ok(Event::Nothing)), "{other:?}"),
            }
        }
        let expected = [(true, b"x"), (false, b"z"), (true, b"y")];
        assert_eq!(outcomes, expected.map(|(heard, channel)| (heard, channel.to_vec())));
    }
}
