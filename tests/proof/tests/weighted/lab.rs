//! One server, in memory or real, and what scripts do there.

use ::redis::{Connection, ConnectionLike as _, Value, cmd};
use leasehold_support::Server;

use crate::content::Content;
use crate::redis::{Store, call};
use crate::request::{
    Attempt, Become, KEYS, LINE, LOCK, Message, Mode, Reply, Request, SIGNS, Weight, channel,
    command,
};
use crate::script::{Name, Scripts, bug};

/// Clients that listen.
const CLIENTS: u8 = 8;
/// In a cluster, a key that is never there.
const NEVER: &[u8] = b"{x}:never";
/// Ends the messages until then.
const END: &str = "leasehold:end";
/// A lease, in ms. Nobody waits for its end: a test ends it.
pub(crate) const TTL: u32 = 100_000;
const LINE_TTL: u32 = 300_000;
/// A waiter that lives, in µs.
pub(crate) const LIVES: i64 = 200_000_000;
/// The server's time in memory, in µs: of today's size.
const BEGIN: u64 = 1_700_000_000_123_456;
/// So long takes a command in memory, in µs.
const TICK: u64 = 10;

#[allow(clippy::large_enum_variant, reason = "there is one for each test")]
enum Side {
    Memory { store: Box<Store>, now: u64 },
    Real { _server: Server, connection: Connection, news: Connection },
}

pub(crate) struct Lab {
    side: Side,
    pub(crate) scripts: Scripts,
    /// The limit that requests declare.
    pub(crate) limit: u64,
    /// Scripts are given one more key, and count no listeners.
    pub(crate) is_cluster: bool,
    messages: Vec<Message>,
}

/// Runs a test in memory and on a real server. A bug is caught by one of them: by the real server if its program is
/// named, so that the bug is seen to be caught there, and in memory otherwise.
pub(crate) fn on_both(limit: u64, test: impl Fn(&mut Lab)) {
    let (is_sound, is_named) =
        (bug().is_none(), std::env::var_os("LEASEHOLD_SERVER_BIN").is_some());
    if is_sound || !is_named {
        test(&mut Lab::in_memory(limit));
    }
    if is_sound || is_named {
        test(&mut Lab::real(limit));
    }
}

impl Lab {
    pub(crate) fn in_memory(limit: u64) -> Lab {
        let mut store = Store::default();
        (0..CLIENTS).for_each(|client| store.subscribe(client.into(), &channel(client)));
        Lab::new(Side::Memory { store: store.into(), now: BEGIN }, limit)
    }

    pub(crate) fn real(limit: u64) -> Lab {
        let server = Server::start().expect("a server");
        let (connection, mut news) = (server.connection(), server.connection());
        let channels = (0..CLIENTS).map(channel).chain([END.as_bytes().to_vec()]);
        for channel in channels {
            cmd("SUBSCRIBE").arg(channel).exec(&mut news).expect("it is subscribed");
        }
        Lab::new(Side::Real { _server: server, connection, news }, limit)
    }

    fn new(side: Side, limit: u64) -> Lab {
        Lab { side, scripts: Scripts::new(), limit, is_cluster: false, messages: Vec::new() }
    }

