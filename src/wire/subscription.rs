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
//! | it connects | asks, and listens once the server says that it is no replica |
//! | [`ASK_SOON`] has passed since the last reply, and since its question a message was heard or the client made another connection | asks again |
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
//! # Replies
//!
//! redis-rs counts each time-out of `recv_response` as a reply that comes late, and skips as many replies
//! as it has counted, but no message. `get_message` counts no time-out, but drops every reply and every
//! confirmation. So `get_message` reads while nothing is due, and `recv_response` while a reply to `HELLO`
//! or the confirmation of a channel is due.
//!
//! If such a read times out, the driver will skip one reply. The listener then sends `HELLO` once more. So
//! one more reply is on its way than the driver will skip, and the one that it returns is the reply to the
//! last `HELLO`. Replies come in order: a channel that was asked for before that `HELLO` and is still
//! unanswered was refused, and the driver skipped the refusal. The listener asks for that channel again, and
//! waits longer now that it knows how long a reply takes. The driver then returns one reply more, which says
//! the same of the server, a moment earlier.

use std::fmt;
use std::io;
use std::time::Duration;

use redis::{PushKind, RedisError, Value};

use crate::base::time::{BootClock, Clock, Moment};
use crate::wire::epoch::Epoch;
use crate::wire::failure::{Failure, not_a_master};
use crate::wire::fault::io_kind;
use crate::wire::line::Line;
use crate::wire::script::Call;
use crate::wire::unanswered::{SUBSCRIBE, UNSUBSCRIBE, Unanswered};

/// How long a reply counts where a move would matter.
const ASK_SOON: Duration = Duration::from_secs(3);
/// How long a reply counts at most. Idle waiters are to cost little more than their heartbeats.
const ASK_QUIET: Duration = Duration::from_secs(15);
/// How long a reply may take.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// How long a read for a reply waits at least. It is longer than a usual reply takes, since each time-out
/// costs one more question. Meanwhile the listener does not notice that the epoch is over.
const REPLY: Duration = Duration::from_secs(1);
/// How long a read waits at most because of earlier replies.
const SLOW_REPLY: Duration = Duration::from_secs(4);

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
    inner: Line,
    /// The time during which the master is there. `None`: the server is listened to whatever its role.
    epoch: Option<Epoch>,
    timeout: Option<Duration>,
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
    /// How long a read for a reply waits: twice as long as the last reply took.
    patience: Duration,
    /// The commands about channels that are neither confirmed nor refused; the question is `HELLO`.
    unanswered: Unanswered,
    /// Which channel the last refusal was about.
    refused: Option<Vec<u8>>,
}

impl Subscription {
    /// Takes over a connection that speaks RESP3, and asks for a first channel once the server has said
    /// what it is. That, and each command, may take this long.
    pub(crate) fn new(
        inner: Line,
        patience: Duration,
        channel: &[u8],
        epoch: Option<Epoch>,
    ) -> Result<Subscription, Failure> {
        inner.set_write_timeout(Some(patience)).map_err(Failure::Unknown)?;
        let now = BootClock.now();
        let mut subscription = Subscription {
            inner,
            epoch,
            timeout: None,
            replied: now,
            was_master: false,
            asked: None,
            connections: 0,
            heard: false,
            patience: REPLY,
            unanswered: Unanswered::default(),
            refused: None,
        };
        subscription.ask(now)?;
        while subscription.asked.is_some() {
            let left = patience.saturating_sub(BootClock.now().since(now));
            if left.is_zero() {
                return Err(Failure::silent());
            }
            subscription.check_place()?;
            subscription.read_reply(left)?;
        }
        subscription.subscribe(channel)?;
        Ok(subscription)
    }

    fn send_about(&mut self, verb: &'static [u8], channel: &[u8]) -> Result<(), Failure> {
        let packed = self.unanswered.add(verb, channel);
        self.send(&packed)
    }

    fn send(&mut self, packed: &[u8]) -> Result<(), Failure> {
        self.inner.send_packed_command(packed).map_err(Failure::Unknown)
    }

    /// Fails if this is the place to listen no longer, as another connection has seen.
    fn check_place(&self) -> Result<(), Failure> {
        if let Some(epoch) = &self.epoch
            && epoch.is_over()
            && !mutated!("demotion-leaves-the-listener")
        {
            return Err(Failure::Unknown(not_a_master("the server is elsewhere by now")));
        }
        Ok(())
    }

    /// How long the last reply counts.
    fn validity(&self) -> Duration {
        let connected = self.connections != self.connections_made();
        if self.heard || connected { ASK_SOON } else { ASK_QUIET }
    }

    fn connections_made(&self) -> u64 {
        self.epoch.as_ref().map_or(0, Epoch::connections)
    }

    fn ask(&mut self, now: Moment) -> Result<(), Failure> {
        self.asked = Some(now);
        self.connections = self.connections_made();
        self.heard = false;
        self.send_hello(1)
    }

