//! What locks protect, in a server of its own that nothing happens to: sets that are read, changed and written back.

use redis::Connection;

/// All values of a set, in the order in which they were added.
#[derive(Debug)]
pub(crate) struct Content(pub(crate) String);

impl Content {
    /// The text with one value more.
    pub(crate) fn with(&self, value: &str) -> String {
        if self.0.is_empty() { value.to_owned() } else { format!("{},{value}", self.0) }
    }

    pub(crate) fn count(&self) -> usize {
        self.0.split(',').filter(|value| !value.is_empty()).count()
    }

    pub(crate) fn last(&self) -> &str {
        self.0.rsplit(',').next().unwrap_or_default()
    }
}

/// Lets a token in if none above it was there before, nor the same of another holder, and returns the set. Two servers that
/// both grant a lock can make one token in the same microsecond.
const ENTER: &str = "
local last, holder = unpack(redis.call('HMGET', KEYS[1], 'token', 'holder'))
if last and (tonumber(last) > tonumber(ARGV[1]) or last == ARGV[1] and holder ~= ARGV[2]) then
  return false
end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'holder', ARGV[2])
return redis.call('HGET', KEYS[1], 'values') or ''
";

/// Writes the set if this holder was the last one that was let in.
const WRITE: &str = "
local last, holder = unpack(redis.call('HMGET', KEYS[1], 'token', 'holder'))
if last ~= ARGV[1] or holder ~= ARGV[3] then
  return 0
end
redis.call('HSET', KEYS[1], 'values', ARGV[2])
return 1
";

/// A connection to it.
pub(crate) struct Store(Connection);

impl Store {
    pub(crate) fn open(url: &str) -> Store {
        let client = redis::Client::open(url).expect("a URL");
        Store(client.get_connection().expect("the store is always there"))
    }

    /// Reads a set that compares nothing.
    pub(crate) fn read(&mut self, object: &str) -> Content {
        let text: Option<String> = redis::cmd("GET").arg(object).query(&mut self.0).expect("a set");
        Content(text.unwrap_or_default())
    }

    /// Writes a set that compares nothing.
    pub(crate) fn write(&mut self, object: &str, text: &str) {
        redis::cmd("SET").arg(object).arg(text).exec(&mut self.0).expect("written");
    }

    /// Reads a set with the token of a holder, or returns `None` if a later one was there, or the same of another.
    pub(crate) fn enter(&mut self, object: &str, token: u64, holder: &str) -> Option<Content> {
        let mut eval = redis::cmd("EVAL");
        let entered = eval.arg(ENTER).arg(1).arg(object).arg(token).arg(holder).query(&mut self.0);
        entered.map(|text: Option<String>| text.map(Content)).expect("a set")
    }

    /// Writes a set with the token of a holder, and returns whether no other was let in since.
    pub(crate) fn write_fenced(
        &mut self,
        object: &str,
        token: u64,
        holder: &str,
        text: &str,
    ) -> bool {
        let mut eval = redis::cmd("EVAL");
        eval.arg(WRITE).arg(1).arg(object).arg(token).arg(text).arg(holder);
        eval.query(&mut self.0).expect("a set")
    }
}
