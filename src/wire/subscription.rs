//! A connection that listens to channels.
//!
//! It speaks RESP3, in which messages are told apart from replies, and asks for one reply only: what
//! `HELLO` reports. That is a sign of life, and reports whether the server is a replica, to any user.
//!
//! A replica passes on what its master publishes, to listeners that the master does not count, late, and
//! only while it follows that master. Where an address leads to another server by now, the connections
//! of a pool find that out as soon as they are refused a write, but nothing refuses a listener. So it asks,
//! whether it hears messages or not:
//!
//! | when | it |
//! | --- | --- |
//! | it connects | asks, and listens once the server says that it is no replica |
//! | [`ASK_EVERY`] has passed since the last reply | asks again |
//! | there is no reply within [`SIGN_OF_LIFE`] | fails |
//! | the server is a replica | fails, and ends the [epoch](crate::wire::epoch) if it was none before |
//! | the epoch is over, as another connection saw | fails |
//!
//! redis-rs takes each time-out of a read for a reply that comes late, and skips that many of the next
//! replies, but no message. Every reply here is one to the same question, so that it does not matter
//! which are skipped, only how many: [`owed`](Subscription::owed) counts that, and for each reply that is
//! to be skipped the question is sent once more. Where a reply takes longer than a read, more reads time
//! out before it comes, so each time-out adds more questions than it costs replies.

use std::fmt;
use std::io;
use std::time::Duration;

use redis::{PushKind, Value};

use crate::base::time::{BootClock, Clock, Moment};
use crate::wire::epoch::Epoch;
use crate::wire::failure::{Failure, io_kind, not_a_master};
use crate::wire::line::Line;
use crate::wire::script::Call;

/// How long a reply of the server counts.
const ASK_EVERY: Duration = Duration::from_secs(3);
/// How long a reply may take.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// What was heard.
#[derive(Debug)]
pub(crate) enum Event {
    Message { channel: Vec<u8>, payload: Vec<u8> },
    Subscribed { channel: Vec<u8> },
    Nothing,
}

/// What is listened to.
#[derive(Debug)]
pub(crate) enum Place {
    /// The master, for as long as it is where it was in this epoch.
    Master(Epoch),
    /// A server, whatever its role.
    Any,
}

/// A connection for one thread that listens.
pub(crate) struct Subscription {
    inner: Line,
    place: Place,
    timeout: Option<Duration>,
    /// When the server last replied.
    replied: Moment,
    /// Whether a reply on this connection was no replica's.
    was_master: bool,
    /// Since when a reply is awaited, and how many reads have timed out since.
    asked: Option<(Moment, i64)>,
    /// How many replies are due, less those that the driver skips. There may be more: the driver may have
    /// skipped a refusal in the place of a reply.
    owed: i64,
}

impl Subscription {
    /// Takes over a connection that speaks RESP3, and asks for a first channel once the server has said
    /// what it is. That, and each command, may take this long.
    pub(crate) fn new(
        inner: Line,
        patience: Duration,
        channel: &[u8],
        place: Place,
    ) -> Result<Subscription, Failure> {
        inner.set_write_timeout(Some(patience)).map_err(Failure::Unknown)?;
        let now = BootClock.now();
        let mut subscription = Subscription {
            inner,
            place,
            timeout: None,
            replied: now,
            was_master: false,
            asked: None,
            owed: 0,
        };
        subscription.ask(now, 0)?;
        while subscription.asked.is_some() {
            if BootClock.now().since(now) >= patience {
                return Err(Failure::silent());
            }
            subscription.next(patience)?;
        }
        subscription.subscribe(channel)?;
        Ok(subscription)
    }

    pub(crate) fn subscribe(&mut self, channel: &[u8]) -> Result<(), Failure> {
        self.send(&Call::plain(&[b"SUBSCRIBE", channel]).pack())
    }

    pub(crate) fn unsubscribe(&mut self, channel: &[u8]) -> Result<(), Failure> {
        self.send(&Call::plain(&[b"UNSUBSCRIBE", channel]).pack())
    }

    fn send(&mut self, packed: &[u8]) -> Result<(), Failure> {
        self.inner.send_packed_command(packed).map_err(Failure::Unknown)
    }