    fn send_hello(&mut self, times: usize) -> Result<(), Failure> {
        self.unanswered.ask();
        // The connection began with this command. The server allows it again, and it changes nothing.
        self.send(&Call::plain(&[b"HELLO", b"3"]).pack().repeat(times))
    }

    /// Reads while no reply is due. A time-out has no consequence.
    fn read_message(&mut self, wait: Duration) -> Result<Event, Failure> {
        self.set_timeout(wait)?;
        match self.inner.recv_message() {
            Ok((channel, payload)) => {
                self.heard = true;
                Ok(Event::Message { channel, payload })
            }
            Err(error) if is_timeout(&error) => Ok(Event::Nothing),
            Err(error) => Err(Failure::Unknown(error)),
        }
    }

    /// Reads while a reply or a confirmation is due. If the read times out, the driver will skip a reply.
    fn read_reply(&mut self, wait: Duration) -> Result<Event, Failure> {
        self.set_timeout(wait)?;
        match self.inner.recv_response() {
            Ok(Value::Push { kind, data }) => Ok(self.take_push(&kind, data)),
            Ok(reply) => self.take_reply(reply).map(|()| Event::Nothing),
            Err(error) if is_timeout(&error) => {
                if self.asked.is_some() {
                    self.send_hello(1)?;
                } else {
                    self.asked = Some(BootClock.now());
                    self.send_hello(2)?;
                }
                Ok(Event::Nothing)
            }
            Err(error) if error.is_io_error() || error.code().is_none() => {
                Err(Failure::Unknown(error))
            }
            Err(error) => Err(Failure::Refused(error)),
        }
    }

    fn set_timeout(&mut self, wait: Duration) -> Result<(), Failure> {
        if self.timeout != Some(wait) {
            self.inner.set_read_timeout(Some(wait)).map_err(Failure::Unknown)?;
            self.timeout = Some(wait);
        }
        Ok(())
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
            (PushKind::Subscribe, Some(channel), _)
                if self.unanswered.confirm(SUBSCRIBE, &channel) =>
            {
                Event::Subscribed { channel }
            }
            (PushKind::Unsubscribe, Some(channel), _) => {
                self.unanswered.confirm(UNSUBSCRIBE, &channel);
                Event::Nothing
            }
            _ => Event::Nothing,
        }
    }

    fn take_reply(&mut self, reply: Value) -> Result<(), Failure> {
        let reply = reply.extract_error().map_err(|refusal| {
            // What was sent before is confirmed: replies and confirmations come in order.
            self.refused = self.unanswered.refuse();
            Failure::Refused(refusal)
        })?;
        let Value::Map(fields) = reply else {
            return Err(Failure::Unknown((redis::ErrorKind::Parse, "no reply to HELLO").into()));
        };
        let now = BootClock.now();
        if let Some(asked) = self.asked.take() {
            self.patience = (now.since(asked) * 2).clamp(REPLY, SLOW_REPLY);
        }
        self.replied = now;
        if let Some(epoch) = &self.epoch
            && is_of_replica(&fields)
            && !mutated!("replica-not-noticed-by-the-listener")
        {
            // A new connection shows no move: an address may lead to several servers for a while, and the
            // other connections may be at the right one.
            if self.was_master {
                epoch.end();
            }
            return Err(Failure::Unknown(not_a_master("the server is a replica")));
        }
        self.was_master = true;
        self.repeat_refused()
    }

    /// Repeats the commands whose refusal the driver has skipped.
    fn repeat_refused(&mut self) -> Result<(), Failure> {
        let packed = self.unanswered.answer();
        if packed.is_empty() { Ok(()) } else { self.send(&packed) }
    }
}

impl Subscriber for Subscription {
    /// While a reply is due it waits at least [`REPLY`] for it, and longer the longer replies take: a read
    /// that does not time out costs no question.
    fn next(&mut self, wait: Duration) -> Result<Event, Failure> {
        self.check_place()?;
        let now = BootClock.now();
        if self.asked.is_none() && now.since(self.replied) >= self.validity() {
            self.ask(now)?;
        }
        let wait_for_reply = wait.max(self.patience);
        match self.asked {
            Some(asked) => {
                let awaited = now.since(asked);
                if awaited >= SIGN_OF_LIFE {
                    return Err(Failure::silent());
                }
                // Each read waits longer than the one before. Otherwise a reply could come just after
                // each time-out, for as long as replies take.
                self.read_reply((wait_for_reply + awaited).min(SIGN_OF_LIFE - awaited))
            }
            None if !self.unanswered.is_empty() => self.read_reply(wait_for_reply),
            None if mutated!("silence-counted-as-late-replies") => self.read_reply(wait),
            None => self.read_message(wait),
        }
    }

    fn subscribe(&mut self, channel: &[u8]) -> Result<(), Failure> {
        self.send_about(SUBSCRIBE, channel)
    }

    fn unsubscribe(&mut self, channel: &[u8]) -> Result<(), Failure> {
        self.send_about(UNSUBSCRIBE, channel)
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
