//! Locks without a library, to compare with: one bare connection each, the same transport.
//!
//! [`Shape`] learns from the server's `MONITOR` what the library sends, and [`Raw`] sends the same:
//! the same scripts, keys and arguments, but for a name of its own, an owner's value that is new
//! for every attempt, and a deadline. So raw is always what the library does today.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use leasehold::Holder;
use leasehold_support::Server;
use redis::io::tcp::TcpSettings;
use redis::{Cmd, Connection, ConnectionLike, IntoConnectionInfo, Value};

/// The default time-out of a command.
const PATIENCE: Duration = Duration::from_secs(1);
/// A server's time in µs is greater, and no other number in a command is.
const EPOCH: u64 = 1_000_000_000_000_000;
/// Attempts of raw locks are numbered from here, apart from the library's own.
const ATTEMPTS: u64 = 0x1000;

/// The commands of one lock and unlock.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    name: String,
    /// What travels together.
    rounds: Vec<Vec<Vec<Part>>>,
    /// What stands before and after the attempt's number in an owner's value.
    owner: (String, String),
}

/// A part of a command.
#[derive(Clone, Debug)]
enum Part {
    /// Always the same, but for the name where `Shape::of` found it.
    Fixed(String),
    Owner,
    Deadline,
}

impl Shape {
    /// Learns from a lock of this name, which must occur in nothing else that is sent.
    ///
    /// # Panics
    ///
    /// If two rounds of it differ in more than the owner and the deadline.
    pub(crate) fn of<G>(
        server: &Server,
        name: &str,
        lock: impl Fn() -> leasehold::Result<G>,
        release: impl Fn(G) -> leasehold::Result<()>,
        holder: impl Fn() -> leasehold::Result<Option<Holder>>,
    ) -> Shape {
        // The first may load scripts.
        drop(lock().expect("nobody contends"));
        let mut log = Log::new(server, name);
        let mut round = || {
            let (guard, mut sent) = log.note(|| lock().expect("nobody contends"));
            let holder = holder().expect("an answer").expect("it is held");
            let (released, rest) = log.note(|| release(guard));
            released.expect("it was held until now");
            sent.extend(rest);
            (String::from_utf8(holder.owner().to_vec()).expect("an owner of text"), sent)
        };
        let ((first_owner, first), (owner, second)) = (round(), round());
        assert_eq!(first.len(), second.len(), "two locks alike send the same commands");
        let mut rounds = vec![Vec::new()];
        let mut in_transaction = false;
        for (first, second) in first.iter().zip(&second) {
            assert_eq!(first.len(), second.len(), "two locks alike send the same commands");
            let parts = first.iter().zip(second).map(|(first, second)| {
                if *first == first_owner && *second == owner {
                    return Part::Owner;
                }
                if first != second {
                    let deadline = second.parse().is_ok_and(|number: u64| number > EPOCH);
                    assert!(deadline, "{second:?} varies, and is neither owner nor deadline");
                    return Part::Deadline;
                }
                Part::Fixed(second.clone())
            });
            rounds.last_mut().expect("never empty").push(parts.collect());
            in_transaction = (in_transaction || second[0] == "MULTI") && second[0] != "EXEC";
            if !in_transaction {
                rounds.push(Vec::new());
            }
        }
        rounds.pop();
        Shape { name: name.to_owned(), rounds, owner: around_number(&first_owner, &owner) }
    }

    /// How many commands a lock and an unlock are.
    pub(crate) fn commands(&self) -> usize {
        self.rounds.iter().map(Vec::len).sum()
    }

    /// The same with these scripts in place of its own, in the order in which they are called.
    ///
    /// # Panics
    ///
    /// If it calls more or fewer.
    pub(crate) fn with_scripts(&self, url: &str, scripts: &[&str]) -> Shape {
        let (mut connection, mut shape) = (connect(url), self.clone());
        let mut scripts = scripts.iter();
        for command in shape.rounds.iter_mut().flatten() {
            if let [Part::Fixed(verb), Part::Fixed(hash), ..] = command.as_mut_slice()
                && verb == "EVALSHA"
            {
                let script = scripts.next().expect("a script for every call");
                *hash = load(&mut connection, script);
            }
        }
        assert_eq!(scripts.len(), 0, "a call for every script");
        shape
    }

