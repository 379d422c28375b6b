//! Where a test takes place: servers that it shares with the other tests of its topology, under names
//! that no other test uses.

use std::time::Duration;

use leasehold::redis::FromRedisValue;
use leasehold::{Lease, LockOptions, Mutex};
pub use leasehold_support::until;

use crate::{Builder, Client, Server, Topology};

/// The longest that a test waits for what must come.
pub const SOON: Duration = Duration::from_secs(15);

/// The tail of leases that have one.
pub const TAIL: Duration = Duration::from_secs(60);

/// The client of a topology.
pub type ClientOf<T> = <<T as Topology>::Builder as Builder>::Client;

/// A topology, and the name of a test.
#[derive(Debug)]
pub struct Scene<'a, T> {
    topology: &'a T,
    test: &'static str,
}

impl<'a, T: Topology> Scene<'a, T> {
    /// Names a test of a topology.
    pub fn new(topology: &'a T, test: &'static str) -> Scene<'a, T> {
        Scene { topology, test }
    }

    /// The test's name.
    pub fn test(&self) -> &'static str {
        self.test
    }

    /// A name that no other test has.
    pub fn name(&self, end: &str) -> Vec<u8> {
        format!("{}-{end}", self.test).into_bytes()
    }

    /// As [`Topology::address`].
    pub fn address(&self) -> String {
        self.topology.address()
    }

    /// As [`Topology::servers`].
    pub fn servers(&self) -> Vec<&'a Server> {
        self.topology.servers()
    }

    /// A builder of clients that bear a loaded machine.
    pub fn builder(&self) -> T::Builder {
        T::builder(&self.address()).timeout(ms(3_000)).give_up_after(SOON * 2)
    }

    /// A client that is connected.
    ///
    /// # Panics
    ///
    /// If it cannot be.
    pub fn client(&self) -> ClientOf<T> {
        self.builder().connect_now(true).build().expect("a client")
    }

    /// The test's lock, with a client of its own.
    ///
    /// # Panics
    ///
    /// If it cannot be connected.
    pub fn lock(&self) -> Mutex {
        self.lock_with(LockOptions::new())
    }

    /// The same with options.
    ///
    /// # Panics
    ///
    /// As there, and if the options are not allowed.
    pub fn lock_with(&self, options: LockOptions) -> Mutex {
        self.client().mutex_with(&self.name("x"), options).expect("a lock")
    }

    /// Sends a bare command to each server that keeps this name.
    ///
    /// # Panics
    ///
    /// If one of them does not answer it.
    #[track_caller]
    pub fn ask<A: FromRedisValue>(&self, name: &[u8], words: &[&[u8]]) -> Vec<A> {
        let ask = |server: &Server| {
            let mut command = leasehold::redis::Cmd::new();
            for word in words {
                command.arg(*word);
            }
            command.query(&mut server.connection())
        };
        let answers = self.topology.keepers(name).into_iter().map(ask);
        answers.collect::<Result<_, _>>().expect("the servers answer")
    }

    /// On how many servers there is a key of this name.
    ///
    /// # Panics
    ///
    /// If one of them does not answer.
    #[track_caller]
    pub fn found(&self, name: &[u8]) -> usize {
        self.ask::<usize>(name, &[b"EXISTS", name]).into_iter().sum()
    }

    /// Deletes a key on all servers that keep it.
    ///
    /// # Panics
    ///
    /// If one of them does not answer.
    #[track_caller]
    pub fn delete(&self, name: &[u8]) {
        self.ask::<()>(name, &[b"DEL", name]);
    }

    /// How many clients queue for this name.
    ///
    /// # Panics
    ///
    /// If a server does not answer.
    #[track_caller]
    pub fn queueing(&self, name: &[u8]) -> u64 {
        let queue = [b"{", name, b"}:queue"].concat();
        self.ask::<u64>(name, &[b"ZCARD", &queue]).into_iter().max().unwrap_or(0)
    }
}

/// So many milliseconds.
pub const fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

/// Options with a lease of so many milliseconds that is renewed.
pub fn renewed(ttl: u64) -> LockOptions {
    LockOptions::new().lease(Lease::renewed(ms(ttl)))
}

/// Options with a lease of so many milliseconds, with a tail that outlasts every test.
pub fn tailed(ttl: u64) -> LockOptions {
    LockOptions::new().lease(Lease::renewed(ms(ttl)).recoverable_for(TAIL))
}

/// Options with a lease of so many milliseconds that is not renewed.
pub fn fixed(ttl: u64) -> LockOptions {
    LockOptions::new().lease(Lease::fixed(ms(ttl)))
}
