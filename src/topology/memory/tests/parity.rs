//! The server in memory is like a real one: both are given the same words, in random order, and
//! must return the same and leave the same keys. An error may differ in its text, but not in its
//! code.
//!
//! Each keeps its own time, so that times to live are long here, or over at once.

use std::time::{SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use leasehold_support::Server;
use redis::{Cmd, Connection, ConnectionLike, Value};

use crate::base::sync::channel::unbounded;
use crate::base::sync::spawn;

use super::super::redis::{Access, ConnectionState, Store, all, call};

/// How far apart two ends of a key, or two times to live, may be, in milliseconds.
const APART: i64 = 20_000;
const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// A real server and a store.
struct Pair {
    rng: Rng,
    real: Connection,
    store: Store,
    /// How many spans were chosen.
    spans: u64,
    /// The log of commands, to explain a difference.
    history: Vec<String>,
}

type Words = Vec<Vec<u8>>;

fn words<W: AsRef<[u8]>>(words: &[W]) -> Words {
    words.iter().map(|word| word.as_ref().to_vec()).collect()
}

fn shown(words: &Words) -> String {
    words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
}

/// Those flags of a command that decide whether it is refused, of those that `COMMAND INFO` tells.
fn refusing(flags: &Value) -> Value {
    let Value::Array(flags) = flags else { panic!("{flags:?}") };
    let decides = |flag: &&Value| {
        let Value::SimpleString(flag) = flag else { panic!("{flag:?}") };
        ["write", "denyoom", "noscript"].contains(&flag.as_str())
    };
    Value::Array(flags.iter().filter(decides).cloned().collect())
}

/// The server's time by its clock, which is this machine's.
#[expect(clippy::disallowed_methods, reason = "the keys of a server end by it")]
fn micros() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(time.as_micros()).unwrap()
}

/// A reply whose errors are their codes.
fn coded(value: Value) -> Value {
    match value {
        Value::ServerError(error) => Value::SimpleString(format!("-{}", error.code())),
        Value::Array(parts) => Value::Array(parts.into_iter().map(coded).collect()),
        other => other,
    }
}

fn ask(connection: &mut Connection, words: &Words) -> Value {
    let mut command = Cmd::new();
    words.iter().for_each(|word| _ = command.arg(word.as_slice()));
    // `query` does not distinguish an error within an array from one of the whole reply.
    coded(connection.req_command(&command).unwrap())
}

fn is_close(one: &Value, other: &Value) -> bool {
    // A number that is too large for an integer becomes one of these, depending on the processor.
    let is_extreme = |number: &i64| [i64::MIN, i64::MAX].contains(number);
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => {
            one == other
                || (is_extreme(one) && is_extreme(other))
                || (*one > APART && *other > APART && one.abs_diff(*other) < APART as u64)
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_close(one, other))
        }
        _ => one == other,
    }
}

impl Pair {
    fn new(server: &Server, seed: u64) -> Pair {
        let mut real = server.connection();
        redis::cmd("FLUSHALL").exec(&mut real).unwrap();
        let rng = Rng::with_seed(seed);
        Pair { rng, real, store: Store::default(), spans: 0, history: Vec::new() }
    }

    /// Runs a command, or a script, on both.
    fn compare(&mut self, words: &Words) {
        let real = ask(&mut self.real, words);
        let (outcome, _) = self.store.run(micros(), |run| call(run, words));
        self.agree(words, &real, outcome.map_err(|error| error.text().to_owned()));
    }

    fn agree(&mut self, words: &Words, real: &Value, outcome: Result<Value, String>) {
        self.history.push(format!("{} -> {real:?}", shown(words)));
        let played = match &outcome {
            Ok(value) => coded(value.clone()),
            Err(text) => {
                Value::SimpleString(format!("-{}", text.split(' ').next().unwrap_or_default()))
            }
        };
        let recent = &self.history[self.history.len().saturating_sub(12)..];
        assert!(is_close(real, &played), "in memory {outcome:?}; on the server {recent:#?}");
    }

