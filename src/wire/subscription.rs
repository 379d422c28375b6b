//! A connection that listens to channels.
//!
//! It speaks RESP3, in which messages are told apart from answers. redis-rs counts a time-out as
//! an answer that will come late and skips the next one, but never a message; so all that is
//! waited for here comes as a message, the sign of life too.

use std::fmt;
use std::io;
use std::time::Duration;

use redis::{PushKind, Value};

use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::base::time::{BootClock, Clock, Moment};
use crate::wire::failure::{Failure, io_kind};
use crate::wire::script::Call;

/// After this much silence who listens asks for a sign of life…
pub(crate) const SILENCE: Duration = Duration::from_secs(10);
/// …which must come within this time.
pub(crate) const SIGN_OF_LIFE: Duration = Duration::from_secs(3);

/// What was heard.
#[derive(Debug)]
pub(crate) enum Event {
    Message { channel: Vec<u8>, payload: Vec<u8> },
    Subscribed { channel: Vec<u8> },
    Nothing,
}

/// A time during which the master is in one place.
#[derive(Debug)]
pub(crate) struct Epoch(Option<(Arc<AtomicU64>, u64)>);

impl Epoch {
    /// That which lasts until the number changes.
    pub(crate) fn now(number: &Arc<AtomicU64>) -> Epoch {
        Epoch(Some((Arc::clone(number), number.load(Ordering::SeqCst))))
    }

    /// That which does not end.
    pub(crate) fn never() -> Epoch {
        Epoch(None)
    }

    fn is_over(&self) -> bool {
        self.0.as_ref().is_some_and(|(number, then)| number.load(Ordering::SeqCst) != *then)
    }
}

/// A connection for one thread that listens.
pub(crate) struct Subscription {
    inner: redis::Connection,
    epoch: Epoch,
    timeout: Option<Duration>,
    /// When anything was last read.
    read: Moment,
}

impl Subscription {
    /// Takes over a connection that speaks RESP3, and asks for a first channel.
    pub(crate) fn new(
        inner: redis::Connection,
        write_timeout: Duration,
        channel: &[u8],
        epoch: Epoch,
    ) -> Result<Subscription, Failure> {
        inner.set_write_timeout(Some(write_timeout)).map_err(Failure::Unknown)?;
        let mut subscription = Subscription { inner, epoch, timeout: None, read: BootClock.now() };
        subscription.subscribe(channel)?;
        Ok(subscription)
    }

    pub(crate) fn subscribe(&mut self, channel: &[u8]) -> Result<(), Failure> {
        self.send(b"SUBSCRIBE", channel)
    }

    pub(crate) fn unsubscribe(&mut self, channel: &[u8]) -> Result<(), Failure> {
        self.send(b"UNSUBSCRIBE", channel)
    }

    fn send(&mut self, verb: &[u8], channel: &[u8]) -> Result<(), Failure> {
        let packed = Call::plain(&[verb, channel]).pack();
        self.inner.send_packed_command(&packed).map_err(Failure::Unknown)
    }

    /// For how long nothing was read, be it only an acknowledgement.
    pub(crate) fn silence(&self) -> Duration {
        BootClock.now().since(self.read)
    }

    /// Waits for something to hear, at most this long.
    pub(crate) fn next(&mut self, wait: Duration) -> Result<Event, Failure> {
        if self.epoch.is_over() {
            return Err(Failure::Unknown(io::Error::from(io::ErrorKind::ConnectionReset).into()));
        }
        if self.timeout != Some(wait) {
            self.inner.set_read_timeout(Some(wait)).map_err(Failure::Unknown)?;
            self.timeout = Some(wait);
        }
        let response = self.inner.recv_response();
        if response.is_ok() {
            self.read = BootClock.now();
        }
        match response {
            Ok(Value::Push { kind, data }) => Ok(event(&kind, data)),
            Ok(value) => value.extract_error().map(|_| Event::Nothing).map_err(Failure::Refused),
            Err(error)
                if error.is_timeout() || io_kind(&error) == Some(io::ErrorKind::Interrupted) =>
            {
                Ok(Event::Nothing)
            }
            Err(error) if error.is_io_error() || error.code().is_none() => {
                Err(Failure::Unknown(error))
            }
            Err(error) => Err(Failure::Refused(error)),
        }
    }
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
