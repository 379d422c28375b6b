//! The connection of the observer to the server of an operation.

use leasehold_support::{CommandStats, Server};
use redis::Connection;

/// What clients send and no script calls, besides scripts.
const SENT: [&str; 24] = [
    "acl|whoami",
    "asking",
    "auth",
    "client|setinfo",
    "client|setname",
    "command",
    "echo",
    "exec",
    "fcall",
    "hello",
    "info",
    "multi",
    "ping",
    "psubscribe",
    "role",
    "script|load",
    "select",
    "ssubscribe",
    "subscribe",
    "unsubscribe",
    "unwatch",
    "wait",
    "waitaof",
    "watch",
];

/// Counts the commands of a server, but for its own.
pub(crate) struct Gauge<'a> {
    server: &'a Server,
    connection: Connection,
    /// How often it has asked since the server began, by the kind of question.
    pings: u64,
    looks: u64,
}

impl<'a> Gauge<'a> {
    pub(crate) fn new(server: &'a Server) -> Gauge<'a> {
        server.reset_stats();
        Gauge { server, connection: server.connection(), pings: 0, looks: 0 }
    }

    /// Returns when the server has said all that it has to say to what was sent before.
    pub(crate) fn settle(&mut self) {
        // A server reads all sockets that have something to read, and then writes all replies. What was sent before the
        // first question is read together with it at the latest, and what follows is written before the second reply.
        for _ in 0..2 {
            let reply: String =
                redis::cmd("PING").query(&mut self.connection).expect("a reply to PING");
            assert_eq!(reply, "PONG");
            self.pings += 1;
        }
    }

    /// The same where so much was sent before that the server reads it in several pieces, and replies to each.
    pub(crate) fn settle_all(&mut self) {
        for _ in 0..4 {
            self.settle();
        }
    }

    /// The commands so far, without those of this connection.
    pub(crate) fn commands(&mut self) -> CommandStats {
        let mut commands = self.server.commands();
        let (pings, looks) = (self.pings, self.looks);
        let mut forget = |name: &str, own: u64| {
            if let Some(calls) = commands.calls.get_mut(name) {
                *calls = calls.saturating_sub(own);
            }
        };
        forget("ping", pings);
        forget("info", looks);
        // The one that resets the counts counts itself.
        commands.calls.remove("config|resetstat");
        self.looks += 1;
        commands
    }
}

/// How many of these commands clients have sent.
pub(crate) fn sent(commands: &CommandStats) -> u64 {
    commands.client_commands(&SENT)
}

/// How many of them run scripts.
pub(crate) fn scripts(commands: &CommandStats) -> u64 {
    commands.client_commands(&[])
}