    /// All keys hold the same, for as long.
    fn compare_keys(&mut self) {
        for key in KEYS {
            let kind = ask(&mut self.real, &words(&["TYPE", key]));
            self.compare(&words(&["TYPE", key]));
            self.compare(&words(&["PTTL", key]));
            match kind {
                Value::SimpleString(kind) if kind == "string" => {
                    self.compare(&words(&["GET", key]))
                }
                Value::SimpleString(kind) if kind == "hash" => {
                    self.compare(&words(&["HGETALL", key]));
                }
                Value::SimpleString(kind) if kind == "zset" => {
                    self.compare(&words(&["ZRANGE", key, "0", "-1", "WITHSCORES"]));
                }
                Value::SimpleString(kind) if kind == "list" => {
                    self.compare(&words(&["LRANGE", key, "0", "-1"]));
                }
                other => assert_eq!(other, Value::SimpleString("none".into())),
            }
        }
    }

    fn choose(&mut self, among: &[&str]) -> Vec<u8> {
        self.rng.choice(among).unwrap().as_bytes().to_vec()
    }

    /// A time to live that none before it is near. For `GT` and `LT` the later of two ends that are
    /// near each other would depend on how long after each other the commands came.
    fn span(&mut self) -> String {
        self.spans += 1;
        let apart = self.spans * 30_000;
        if self.rng.bool() { 1_000_000 + apart } else { 1_000_000_000 - apart }.to_string()
    }

    /// One word of a pattern.
    fn word(&mut self, slot: &str) -> Vec<u8> {
        match slot {
            "key" => self.choose(&KEYS),
            "value" => self.choose(&["", "x", "7", "-3", "9223372036854775807", "a b"]),
            "field" => self.choose(&["f", "g", "h", "i"]),
            "number" => self.choose(&[
                "0",
                "1",
                "2",
                "-1",
                "-2",
                "3",
                "9223372036854775807",
                "-9223372036854775808",
                "01",
                "1.5",
                "",
                "x",
            ]),
            "far" => self.span().into_bytes(),
            // Not one that ends while the two are compared.
            "long" => {
                let (one, other) = (self.span(), self.span());
                self.choose(&[&one, &other, "0", "-1", "9223372036854775807", "x"])
            }
            "at" => {
                let far = micros() / 1000 + 1_000_000_000;
                let far = (far / 1_000_000 * 1_000_000).to_string();
                self.choose(&["1", "0", "-5", &far, "4000000000000", "x"])
            }
            "score" => self.choose(&[
                "0",
                "1",
                "2",
                "-1",
                "2.5",
                "1e3",
                "inf",
                "-inf",
                "nan",
                "1800000000000000",
                "x",
                "",
            ]),
            "bound" => {
                self.choose(&["0", "1", "(1", "(2", "2.5", "-inf", "+inf", "(inf", "-1", "x"])
            }
            other => other.as_bytes().to_vec(),
        }
    }

    /// A command by its pattern, now and then with a word too many, too few, or another one.
    fn command(&mut self) -> Words {
        let (pattern, options) = *self.rng.choice(PATTERNS).unwrap();
        let mut slots: Vec<&str> = pattern.split(' ').collect();
        if let Some(at) = slots.iter().position(|slot| *slot == "…") {
            // The option before may be repeated.
            let (whole, repeated) = (slots.split_off(at), self.rng.usize(..3));
            let unit = if whole.len() > 1 { whole[1..].to_vec() } else { vec![slots[at - 1]] };
            (0..repeated).for_each(|_| slots.extend_from_slice(&unit));
        }
        if !options.is_empty() {
            for _ in 0..self.rng.usize(..4) {
                slots.extend(self.rng.choice(options).unwrap().split(' '));
            }
        }
        let mut command: Words = slots.iter().map(|slot| self.word(slot)).collect();
        match self.rng.u32(..24) {
            0 => _ = command.pop(),
            1 => command.push(b"x".to_vec()),
            // Nothing that ends soon.
            2 if command.len() > 1 => {
                let at = self.rng.usize(1..command.len());
                command[at] = self.choose(&["x", "-1", "a", "NX", "b"]);
            }
            3 => command[0] = b"NOSUCH".to_vec(),
            4 => command[0].make_ascii_lowercase(),
            _ => {}
        }
        command
    }
}