    /// The same for another name.
    fn renamed(&self, name: &str) -> Shape {
        let mut shape = self.clone();
        for part in shape.rounds.iter_mut().flatten().flatten() {
            if let Part::Fixed(text) = part {
                *text = text.replace(&self.name, name);
            }
        }
        shape
    }
}

/// Splits an owner's value around the one field that is another in another attempt.
fn around_number(first: &str, second: &str) -> (String, String) {
    let same = first.split(':').zip(second.split(':')).take_while(|(a, b)| a == b);
    let before: usize = same.map(|(field, _)| field.len() + 1).sum();
    let number = second[before..].split(':').next().unwrap_or_default();
    let after = &second[before + number.len()..];
    assert!(first.ends_with(after), "owners differ in more than a number: {first}, {second}");
    (second[..before].to_owned(), after.to_owned())
}

/// What the server is told, as `MONITOR` shows it.
struct Log {
    lines: BufReader<UnixStream>,
    marker: Connection,
    name: String,
}

impl Log {
    const MARK: &str = "the end of an operation";

    fn new(server: &Server, name: &str) -> Log {
        let mut stream = UnixStream::connect(server.socket()).expect("the server's socket");
        stream.write_all(b"MONITOR\r\n").expect("the server listens");
        let (lines, marker) = (BufReader::new(stream), server.connection());
        let mut log = Log { lines, marker, name: name.to_owned() };
        assert_eq!(log.line(), "+OK", "the server lets us watch");
        log
    }

    /// Notes what an operation sends about the lock.
    fn note<T>(&mut self, operation: impl FnOnce() -> T) -> (T, Vec<Vec<String>>) {
        self.since_last();
        let outcome = operation();
        (outcome, self.since_last())
    }

    fn since_last(&mut self) -> Vec<Vec<String>> {
        let mark: String =
            redis::cmd("ECHO").arg(Self::MARK).query(&mut self.marker).expect("an answer to ECHO");
        let mut sent = Vec::new();
        loop {
            let line = self.line();
            // After the time comes where it is from, which is `lua` for what scripts call.
            let (origin, command) = line.split_once("] ").expect("a line of MONITOR");
            let words = words(command);
            if words.last() == Some(&mark) {
                return sent;
            }
            let about = |word: &String| word.contains(&self.name);
            let transaction = ["MULTI", "EXEC"].contains(&words[0].as_str());
            if !origin.ends_with(" lua") && (transaction || words.iter().any(about)) {
                sent.push(words);
            }
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("the server goes on");
        line.trim_end().to_owned()
    }
}

/// The parts of a command, each in quotes; what is escaped within is of no interest here.
fn words(command: &str) -> Vec<String> {
    command.trim_matches('"').split("\" \"").map(str::to_owned).collect()
}

/// A lock of one name, on one bare connection.
pub(crate) struct Raw {
    connection: Connection,
    shape: Shape,
    attempt: u64,
    /// The server's time in µs, and when it was read.
    server_time: (u64, Instant),
}

impl Raw {
    /// A lock like the one that the shape was learned from, but of this name.
    pub(crate) fn new(url: &str, shape: &Shape, name: &str) -> Raw {
        let mut connection = connect(url);
        let (seconds, micros): (u64, u64) =
            redis::cmd("TIME").query(&mut connection).expect("the server tells the time");
        let server_time = (seconds * 1_000_000 + micros, Instant::now());
        Raw { connection, shape: shape.renamed(name), attempt: ATTEMPTS, server_time }
    }

    /// Takes the lock and gives it back.
    pub(crate) fn lock_unlock(&mut self) {
        self.with(|| ());
    }