    /// Runs a command, and keeps its messages.
    pub(crate) fn command(&mut self, words: &[Vec<u8>]) -> Result<Value, String> {
        match &mut self.side {
            Side::Memory { store, now } => {
                *now += TICK;
                let (value, effects) = store.run(*now, |run| call(run, words));
                let read = |it: crate::redis::Published| Message::read(&it.channel, &it.payload);
                self.messages.extend(effects.published.into_iter().map(read));
                value.map_err(|error| error.text().to_owned())
            }
            Side::Real { connection, news, .. } => {
                let mut command = ::redis::Cmd::new();
                words.iter().for_each(|word| _ = command.arg(word.as_slice()));
                let value = connection.req_command(&command);
                cmd("PUBLISH").arg(END).arg("").exec(connection).expect("it is published");
                loop {
                    let Value::Array(parts) = news.recv_response().expect("a message") else {
                        panic!("no message")
                    };
                    let [_, Value::BulkString(channel), payload] = parts.as_slice() else {
                        panic!("{parts:?}")
                    };
                    // The reply to SUBSCRIBE has a number there.
                    let Value::BulkString(payload) = payload else { continue };
                    if channel == END.as_bytes() {
                        break;
                    }
                    self.messages.push(Message::read(channel, payload));
                }
                match value {
                    Ok(Value::ServerError(error)) => {
                        Err(format!("{} {}", error.code(), error.details().unwrap_or_default()))
                    }
                    Ok(value) => Ok(value),
                    Err(error) => Err(format!("{} {error}", error.code().unwrap_or("ERR"))),
                }
            }
        }
    }

    pub(crate) fn ask(&mut self, words: &[&str]) -> Value {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.command(&words).expect("no error")
    }

    /// The transaction of an attempt at a read-write lock: what each command needs, the number of its words, and the words.
    pub(crate) fn transact(&mut self, attempt: Attempt, commands: &str) -> Result<Value, String> {
        let attempt = attempt.text();
        let arguments = std::iter::once(&*attempt).chain(commands.split(' '));
        let words = command(self.scripts.text(Name::Transaction, true), arguments);
        self.command(&words)
    }

    /// Carries a request out; what it leaves must make sense.
    pub(crate) fn run(&mut self, request: &Request) -> Reply {
        let mut words = request.words(&self.scripts);
        if self.is_cluster {
            words[2] = b"5".to_vec();
            words.insert(3 + KEYS.len(), NEVER.to_vec());
        }
        let value = self.command(&words);
        let reply = Reply::read(request, value);
        let content = self.content();
        let sense = content.check().and_then(|()| content.check_ends(self.now()));
        sense.unwrap_or_else(|text| panic!("after {request:?}, {reply:?}: {text}"));
        reply
    }

