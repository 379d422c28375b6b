//! The scripts themselves, with a queue that no real crowd could fill in time.

use std::time::Instant;

use leasehold_support::lag::Spent as _;
use leasehold_support::{CommandStats, Server};

use crate::common::queue::{listens, waiting};
use crate::common::{ask, exists, heavy, no_key_is_immortal, open, renewed, server, until};
use crate::queue::owner;

const FEED: &str = "feed0000000000000000000000000000";

/// What a client sends when it queues for a lock, and when it releases one.
pub(crate) struct Bare {
    pub(crate) connection: redis::Connection,
    /// Listens for all the waiters that are made up.
    ear: redis::Connection,
    join: Vec<Vec<u8>>,
    release: Vec<Vec<u8>>,
}

impl Bare {
    pub(crate) fn new(server: &Server) -> Bare {
        let client = open(server);
        listens(server, &client);
        // No holder's lease ends while a crowd queues up.
        let lock = client.mutex_with("x", renewed(3_600_000)).unwrap();
        let mut scripts = None;
        // On a busy machine its listener may be silent for a moment, and then it only tries.
        until("both scripts are sent as they are", || {
            ask::<()>(server, &["SCRIPT", "FLUSH"]);
            let sent = monitored(server, || drop(lock.lock().unwrap()));
            let has = |words: &Vec<Vec<u8>>, some: &[&str]| {
                words.iter().any(|word| some.iter().any(|it| it.as_bytes() == word))
            };
            let is_script = |words: &&Vec<Vec<u8>>| {
                words[0].eq_ignore_ascii_case(b"EVAL") && has(words, &["x"])
            };
            let mut evals = sent.iter().filter(is_script);
            let join = evals.find(|words| has(words, &["join"])).cloned();
            let release = evals.find(|words| !has(words, &["try", "join", "beat"])).cloned();
            scripts = join.zip(release);
            scripts.is_some()
        });
        let (join, release) = scripts.expect("they were sent");
        let mut ear = server.connection();
        redis::cmd("SUBSCRIBE").arg(format!("leasehold:{FEED}")).exec(&mut ear).unwrap();
        Bare { connection: server.connection(), ear, join, release }
    }

    fn attempt(number: usize) -> String {
        Bare::attempt_of(FEED, number)
    }

    pub(crate) fn attempt_of(client: &str, number: usize) -> String {
        format!("1q:{client}:{number:x}:30000:1:host:")
    }

