//! The messages that wake waiters, and listening for them.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::base::id::Identity;
use crate::wire::failure::Failure;
use crate::wire::script::Call;
use crate::wire::subscription::{Event, Subscription};

/// Makes a listener look at what it was asked to do.
pub(crate) const NUDGE: &[u8] = b"n";

/// The channel of one client.
pub(crate) fn client_channel(identity: &Identity) -> Vec<u8> {
    format!("leasehold:{}", identity.id()).into_bytes()
}

/// The command that makes this client's listener look at what it was asked to do.
pub(crate) fn nudge(identity: &Identity) -> Call {
    Call::plain(&[b"PUBLISH", &client_channel(identity), NUDGE])
}

/// What a message says. All of them are hints but the grant, which is believed for what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// An attempt of ours was made the owner.
    Grant { name: Vec<u8>, grant: GrantMessage },
    /// An attempt of ours was taken for dead, or a lock was released: ask again.
    Retry { name: Vec<u8> },
    /// Somebody waits for a lock that an attempt of ours owns.
    Wanted { name: Vec<u8>, number: u64, waiters: u32 },
    /// Somebody asks the holder to let go.
    Request { name: Vec<u8>, number: u64 },
    /// An attempt of ours was taken its lock from, or so it is said: ask about it.
    Evicted { name: Vec<u8>, number: u64 },
    /// Something was released on the channel of one name.
    Released { channel: Vec<u8> },
    /// The client's own channel is listened to.
    Live,
    /// Something may have been said about names in these slots of a cluster, and to nobody.
    Missed { slots: Vec<RangeInclusive<u16>> },
    /// A channel of one name is listened to.
    Listening { channel: Vec<u8> },
    /// Nothing, or nothing of ours.
    Nothing,
}

/// A grant as its message tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrantMessage {
    pub(crate) number: u64,
    pub(crate) token: u64,
    /// The server's time in microseconds.
    pub(crate) micros: u64,
    pub(crate) window: Duration,
    pub(crate) waiters: u32,
    /// In which epoch of the server it was heard.
    pub(crate) epoch: u64,
}

/// Where a client hears what wakes it.
pub(crate) trait Listener: Send {
    /// Waits for the next message, at most this long.
    fn next(&mut self, wait: Duration) -> Result<Wake, Failure>;

    /// Listens to one more channel; [`Wake::Listening`] confirms it.
    fn add(&mut self, channel: &[u8]) -> Result<(), Failure>;

    /// Listens to a channel no longer.
    fn remove(&mut self, channel: &[u8]) -> Result<(), Failure>;

    /// Which channel the last refusal was about, once, where that is known.
    fn refused(&mut self) -> Option<Vec<u8>> {
        None
    }
}

/// A listener on one server.
pub(crate) struct Subscribed {
    subscription: Subscription,
    own: Vec<u8>,
}

impl Subscribed {
    pub(crate) fn new(subscription: Subscription, own: Vec<u8>) -> Subscribed {
        Subscribed { subscription, own }
    }
}

impl Listener for Subscribed {
    fn next(&mut self, wait: Duration) -> Result<Wake, Failure> {
        let mut wake = understand(self.subscription.next(wait)?, &self.own);
        if let Wake::Grant { grant, .. } = &mut wake {
            grant.epoch = self.subscription.epoch();
        }
        Ok(wake)
    }

    fn add(&mut self, channel: &[u8]) -> Result<(), Failure> {
        self.subscription.subscribe(channel)
    }

    fn remove(&mut self, channel: &[u8]) -> Result<(), Failure> {
        self.subscription.unsubscribe(channel)
    }

    fn refused(&mut self) -> Option<Vec<u8>> {
        self.subscription.refused().filter(|channel| *channel != self.own)
    }
}

impl fmt::Debug for Subscribed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscribed").finish_non_exhaustive()
    }
}

/// What was heard means to the client whose own channel this is.
pub(crate) fn understand(event: Event, own: &[u8]) -> Wake {
    match event {
        Event::Message { channel, payload } if channel == own => read(&payload),
        Event::Message { channel, .. } => Wake::Released { channel },
        Event::Subscribed { channel } if channel == own => Wake::Live,
        Event::Subscribed { channel } => Wake::Listening { channel },
        Event::Nothing => Wake::Nothing,
    }
}

/// What a message on the client's own channel says.
pub(crate) fn read(payload: &[u8]) -> Wake {
    read_inner(payload).unwrap_or(Wake::Nothing)
}

fn read_inner(payload: &[u8]) -> Option<Wake> {
    let mut fields = Fields(payload);
    match fields.next()? {
        b"g" => {
            let grant = GrantMessage {
                number: fields.hexadecimal()?,
                token: fields.number()?,
                micros: fields.number()?,
                window: Duration::from_millis(fields.number()?),
                waiters: u32::try_from(fields.number()?).ok()?,
                epoch: 0,
            };
            Some(Wake::Grant { name: fields.rest(), grant })
        }
        b"r" => {
            fields.hexadecimal()?;
            Some(Wake::Retry { name: fields.rest() })
        }
        b"w" => {
            let number = fields.hexadecimal()?;
            let waiters = u32::try_from(fields.number()?).ok()?;
            Some(Wake::Wanted { name: fields.rest(), number, waiters })
        }
        b"p" => {
            let number = fields.hexadecimal()?;
            fields.number()?;
            Some(Wake::Request { name: fields.rest(), number })
        }
        b"x" => {
            let number = fields.hexadecimal()?;
            Some(Wake::Evicted { name: fields.rest(), number })
        }
        // Of a newer version.
        _ => None,
    }
}

/// Fields with a space after each; the last, a name, is the rest and may contain anything.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == b' ')?;
        let field = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Some(field)
    }

    fn number(&mut self) -> Option<u64> {
        std::str::from_utf8(self.next()?).ok()?.parse().ok()
    }

    fn hexadecimal(&mut self) -> Option<u64> {
        u64::from_str_radix(std::str::from_utf8(self.next()?).ok()?, 16).ok()
    }

    fn rest(&self) -> Vec<u8> {
        self.0.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_or_ignored() {
        let grant = GrantMessage {
            number: 31,
            token: 1_795_248_287_440_245,
            micros: 1_795_248_287_440_246,
            window: Duration::from_millis(3000),
            waiters: 2,
            epoch: 0,
        };
        assert_eq!(
            read(b"g 1f 1795248287440245 1795248287440246 3000 2 a name\xff"),
            Wake::Grant { name: b"a name\xff".to_vec(), grant }
        );
        assert_eq!(read(b"r 1f x"), Wake::Retry { name: b"x".to_vec() });
        assert_eq!(
            read(b"w 1 7 x y"),
            Wake::Wanted { name: b"x y".to_vec(), number: 1, waiters: 7 }
        );
        assert_eq!(read(b"p a 7 x"), Wake::Request { name: b"x".to_vec(), number: 10 });
        assert_eq!(read(b"x a y z"), Wake::Evicted { name: b"y z".to_vec(), number: 10 });
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
        ] {
            assert_eq!(read(odd.as_bytes()), Wake::Nothing, "{odd}");
        }
    }
}