    /// The messages since this was asked for the last time.
    pub(crate) fn messages(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.messages)
    }

    pub(crate) fn content(&mut self) -> Content {
        Content::read(|words| self.ask(words))
    }

    /// The server's time in µs.
    pub(crate) fn now(&mut self) -> u64 {
        let parts: Vec<u64> = ::redis::from_redis_value(self.ask(&["TIME"])).expect("a time");
        parts[0] * 1_000_000 + parts[1]
    }

    /// The next command runs at this time of the server in memory, in µs.
    pub(crate) fn set_next(&mut self, time: u64) {
        let Side::Memory { now, .. } = &mut self.side else { panic!("a real clock") };
        *now = time - TICK;
    }

    /// Memory is full, or no longer.
    pub(crate) fn fill(&mut self, is_full: bool) {
        match &mut self.side {
            Side::Memory { store, .. } => store.set_out_of_memory(is_full),
            Side::Real { .. } => {
                self.ask(&["CONFIG", "SET", "maxmemory", if is_full { "1" } else { "0" }]);
            }
        }
    }

    /// A client listens nowhere.
    pub(crate) fn deafen(&mut self, client: u8) {
        match &mut self.side {
            Side::Memory { store, .. } => store.unsubscribe(client.into(), &channel(client)),
            Side::Real { news, connection, .. } => {
                let unsubscribe = cmd("UNSUBSCRIBE").arg(channel(client)).get_packed_command();
                news.send_packed_command(&unsubscribe).expect("it is sent");
                while let Value::Array(parts) = news.recv_response().expect("a reply") {
                    if parts[0] == Value::BulkString(b"unsubscribe".to_vec()) {
                        break;
                    }
                }
                let _: () = cmd("PING").query(connection).expect("it lives");
            }
        }
    }

    /// The lease of a holder ends now. No script does that, and time cannot be waited for.
    pub(crate) fn end(&mut self, attempt: Attempt) {
        let past = (self.now() - 1_000).to_string();
        self.ask(&["ZADD", LOCK, "XX", &past, &attempt.text()]);
    }

    /// A waiter is not heard of for too long.
    pub(crate) fn kill(&mut self, attempt: Attempt) {
        let past = (self.now() - 1_000).to_string();
        self.ask(&["ZADD", SIGNS, "XX", &past, &attempt.text()]);
    }

    pub(crate) fn acquire(&mut self, attempt: Attempt, mode: Mode) -> Reply {
        self.run(&self.acquire_request(attempt, mode))
    }

    pub(crate) fn acquire_request(&self, attempt: Attempt, mode: Mode) -> Request {
        let (ttl, line, limit) = (TTL, LINE_TTL, self.limit);
        Request::Acquire { attempt, ttl, mode, deadline: 0, dies_after: LIVES, line, limit }
    }

    /// Takes it, which must succeed; returns the token and the slots.
    #[track_caller]
    pub(crate) fn take(&mut self, attempt: Attempt) -> (u64, Vec<u32>) {
        match self.acquire(attempt, Mode::Join) {
            Reply::Granted { token, slots, .. } => (token, slots),
            other => panic!("{attempt:?}: {other:?}"),
        }
    }

    /// Lines up, which must be necessary.
    #[track_caller]
    pub(crate) fn wait(&mut self, attempt: Attempt) {
        let reply = self.acquire(attempt, Mode::Join);
        assert!(matches!(reply, Reply::Busy { .. }), "{attempt:?}: {reply:?}");
    }

    pub(crate) fn release(&mut self, attempt: Attempt) -> Reply {
        self.run(&Request::Release { attempt, ttl: TTL, last_token: 0 })
    }

    pub(crate) fn renew(&mut self, attempt: Attempt) -> Reply {
        self.run(&Request::Renew { attempt, ttl: TTL })
    }

    pub(crate) fn change(&mut self, attempt: Attempt, number: u64, to: Become) -> Reply {
        let (ttl, dies_after, line) = (TTL, LIVES, LINE_TTL);
        self.run(&Request::Change { attempt, number, to, ttl, dies_after, line })
    }

    pub(crate) fn resize(&mut self, limit: u64) -> Reply {
        self.resize_for(limit, TTL)
    }

    /// The limit is kept for so many ms after the last use.
    pub(crate) fn resize_for(&mut self, limit: u64, keep: u32) -> Reply {
        let deadline = self.now() + 60_000_000;
        self.run(&Request::Resize { limit, declared: self.limit, deadline, ttl: TTL, keep })
    }

    pub(crate) fn force(&mut self, attempt: Attempt) -> Reply {
        let deadline = self.now() + 60_000_000;
        self.run(&Request::Force { attempt, deadline, ttl: TTL })
    }

    /// The attempts that were told of a grant or an upgrade since messages were asked for.
    pub(crate) fn granted(&mut self) -> Vec<(u8, u16)> {
        use crate::request::Says::{Granted, Upgraded};
        let is_grant = |it: &Message| matches!(it.says, Granted { .. } | Upgraded { .. });
        self.messages().into_iter().filter(is_grant).map(|it| (it.client, it.number)).collect()
    }

    pub(crate) fn waiting(&mut self) -> i64 {
        match self.ask(&["ZCARD", LINE]) {
            Value::Int(count) => count,
            other => panic!("{other:?}"),
        }
    }
}

const fn attempt(client: u8, number: u16, weight: Weight) -> Attempt {
    Attempt { client, number, weight, window: TTL }
}

/// The first attempt of a client.
pub(crate) const fn permits(client: u8, permits: u16) -> Attempt {
    attempt(client, 1, Weight::Permits(permits))
}

pub(crate) const fn reader(client: u8) -> Attempt {
    attempt(client, 1, Weight::Reader)
}

pub(crate) const fn upgradable(client: u8) -> Attempt {
    attempt(client, 1, Weight::Upgradable)
}

pub(crate) const fn writer(client: u8) -> Attempt {
    attempt(client, 1, Weight::Writer)
}
