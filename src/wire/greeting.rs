//! What a connection says first: who it is, and which database it is about.
//!
//! redis-rs would say it too. But of what a server answers to `AUTH` it keeps nothing, and of what it
//! answers to `SELECT` not the code: a server that is full, or busy, would be told as one that denies
//! the user.

use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisConnectionInfo, RedisError};

use crate::base::time::Clock;
use crate::wire::endpoint::Endpoint;
use crate::wire::failure::is_max_clients;
use crate::wire::fault::silence;
use crate::wire::line::Line;

/// Makes a connection that is known to its server, all within this time but for the look-up of a name
/// and for each address that it has. No time-outs are set on it.
pub(crate) fn connect(
    to: &Endpoint,
    clock: &dyn Clock,
    most: Duration,
) -> Result<Line, RedisError> {
    let deadline = clock.now().after(most);
    let asked = to.redis_settings();
    let settings = RedisConnectionInfo::default().set_skip_set_lib_name();
    let mut settings = settings.set_protocol(asked.protocol());
    // HELLO says who it is as well, and what is answered to it is kept.
    let greets = asked.protocol().supports_resp3();
    if greets {
        if let Some(user) = asked.username() {
            settings = settings.set_username(user);
        }
        if let Some(password) = asked.password() {
            settings = settings.set_password(password);
        }
    }
    let connected = Line::open(to, &settings, most);
    let secret = asked.password().is_some();
    let mut connection = connected.map_err(|e| if secret { without_text(e) } else { e })?;
    let mut say = |command: &Cmd| {
        let left = deadline.since(clock.now());
        if left.is_zero() {
            return Err(silence());
        }
        connection.set_read_timeout(Some(left))?;
        connection.set_write_timeout(Some(left))?;
        command.exec(&mut connection)
    };
    if !greets && let Some(password) = asked.password() {
        let mut auth = redis::cmd("AUTH");
        if let Some(user) = asked.username() {
            auth.arg(user);
        }
        say(auth.arg(password)).map_err(without_text)?;
    }
    if asked.db() != 0 {
        say(redis::cmd("SELECT").arg(asked.db()))?;
    }
    connection.set_read_timeout(None)?;
    connection.set_write_timeout(None)?;
    Ok(connection)
}

/// A server that does not know `AUTH` or `HELLO` repeats what was said to it, the password too. A code
/// tells enough; without one it is a refusal of the user all the same.
fn without_text(error: RedisError) -> RedisError {
    if error.code() == Some("ERR") && !is_max_clients(&error) {
        RedisError::from((ErrorKind::AuthenticationFailed, "AUTH or HELLO was refused"))
    } else {
        error
    }
}