    /// The number of the epoch to which belongs what is heard here.
    pub(crate) fn epoch(&self) -> u64 {
        match &self.place {
            Place::Master(epoch) => epoch.number(),
            Place::Any => 0,
        }
    }

    /// Waits for something to hear, at most this long.
    pub(crate) fn next(&mut self, wait: Duration) -> Result<Event, Failure> {
        self.look()?;
        if self.timeout != Some(wait) {
            self.inner.set_read_timeout(Some(wait)).map_err(Failure::Unknown)?;
            self.timeout = Some(wait);
        }
        match self.inner.recv_response() {
            Ok(Value::Push { kind, data }) => Ok(event(&kind, data)),
            Ok(reply) => self.hear(reply).map(|()| Event::Nothing),
            Err(error)
                if error.is_timeout() || io_kind(&error) == Some(io::ErrorKind::Interrupted) =>
            {
                self.owed -= 1;
                if let Some((_, missed)) = &mut self.asked {
                    *missed += 1;
                }
                Ok(Event::Nothing)
            }
            Err(error) if error.is_io_error() || error.code().is_none() => {
                Err(Failure::Unknown(error))
            }
            Err(error) => Err(Failure::Refused(error)),
        }
    }

    /// Whether this is still the place to listen; asks the server when it is time to.
    fn look(&mut self) -> Result<(), Failure> {
        if let Place::Master(epoch) = &self.place
            && epoch.is_over()
            && !mutated!("demotion-leaves-the-listener")
        {
            return Err(Failure::Unknown(not_a_master("the server is elsewhere by now")));
        }
        let now = BootClock.now();
        match self.asked {
            Some((asked, _)) if now.since(asked) >= SIGN_OF_LIFE => Err(Failure::silent()),
            Some((asked, missed)) => self.ask(asked, missed),
            None if now.since(self.replied) >= ASK_EVERY => {
                // Replies to earlier questions may still come, and say nothing new.
                self.owed = self.owed.min(0);
                self.ask(now, 0)
            }
            None => Ok(()),
        }
    }

    /// Asks so often that the driver does not skip all replies, even if as many reads time out again as
    /// have since it first asked.
    fn ask(&mut self, since: Moment, missed: i64) -> Result<(), Failure> {
        self.asked = Some((since, missed));
        let wanted = 1 + 2 * missed;
        let missing = usize::try_from(wanted - self.owed).unwrap_or(0);
        if missing == 0 {
            return Ok(());
        }
        self.owed = wanted;
        // What the connection began with is allowed again, and changes nothing.
        self.send(&Call::plain(&[b"HELLO", b"3"]).pack().repeat(missing))
    }

    /// Takes a reply, of which the driver has none left to skip.
    fn hear(&mut self, reply: Value) -> Result<(), Failure> {
        self.owed = self.owed.max(0);
        // A channel is refused so.
        let reply = reply.extract_error().map_err(Failure::Refused)?;
        self.owed = (self.owed - 1).max(0);
        let Value::Map(fields) = reply else {
            return Err(Failure::Unknown((redis::ErrorKind::Parse, "no reply to HELLO").into()));
        };
        (self.replied, self.asked) = (BootClock.now(), None);
        if let Place::Master(epoch) = &self.place
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
        Ok(())
    }
}

/// Whether a reply to `HELLO` is a replica's. A sentinel reports no role.
fn is_of_replica(fields: &[(Value, Value)]) -> bool {
    let text = |value: &Value, text: &str| match value {
        Value::BulkString(bytes) => bytes == text.as_bytes(),
        Value::SimpleString(string) => string == text,
        _ => false,
    };
    fields.iter().any(|(field, value)| {
        text(field, "role") && (text(value, "replica") || text(value, "slave"))
    })
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

fn event(kind: &PushKind, data: Vec<Value>) -> Event {
    let mut parts = data.into_iter().map(|part| match part {
        Value::BulkString(bytes) => bytes,
        Value::SimpleString(text) => text.into_bytes(),
        _ => Vec::new(),
    });
    match (kind, parts.next(), parts.next()) {
        (PushKind::Message, Some(channel), Some(payload)) => Event::Message { channel, payload },
        (PushKind::Subscribe, Some(channel), _) => Event::Subscribed { channel },
        _ => Event::Nothing,
    }
}
