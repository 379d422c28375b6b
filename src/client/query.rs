//! One command of the user's own.

use crate::base::error::{Error, Result};
use crate::client::LockClient;
use crate::protocol::transaction::forbidden_command;
use crate::wire::{Cmd, Pipeline, Value};

impl LockClient {
    /// Sends one command to the server that has the lock of this name, and returns its reply.
    ///
    /// It is for questions about that server which no other call asks, such as `INFO` or `CONFIG GET`. The
    /// command goes where the locks go: over the client's connections, with its user and certificates, to the
    /// master that the sentinels name, or to the node of the name's slot. It is sent once, and never again.
    ///
    /// # Errors
    ///
    /// - [`is_config`](crate::Error::is_config) for a name that no lock can have, and for a command about
    ///   connections, subscriptions or transactions, such as `SELECT` or `MULTI`: the connection goes back to
    ///   the pool;
    /// - [`is_denied`](crate::Error::is_denied), [`is_refused`](crate::Error::is_refused) and others, as the
    ///   server replies;
    /// - [`is_unreachable`](crate::Error::is_unreachable), and
    ///   [`is_unknown_outcome`](crate::Error::is_unknown_outcome) without a reply.
    ///
    /// ```
    /// use leasehold::redis::{self, FromRedisValue as _};
    ///
    /// # fn demo(client: &leasehold::LockClient) -> Result<(), Box<dyn std::error::Error>> {
    /// let reply = client.query("orders:42", redis::cmd("INFO").arg("memory"))?;
    /// let memory = String::from_redis_value(reply)?;
    /// if !memory.contains("maxmemory_policy:noeviction") {
    ///     println!("this server may evict locks");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn query(&self, name: impl AsRef<[u8]>, command: &Cmd) -> Result<Value> {
        let name = self.plain_name(name.as_ref())?;
        let mut pipeline = Pipeline::new();
        pipeline.add_command(command.clone());
        if let Some(word) = forbidden_command(&pipeline) {
            return Err(Error::config(
                "query",
                format_args!("the command \"{}\"", word.escape_ascii()),
                "a command that leaves the connection as it is",
            ));
        }
        let reply = self
            .engine()
            .ask(|it, deadline| it.server()?.query(name.as_bytes(), command, deadline));
        reply.map_err(Error::from)
    }
}