    /// Takes the lock, works, and gives it back; answers how long the last exchange took.
    pub(crate) fn with(&mut self, work: impl FnOnce()) -> Duration {
        self.attempt += 1;
        let (before, after) = &self.shape.owner;
        let owner = format!("{before}{:x}{after}", self.attempt);
        let (mut work, mut start) = (Some(work), Instant::now());
        for (place, round) in self.shape.rounds.iter().enumerate() {
            if place + 1 == self.shape.rounds.len()
                && let Some(work) = work.take()
            {
                work();
                start = Instant::now();
            }
            let mut packed = Vec::new();
            for parts in round {
                let mut command = Cmd::new();
                for part in parts {
                    match part {
                        Part::Fixed(text) => command.arg(text),
                        Part::Owner => command.arg(&owner),
                        Part::Deadline => command.arg(self.deadline()),
                    };
                }
                command.write_packed_command(&mut packed);
            }
            let answer = match round.len() {
                1 => self.connection.req_packed_command(&packed),
                count => self
                    .connection
                    .req_packed_commands(&packed, count - 1, 1)
                    .map(|mut answers| answers.swap_remove(0)),
            };
            let answer = answer.and_then(Value::extract_error).expect("no error");
            assert!(is_success(&answer), "a raw lock failed: {answer:?}");
        }
        start.elapsed()
    }

    /// The server's time that is surely reached when a command must be over.
    fn deadline(&self) -> u64 {
        let ahead = self.server_time.1.elapsed() + PATIENCE;
        let sure = ahead - ahead / 100 - Duration::from_millis(2);
        self.server_time.0 + sure.as_micros() as u64
    }
}

/// Scripts answer a number above 0, or a list that begins with 1, if they did what they are for.
fn is_success(answer: &Value) -> bool {
    match answer {
        Value::Int(number) => *number > 0,
        Value::Array(parts) => parts.first() == Some(&Value::Int(1)),
        Value::Nil => false,
        _ => true,
    }
}

/// The lock of many an article: `SET NX PX`, and a compare-and-delete script.
pub(crate) struct Plain {
    connection: Connection,
    release: String,
    owner: String,
    attempt: u64,
    name: String,
}

impl Plain {
    const RELEASE: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then \
                           return redis.call('del',KEYS[1]) else return 0 end";

    /// A lock of this name, whose owners are as long as those of the shape.
    pub(crate) fn new(url: &str, shape: &Shape, name: &str) -> Plain {
        let mut connection = connect(url);
        let release = load(&mut connection, Self::RELEASE);
        let owner = shape.owner.0.clone() + &shape.owner.1;
        Plain { connection, release, owner, attempt: ATTEMPTS, name: name.to_owned() }
    }

    /// Takes the lock and gives it back.
    pub(crate) fn lock_unlock(&mut self) {
        self.with(|| ());
    }

    /// Takes the lock, works, and gives it back.
    pub(crate) fn with(&mut self, work: impl FnOnce()) {
        self.attempt += 1;
        let owner = format!("{}{:x}", self.owner, self.attempt);
        let mut set = Cmd::new();
        set.arg("SET").arg(&self.name).arg(&owner).arg("NX").arg("PX").arg(30_000);
        let taken: bool = set.query(&mut self.connection).expect("an answer to SET");
        assert!(taken, "a plain lock is held by somebody else");
        work();
        let mut call = Cmd::new();
        call.arg("EVALSHA").arg(&self.release).arg(1).arg(&self.name).arg(&owner);
        let deleted: bool = call.query(&mut self.connection).expect("an answer to a script");
        assert!(deleted, "a plain lock was lost");
    }
}

/// Makes the server know a script; answers its hash.
fn load(connection: &mut Connection, script: &str) -> String {
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg(script).query(connection).expect("the server takes the script")
}

/// Opens a bare connection with the socket options that the library uses.
pub(crate) fn connect(url: &str) -> Connection {
    let info = url.into_connection_info().expect("a URL of our server");
    let settings = info.redis_settings().clone().set_skip_set_lib_name();
    let info = info
        .set_redis_settings(settings)
        .set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let connection = redis::Client::open(info)
        .and_then(|client| client.get_connection())
        .expect("our server takes connections");
    connection.set_read_timeout(Some(PATIENCE)).expect("a time-out is set");
    connection.set_write_timeout(Some(PATIENCE)).expect("a time-out is set");
    connection
}