/// The words of commands, and their options. After `…` stands what may be repeated, or the word
/// before it.
const PATTERNS: &[(&str, &[&str])] = &[
    ("GET key", &[]),
    ("SET key value", &["NX", "XX", "GET", "KEEPTTL", "PX long", "EX long", "PXAT at", "EXAT at"]),
    ("SET key value PX far", &["GET", "NX"]),
    ("SET key value KEEPTTL", &["GET"]),
    ("PEXPIRE key far", &["NX", "XX", "GT", "LT"]),
    ("MGET key …", &[]),
    ("GETDEL key", &[]),
    ("APPEND key value", &[]),
    ("STRLEN key", &[]),
    ("INCR key", &[]),
    ("DECR key", &[]),
    ("INCRBY key number", &[]),
    ("DECRBY key number", &[]),
    ("DEL key …", &[]),
    ("UNLINK key …", &[]),
    ("EXISTS key …", &[]),
    ("TYPE key", &[]),
    ("EXPIRE key long", &["NX", "XX", "GT", "LT"]),
    ("PEXPIRE key long", &["NX", "XX", "GT", "LT"]),
    ("EXPIREAT key at", &["NX", "XX", "GT", "LT"]),
    ("PEXPIREAT key at", &["NX", "XX", "GT", "LT"]),
    ("PTTL key", &[]),
    ("TTL key", &[]),
    ("EXPIRETIME key", &[]),
    ("PEXPIRETIME key", &[]),
    ("PERSIST key", &[]),
    ("HSET key field value … field value", &[]),
    ("HSET key field value", &[]),
    ("HSETNX key field value", &[]),
    ("HGET key field", &[]),
    ("HMGET key field …", &[]),
    ("HEXISTS key field", &[]),
    ("HDEL key field …", &[]),
    ("HINCRBY key field number", &[]),
    ("HLEN key", &[]),
    ("HKEYS key", &[]),
    ("HVALS key", &[]),
    ("HGETALL key", &[]),
    ("ZADD key score field … score field", &[]),
    ("ZADD key NX score field … score field", &[]),
    ("ZADD key XX CH score field … score field", &[]),
    ("ZADD key GT score field … score field", &[]),
    ("ZADD key LT CH score field … score field", &[]),
    ("ZADD key INCR score field", &[]),
    ("ZADD key INCR NX score field", &[]),
    ("ZADD key INCR GT score field", &[]),
    ("ZADD key NX GT score field", &[]),
    ("ZADD key GT LT score field", &[]),
    ("ZINCRBY key score field", &[]),
    ("ZREM key field …", &[]),
    ("ZREMRANGEBYSCORE key bound bound", &[]),
    ("ZPOPMIN key", &["number"]),
    ("ZSCORE key field", &[]),
    ("ZMSCORE key field …", &[]),
    ("ZCARD key", &[]),
    ("ZCOUNT key bound bound", &[]),
    ("ZRANGE key number number", &["REV", "WITHSCORES", "LIMIT number number"]),
    ("ZRANGE key bound bound BYSCORE", &["REV", "WITHSCORES", "LIMIT number number"]),
    ("PUBLISH key value", &[]),
    ("SPUBLISH key value", &[]),
    ("PUBSUB NUMSUB …", &["key"]),
    ("COMMAND GETKEYS SET key value", &[]),
    ("COMMAND GETKEYS MGET key …", &["key"]),
    ("COMMAND GETKEYS PUBLISH key value", &[]),
    ("COMMAND GETKEYS GET key value", &[]),
    ("COMMAND GETKEYS NOSUCH key", &[]),
    ("LPUSH key value …", &[]),
    ("RPUSH key value …", &[]),
    ("LLEN key", &[]),
    ("LRANGE key number number", &[]),
];

