//! Questions to one server. Each may be denied, and then says so.

use std::collections::HashMap;

use leasehold::LockClient;
use leasehold::redis::{self, Cmd, FromRedisValue};

/// The server that has the locks of one name.
#[derive(Clone, Debug)]
pub(super) struct Probe<'a> {
    client: &'a LockClient,
    pub(super) name: Vec<u8>,
    /// The user of the URL, where the server does not say who this is.
    user: String,
}

/// What `INFO` says.
#[derive(Debug)]
pub(super) struct Info(HashMap<String, String>);

impl Info {
    pub(super) fn text(&self, field: &str) -> Option<&str> {
        self.0.get(field).map(String::as_str)
    }

    pub(super) fn number(&self, field: &str) -> Option<u64> {
        self.text(field)?.parse().ok()
    }
}

impl Probe<'_> {
    pub(super) fn new(client: &LockClient, name: Vec<u8>) -> Probe<'_> {
        Probe { client, name, user: "USER".to_owned() }
    }

    /// The same, as this user.
    pub(super) fn by(self, user: &str) -> Self {
        Probe { user: user.to_owned(), ..self }
    }

    pub(super) fn ask(&self, command: &Cmd) -> leasehold::Result<redis::Value> {
        self.client.query(&self.name, command)
    }

    /// The reply as another type, or why there is none.
    pub(super) fn get<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, String> {
        let reply = self.ask(command).map_err(|error| error.to_string())?;
        T::from_redis_value(reply).map_err(|_| "the server's reply is of another form".to_owned())
    }

    pub(super) fn info(&self, section: &str) -> Result<Info, String> {
        let text: String = self.get(redis::cmd("INFO").arg(section))?;
        let pairs = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        // Another program may stand before the server.
        Ok(Info(pairs.map(|(field, value)| (field.to_owned(), clean(value))).collect()))
    }

    /// A setting of the server.
    pub(super) fn config(&self, setting: &str) -> Result<String, String> {
        let mut all: HashMap<String, String> =
            self.get(redis::cmd("CONFIG").arg("GET").arg(setting))?;
        let value = all.remove(setting).ok_or("the server does not have this setting")?;
        Ok(clean(&value))
    }

    /// Who the server takes this program for.
    pub(super) fn user(&self) -> String {
        let user: Result<String, String> = self.get(redis::cmd("ACL").arg("WHOAMI"));
        let user = user.or_else(|refusal| {
            // Who may not ask is told by the refusal, since Redis 7.0.
            let named =
                refusal.split_once("NOPERM User ").and_then(|(_, rest)| rest.split_once(' '));
            named.map(|(user, _)| user.to_owned()).ok_or(refusal)
        });
        clean(&user.unwrap_or_else(|_| self.user.clone()))
    }
}

fn clean(text: &str) -> String {
    crate::name::Shown(text.as_bytes()).to_string()
}