    /// Sends it for another attempt. Returns the first number of the reply.
    fn run(&mut self, words: Vec<Vec<u8>>, attempt: &str) -> i64 {
        let mut command = redis::Cmd::new();
        for word in words {
            if word.starts_with(b"1q:") {
                command.arg(attempt);
            } else {
                command.arg(word);
            }
        }
        match command.query(&mut self.connection).expect("an answer") {
            redis::Value::Array(parts) => redis::from_redis_value(parts[0].clone()).unwrap(),
            redis::Value::Int(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// Answers 0 if somebody else has it.
    fn join(&mut self, number: usize, mode: &str) -> i64 {
        self.join_as(&Bare::attempt(number), mode)
    }

    pub(crate) fn join_as(&mut self, attempt: &str, mode: &str) -> i64 {
        let mut words = self.join.clone();
        let mine = words.iter().position(|word| word.starts_with(b"1q:")).expect("an attempt");
        words[mine + 2] = b"0".to_vec();
        words.iter_mut().filter(|word| **word == b"join").for_each(|word| *word = mode.into());
        self.run(words, attempt)
    }

    fn release(&mut self, number: usize) -> i64 {
        self.release_as(&Bare::attempt(number))
    }

    pub(crate) fn release_as(&mut self, attempt: &str) -> i64 {
        self.run(self.release.clone(), attempt)
    }

    /// Puts `count` waiters into the queue, who die in so many seconds.
    fn fill(&mut self, first: usize, count: usize, dies_in: i64) {
        let source = "
            local t = redis.call('TIME')
            local death = string.format('%.0f', t[1] * 1e6 + t[2] + ARGV[3] * 1e6)
            for i = ARGV[1], ARGV[1] + ARGV[2] - 1 do
              local attempt = string.format('1q:%s:%x:30000:1:host:', ARGV[4], i)
              redis.call('ZADD', KEYS[1], i, attempt)
              redis.call('ZADD', KEYS[2], death, attempt)
            end
            redis.call('PEXPIRE', KEYS[1], 60000)
            redis.call('PEXPIRE', KEYS[2], 60000)";
        redis::cmd("EVAL")
            .arg(source)
            .arg(2)
            .arg("{x}:queue")
            .arg("{x}:beats")
            .arg(first)
            .arg(count)
            .arg(dies_in)
            .arg(FEED)
            .exec(&mut self.connection)
            .unwrap();
    }

    /// The next grant that was told: the attempt's number.
    fn granted(&mut self) -> usize {
        loop {
            let message = match self.ear.recv_response().expect("a message") {
                redis::Value::Array(parts) | redis::Value::Push { data: parts, .. } => parts,
                other => panic!("{other:?}"),
            };
            let Some(redis::Value::BulkString(payload)) = message.last() else { continue };
            let text = String::from_utf8_lossy(payload);
            let mut fields = text.split(' ');
            if fields.next() == Some("g") {
                return usize::from_str_radix(fields.next().unwrap(), 16).unwrap();
            }
        }
    }

    /// The commands of two hundred hand-overs, joins and beats in a queue of this length.
    fn commands(&mut self, server: &Server, length: usize) -> CommandStats {
        redis::cmd("FLUSHALL").exec(&mut self.connection).unwrap();
        self.join(0, "join");
        self.fill(1, length + 200, 3_600);
        let before = server.commands();
        for number in 0..200 {
            assert_eq!(self.release(number), 1);
            let newcomer = length + 1_000 + number;
            assert_eq!(self.join(newcomer, "join"), 0);
            assert_eq!(self.join(newcomer, "beat"), 0);
            assert_eq!(self.granted(), number + 1, "served out of order");
        }
        server.commands().since(&before)
    }
}

#[test]
fn operations_take_no_more_commands_with_a_longer_queue() {
    let _turn = heavy();
    let server = server();
    let mut bare = Bare::new(&server);
    let stats = [10, 10_000].map(|length| bare.commands(&server, length));
    let [few, many] = stats.each_ref().map(|stats| stats.calls.values().sum::<u64>());
    // Not equal: keys get a longer time to live now and then, by the clock.
    assert!(many < 2 * few, "{stats:?}");
}

#[test]
fn ten_thousand_waiters_are_served_in_order() {
    let _turn = heavy();
    const WAITERS: usize = 10_000;
    let server = server();
    let mut bare = Bare::new(&server);
    assert_ne!(bare.join(0, "join"), 0);
    for number in 1..=WAITERS {
        assert_eq!(bare.join(number, "join"), 0);
    }
    // Who joins again has its place already.
    assert_eq!(bare.join(1, "join"), 0);
    assert_eq!(waiting(&server, "x"), WAITERS);
    // Long ago it was quick to fill it, and they would be dead by now.
    let alive = "
        local t = redis.call('TIME')
        local death = string.format('%.0f', (t[1] + 3600) * 1e6)
        for _, attempt in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
          redis.call('ZADD', KEYS[1], death, attempt)
        end";
    redis::cmd("EVAL").arg(alive).arg(1).arg("{x}:beats").exec(&mut bare.connection).unwrap();
    for number in 0..WAITERS {
        assert_eq!(bare.release(number), 1);
        assert_eq!(bare.granted(), number + 1);
    }
    assert_eq!(bare.release(WAITERS), 1);
    assert!(!exists(&server, "x") && waiting(&server, "x") == 0);
}

#[test]
fn ten_thousand_dead_waiters_are_skipped_at_once() {
    let _turn = heavy();
    const DEAD: usize = 10_000;
    let server = server();
    let mut bare = Bare::new(&server);
    bare.join(0, "join");
    bare.fill(1, DEAD, -1);
    bare.fill(DEAD + 1, 4, 3_600);
    let begin = Instant::now();
    assert_eq!(bare.release(0), 1);
    let first = begin.elapsed();
    assert_eq!(bare.granted(), DEAD + 1);
    assert_eq!(owner(&server, "x"), Bare::attempt(DEAD + 1));
    // The shortest of three, as the machine may stall.
    let second = (1..=3).map(|number| {
        let begin = Instant::now();
        assert_eq!(bare.release(DEAD + number), 1);
        let took = begin.spent();
        assert_eq!(bare.granted(), DEAD + number + 1);
        took
    });
    let second = second.min().unwrap();
    // They are not looked at again, and not thrown away yet (rule 11).
    assert!(second < first / 10, "{first:?}, then {second:?}");
    assert_eq!(waiting(&server, "x"), DEAD);
    // One of them comes back: it has the first place of all.
    assert_eq!(bare.join(7, "beat"), 0);
    bare.join(DEAD + 5, "join");
    assert_eq!(bare.release(DEAD + 4), 1);
    assert_eq!(bare.granted(), 7);
    no_key_is_immortal(&server);
}

/// Rule 11: who was taken for dead and lives has its place again, also from those who came meanwhile.
#[test]
fn newcomer_queues_behind_all_skipped_waiters() {
    let server = server();
    let mut bare = Bare::new(&server);
    assert_ne!(bare.join(0, "join"), 0);
    bare.fill(1, 3, -1);
    assert_eq!(bare.join(4, "join"), 0);
    // The first three are skipped, and the first of them is heard of before the newcomer joins.
    assert_eq!(bare.release(0), 1);
    assert_eq!(bare.granted(), 4);
    assert_eq!(bare.join(1, "beat"), 0);
    assert_eq!(bare.join(5, "join"), 0);
    for number in [2, 3] {
        assert_eq!(bare.join(number, "beat"), 0);
    }
    let mut holder = 4;
    let served = [(); 4].map(|()| {
        assert_eq!(bare.release(holder), 1);
        holder = bare.granted();
        holder
    });
    assert_eq!(served, [1, 2, 3, 5]);
}

/// What clients sent to the server meanwhile.
fn monitored(server: &Server, work: impl FnOnce()) -> Vec<Vec<Vec<u8>>> {
    let mut monitor = server.connection();
    redis::cmd("MONITOR").exec(&mut monitor).unwrap();
    work();
    ask::<String>(server, &["ECHO", "the end"]);
    let mut sent = Vec::new();
    loop {
        let line = match monitor.recv_response().expect("a line") {
            redis::Value::SimpleString(line) => line,
            other => panic!("{other:?}"),
        };
        let (from, words) = line.split_once("] ").expect("who sent it");
        if from.ends_with("lua") {
            continue;
        }
        let words = words_of(words);
        if words.last().is_some_and(|word| word == b"the end") {
            return sent;
        }
        sent.push(words);
    }
}

/// The words of a line of MONITOR, which puts them in quotes.
fn words_of(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut bytes = line.bytes();
    while bytes.find(|&byte| byte == b'"').is_some() {
        let mut word = Vec::new();
        loop {
            match bytes.next().expect("a word ends") {
                b'"' => break,
                b'\\' => word.push(match bytes.next().expect("a letter") {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'x' => {
                        let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                        u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                    }
                    letter => letter,
                }),
                byte => word.push(byte),
            }
        }
        words.push(word);
    }
    words
}