/// Runs the commands that its arguments are, each after the number of its words, and returns all
/// replies.
const ALL: &str = "local replies, at = {}, 1
    while at <= #ARGV do
      local count = tonumber(ARGV[at])
      replies[#replies + 1] = redis.pcall(unpack(ARGV, at + 1, at + count))
      at = at + count + 1
    end
    return replies";

#[test]
fn commands_in_scripts_match_a_real_server() {
    let server = Server::start().unwrap();
    for seed in 0..60 {
        let mut pair = Pair::new(&server, seed);
        let mut is_full = false;
        for _ in 0..120 {
            if pair.rng.u32(..if is_full { 4 } else { 30 }) == 0 {
                is_full = !is_full;
                let most = if is_full { "1" } else { "0" };
                let mut config = redis::cmd("CONFIG");
                config.arg("SET").arg("maxmemory").arg(most).exec(&mut pair.real).unwrap();
                pair.store.set_out_of_memory(is_full);
                pair.history.push(format!("memory is full: {is_full}"));
            }
            let mut script = words(&["EVAL", ALL, "0"]);
            for _ in 0..pair.rng.usize(1..4) {
                let command = pair.command();
                script.push(command.len().to_string().into_bytes());
                script.extend(command);
            }
            pair.compare(&script);
            pair.compare_keys();
        }
        if is_full {
            redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("0").exec(&mut pair.real).unwrap();
        }
    }
}

#[test]
fn sessions_match_real_connections() {
    let server = Server::start().unwrap();
    for seed in 0..60 {
        let mut pair = Pair::new(&server, seed);
        let mut other = server.connection();
        let (mut session, mut is_within) = (ConnectionState::default(), false);
        for _ in 0..120 {
            let is_other = pair.rng.u32(..4) == 0;
            let command = match pair.rng.u32(..10) {
                // How far either is an error within a transaction, depends on the version.
                0..3 if !is_other && !is_within => {
                    words(&["WATCH", KEYS[pair.rng.usize(..KEYS.len())]])
                }
                3..5 if !is_other && !is_within => words(&["MULTI"]),
                5 | 6 if !is_other => words(&["EXEC"]),
                7 if !is_other => words(&[if is_within { "DISCARD" } else { "UNWATCH" }]),
                8 if !is_other && !is_within => words(&["DISCARD"]),
                9 if !is_other && !is_within => {
                    let name = pair.choose(&["leasehold:a", "a b", "a\n", "", "~"]);
                    vec![b"CLIENT".to_vec(), b"setname".to_vec(), name]
                }
                _ => pair.command(),
            };
            let real = ask(if is_other { &mut other } else { &mut pair.real }, &command);
            match command[0].as_slice() {
                b"MULTI" => is_within = true,
                b"EXEC" | b"DISCARD" => is_within = false,
                _ => {}
            }
            let at = micros();
            session.note(&pair.store.expire(at));
            let (outcome, effects) = pair.store.run(at, |run| {
                if is_other { call(run, &command) } else { session.call(run, &command) }
            });
            session.note(&effects.touched);
            pair.history.push(format!("by another: {is_other}"));
            pair.agree(&command, &real, outcome.map_err(|error| error.text().to_owned()));
        }
    }
}

#[test]
fn scripts_match_a_real_server() {
    let server = Server::start().unwrap();
    let mut pair = Pair::new(&server, 0);
    pair.compare(&words(&["SET", "a", "text"]));
    pair.compare(&words(&["ZADD", "b", "1", "one", "2", "two"]));
    for script in [
        // From Lua to a reply.
        "return nil",
        "return",
        "return true",
        "return false",
        "return 3.99",
        "return -3.99",
        "return 9007199254740993",
        "return 'text'",
        "return 'a\\0b'",
        "return {}",
        "return {1, 2.5, 'three', {true, false}}",
        "return {1, nil, 3}",
        "return {ok = 'FINE'}",
        "return {ok = 'OK'}",
        "return {err = 'CODE and words'}",
        "return {1, {err = 'CODE and words'}, {ok = 'FINE'}}",
        "return {name = 'value'}",
        "return function() end",
        "return 1, 2",
        "return redis.error_reply('words alone')",
        "return redis.error_reply('-CODE words')",
        "return redis.error_reply('-words')",
        "return redis.error_reply('CODE words')",
        "return redis.status_reply('FINE')",
        "return redis.sha1hex('')",
        "return redis.sha1hex('abc')",
        // From a reply to Lua.
        "return type(redis.call('GET', 'nothing'))",
        "return tostring(redis.call('GET', 'nothing'))",
        "return type(redis.call('GET', 'a'))",
        "return type(redis.call('STRLEN', 'a'))",
        "return type(redis.call('SET', 'c', 1))",
        "return redis.call('SET', 'c', 1).ok",
        "return #redis.call('ZRANGE', 'b', 0, -1)",
        "return type(redis.call('MGET', 'nothing')[1])",
        "return type(redis.call('ZSCORE', 'b', 'one'))",
        "return redis.call('TYPE', 'b')",
        "return #redis.call('TIME')",
        "return type(redis.call('TIME')[2])",
        "return redis.call('PUBSUB', 'NUMSUB', 'x', 'y')",
        "return redis.acl_check_cmd('SET', 'a', '1')",
        "return redis.acl_check_cmd('PUBSUB', 'NUMSUB', 'x')",
        "return redis.acl_check_cmd('NOSUCH', 'a')",
        // Arguments.
        "redis.call('SET', 'c', 12) return redis.call('GET', 'c')",
        "redis.call('SET', 'c', 2.5) return redis.call('GET', 'c')",
        "redis.call('SET', 'c', -0.125) return redis.call('GET', 'c')",
        "redis.call('SET', 'c', 1700000000000001) return redis.call('GET', 'c')",
        "redis.call('SET', 'c', 1/0) return redis.call('GET', 'c')",
        "redis.call('ZADD', 'd', 1700000000000001, 'm') return redis.call('ZSCORE', 'd', 'm')",
        "redis.call('ZADD', 'd', 2.5, 'm') return redis.call('ZRANGE', 'd', 0, -1, 'WITHSCORES')",
        "return {#KEYS, #ARGV}",
        // Errors.
        "return redis.call('GET', 'b')",
        "return redis.pcall('GET', 'b')",
        "return redis.pcall('GET', 'b').err and 1",
        "return string.find(redis.pcall('GET', 'b').err, '^WRONGTYPE') and 1 or 0",
        "return {pcall(redis.call, 'GET', 'b')}",
        "local ok, error = pcall(redis.call, 'GET', 'b') return type(error)",
        "local ok, reply = pcall(redis.call, 'GET', 'b') return reply.err and 1",
        "return redis.call()",
        "return redis.pcall()",
        "return redis.call('GET', {})",
        "return redis.call('GET', true)",
        "return redis.call('GET')",
        "return redis.call('NOSUCH')",
        "return redis.call('EVAL', 'return 1', 0)",
        "return redis.call('MULTI')",
        "error('words')",
        "error({err = 'CODE and words'})",
        "local x = nil return x.y",
        "this is not Lua",
        "redis.call('SET', 'a', 'kept') redis.call('GET', 'b')",
        // Forbidden actions of scripts.
        "x = 1",
        "return x",
        "function f() end",
        "_G.x = 1",
        "string.x = 1",
        "redis.x = 1",
        "redis.call = 1",
        "KEYS = 1",
        "return setmetatable(_G, {})",
        "return os.time()",
        "return io",
        "return require('x')",
        "return dofile('x')",
        "return loadfile('x')",
        "return print('x')",
        "return newproxy()",
        "return debug",
        "return package",
        // The libraries.
        "return string.format('%.0f %x %5.1f', 1700000000000000, 255, 2.25)",
        "return math.max(1, 2) + math.ceil(2.1) + math.floor(2.9)",
        "local t = {3, 1, 2} table.sort(t) return table.concat(t, ' ')",
        "return {string.match('1q:ab:1f', '^%dq:(%x+):(%x+)')}",
        "return select('#', unpack({1, 2, 3}))",
        "return tostring(1e15) .. ' ' .. 1e14",
        "return tonumber('0x10')",
        "return {pcall(error, 'x')}",
        "return {xpcall(function() return 1, 2 end, type)}",
        "return {xpcall(function() error('x', 0) end, function(text) return text .. '!', 3 end)}",
        "return {xpcall(function() redis.call('GET', 'b') end, type)}",
        "table.insert(redis, 'x')",
        "table.insert(_G, 1, 'x')",
        "table.remove(string)",
        "local t = {1, 3} table.insert(t, 2, 2) table.insert(t, 4) table.remove(t, 1) return t",
    ] {
        pair.compare(&words(&["EVAL", script, "0"]));
        pair.compare_keys();
    }
    pair.compare(&words(&["EVAL", "return {KEYS[1], ARGV[1], #KEYS, #ARGV}", "1", "a", "b"]));
    for odd in ["-1", "3", "x", ""] {
        pair.compare(&words(&["EVAL", "return 1", odd, "a", "b"]));
    }
}

#[test]
fn arity_and_flags_of_commands_match_a_real_server() {
    let server = Server::start().unwrap();
    let mut real = server.connection();
    for (name, arity, access) in all().chain([("EVAL", -3, Access::Read)]) {
        let guide = include_str!("../../../../docs/testing.md");
        assert!(guide.contains(&format!("`{name}")), "the guide does not name {name}");
        let mut ask = redis::cmd("COMMAND");
        let replies: Vec<Value> = ask.arg("INFO").arg(name).query(&mut real).unwrap();
        let Value::Array(info) = &replies[0] else { panic!("{name}: {replies:?}") };
        assert_eq!(info[1], Value::Int(i64::try_from(arity).unwrap()), "{name}");
        let flags = format!("{:?}", info[2]);
        let found = match (flags.contains("write"), flags.contains("denyoom")) {
            (true, true) => Access::Grow,
            (true, false) => Access::Shrink,
            (false, _) => Access::Read,
        };
        assert_eq!(found, access, "{name}: {flags}");
        let asked = words(&["COMMAND", "INFO", name, "NOSUCH"]);
        let (in_memory, _) = Store::default().run(micros(), |run| call(run, &asked));
        let told = [info[0].clone(), info[1].clone(), refusing(&info[2])];
        assert_eq!(
            in_memory.unwrap(),
            Value::Array(vec![Value::Array(told.into()), Value::Nil]),
            "{name}"
        );
        assert!(
            ["TIME", "EVAL"].contains(&name)
                || PATTERNS.iter().any(|(pattern, _)| pattern.starts_with(name)),
            "{name} is never compared"
        );
    }
}

#[test]
fn subscriber_counts_match_a_real_server() {
    let (server, replica) = Server::start_with_replica().unwrap();
    let mut pair = Pair::new(&server, 0);
    let mut listeners = [server.connection(), replica.connection()];
    let _subscribed = listeners.each_mut().map(|connection| {
        let mut listener = connection.as_pubsub();
        listener.subscribe("x").unwrap();
        listener
    });
    for listener in 0..2 {
        pair.store.subscribe(listener, b"x");
        pair.store.put_at_replica(listener, listener == 1);
    }
    pair.compare(&words(&["PUBSUB", "NUMSUB", "x", "y"]));
    pair.compare(&words(&["PUBLISH", "x", "message"]));
    let (_, effects) = pair.store.run(micros(), |run| call(run, &words(&["PUBLISH", "x", "m"])));
    assert_eq!(effects.published.len(), 1);
    assert_eq!(pair.store.hearers(b"x").count(), 2, "the replica's hears it too");
}

#[test]
fn long_numbers_are_printed_like_a_real_server() {
    // Redis 7.0 prints scores by `%.17g`.
    let server = Server::builder().since(7, 2).start().unwrap();
    let mut pair = Pair::new(&server, 0);
    for score in
        ["0.1", "1e15", "1e16", "1e17", "1e20", "1e21", "1.5e300", "1e-7", "0.00001", "123456.789"]
    {
        for sign in ["", "-"] {
            pair.compare(&words(&["DEL", "a"]));
            pair.compare(&words(&["ZADD", "a", &format!("{sign}{score}"), "m"]));
            pair.compare(&words(&["ZSCORE", "a", "m"]));
        }
    }
}

#[test]
fn endless_script_ends() {
    let script = words(&["EVAL", "while true do end", "0"]);
    let (outcome, _) = Store::default().run(micros(), |run| call(run, &script));
    assert!(outcome.unwrap_err().text().starts_with("ERR"));
}

fn run_alone(script: &str) -> Result<Value, String> {
    let words = words(&["EVAL", script, "0"]);
    let (outcome, _) = Store::default().run(micros(), |run| call(run, &words));
    outcome.map_err(|error| error.text().to_owned())
}

#[test]
fn script_leaves_no_globals_for_the_next() {
    for library in ["redis", "string", "table", "math", "_G"] {
        for change in [
            "table.insert(L, 1, 'left')",
            "table.insert(L, 'left')",
            "table.sort(L)",
            "table.remove(L, 1)",
            "table.setn(L, 3)",
        ] {
            let _ = run_alone(&change.replace('L', library));
        }
        let seen = run_alone(&format!("return {{rawget({library}, 1) or false, #{library}}}"));
        assert_eq!(seen.unwrap(), Value::Array(vec![Value::Nil, Value::Int(0)]), "{library}");
    }
}

#[test]
fn endless_script_with_pcall_ends() {
    let (sender, ended) = unbounded();
    for catch in ["pcall(f)", "xpcall(f, function() end)", "xpcall(f, f)", "pcall(pcall, f)"] {
        let sender = sender.clone();
        let body = move || {
            let script =
                format!("local f = function() while true do end end while true do {catch} end");
            sender.send(run_alone(&script)).expect("the test waits");
        };
        spawn("endless", body).expect("a thread");
        let outcome = ended.recv().expect(catch);
        assert!(outcome.unwrap_err().starts_with("ERR"), "{catch}");
    }
}
