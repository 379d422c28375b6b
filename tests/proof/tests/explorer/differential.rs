//! The steps of `server.rs` against the real scripts on a real server, in random sequences.
//!
//! A tick is ten thousand seconds, so that real time does not count. The server's
//! clock is put into the scripts in the place of TIME; when ticks pass, every key is made to live as
//! much shorter.

use redis::{Cmd, Connection, FromRedisValue, Value};

use crate::protocol::{Acquire, Answer, Attempt, Mode, Time, Token, Verdict, Wake};
use crate::scenario::Setting;
use crate::server::{QUEUE_REST, Server};
use crate::sorted::Sorted;

/// Milliseconds of a tick.
const TICK: i64 = 10_000_000;
const KEYS: [&str; 4] = ["x", "{x}:fence", "{x}:queue", "{x}:beats"];
const CLIENTS: u8 = 3;

const SETTING: Setting = Setting {
    heartbeat: 1,
    exchange: 1,
    allowance: 0,
    tokens_per_tick: TICK * 1_000,
    extension: 0,
    hold: 0,
    numsub: true,
    mutation: None,
};

macro_rules! script {
    ($($part:literal),*) => {
        concat!($(include_str!(concat!("../../../../src/kind/", $part, ".lua"))),*)
    };
}

const ACQUIRE: &str = script!("mutex/acquire", "token", "mutex/queue", "mutex/wait");
const RELEASE: &str = script!("mutex/release", "token", "mutex/queue", "mutex/pass");
const RENEW: &str = script!("mutex/renew");

/// Where the real scripts run.
struct Real {
    connection: Connection,
    /// Whoever it belongs to may do everything.
    control: Connection,
    /// The subscribers of each client: at the server, and at its replica.
    ears: Vec<[Connection; 2]>,
    /// At the replica.
    aside: Connection,
    now: Time,
}

impl Real {
    fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> T {
        command.query(&mut self.connection).expect("an answer")
    }

    fn run(&mut self, script: &str, arguments: &[Vec<u8>]) -> Vec<i64> {
        let seconds = i64::from(self.now) * TICK / 1_000;
        let time = format!("{{'{seconds}', '000000'}}");
        let text = script
            .replace("redis.call('TIME')", &time)
            .replace("'60000'", &format!("'{}'", i64::from(QUEUE_REST) * TICK));
        assert!(script == RENEW || text != script, "the scripts read the time otherwise now");
        let mut command = redis::cmd("EVAL");
        command.arg(text).arg(KEYS.len()).arg(&KEYS[..]).arg(arguments);
        match self.ask(&command) {
            Value::Int(number) => vec![number],
            other => Vec::from_redis_value(other).expect("numbers"),
        }
    }

    fn pass(&mut self, ticks: Time) {
        self.now += ticks;
        for key in KEYS {
            let left: i64 = self.ask(redis::cmd("PTTL").arg(key));
            assert_ne!(left, -1, "{key} never ends");
            let left = left - i64::from(ticks) * TICK;
            let left = if left < TICK / 2 { 0 } else { left };
            // Where it is gone already this does nothing.
            self.ask::<()>(redis::cmd("PEXPIRE").arg(key).arg(left.max(0)));
        }
    }

    fn left(&mut self, key: &str) -> Option<Time> {
        let left: i64 = self.ask(redis::cmd("PTTL").arg(key));
        (left >= 0).then(|| self.now + ticks(left))
    }

    fn sorted(&mut self, key: &str, divisor: i64) -> Sorted {
        let mut command = redis::cmd("ZRANGE");
        let members: Vec<(String, i64)> =
            self.ask(command.arg(key).arg(0).arg(-1).arg("WITHSCORES"));
        let members = members.into_iter().map(|(value, score)| {
            (attempt(&value), Time::try_from(score / divisor).expect("not so many"))
        });
        Sorted { members: members.collect(), until: self.left(key) }
    }

    /// Makes a client listen at the server, or at its replica, or not any more.
    fn hears(&mut self, client: u8, at_replica: bool, hears: bool) {
        // The replica has yet to hear what was published before.
        self.ask::<u8>(redis::cmd("WAIT").arg(1).arg(0));
        let ear = &mut self.ears[usize::from(client)][usize::from(at_replica)];
        let command = if hears { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
        ear.send_packed_command(&redis::cmd(command).arg(channel(client)).get_packed_command())
            .expect("it is sent");
        ear.recv_response().expect("it is confirmed");
        // A server confirms before the next command of another connection finds it so.
        let mut asked = redis::cmd("PUBSUB");
        asked.arg("NUMSUB").arg(channel(client));
        let server = if at_replica { &mut self.aside } else { &mut self.control };
        while asked.query::<(String, u8)>(server).expect("an answer").1 != u8::from(hears) {}
    }

    /// What was published to a client that listens.
    fn heard(&mut self, client: u8, at_replica: bool) -> Vec<String> {
        self.ask::<()>(redis::cmd("PUBLISH").arg(channel(client)).arg("end"));
        let mut heard = Vec::new();
        let ear = &mut self.ears[usize::from(client)][usize::from(at_replica)];
        loop {
            let message = ear.recv_response().expect("a message");
            let payload = match message {
                Value::Push { data, .. } => data.into_iter().next_back(),
                Value::Array(parts) => parts.into_iter().next_back(),
                _ => None,
            };
            let payload = String::from_redis_value(payload.expect("a payload")).expect("text");
            match payload.as_str() {
                "end" => return heard,
                wanted if wanted.starts_with('w') => {}
                _ => heard.push(payload),
            }
        }
    }
}

/// To the nearest: some milliseconds have really passed.
fn ticks(millis: i64) -> Time {
    Time::try_from((millis + TICK / 2) / TICK).expect("not so many")
}

fn channel(client: u8) -> String {
    format!("leasehold:a{client}")
}

fn value(attempt: Attempt) -> Vec<u8> {
    let Attempt { client, number, window } = attempt;
    format!("1q:a{client}:{number:x}:{}:1:h:", i64::from(window) * TICK).into_bytes()
}

fn attempt(value: &str) -> Attempt {
    let parts: Vec<&str> = value.split(':').collect();
    Attempt {
        client: parts[1][1..].parse().expect("a client"),
        number: u8::from_str_radix(parts[2], 16).expect("a number"),
        window: ticks(parts[3].parse().expect("a window")),
    }
}

fn number(number: impl Into<i64>) -> Vec<u8> {
    number.into().to_string().into_bytes()
}

fn span(ticks: Time) -> Vec<u8> {
    number(i64::from(ticks) * TICK)
}

/// The three answers that a verdict may be.
fn verdict(verdict: Verdict) -> Vec<i64> {
    vec![match verdict {
        Verdict::Done => 1,
        Verdict::Gone => 0,
        Verdict::Taken => -1,
    }]
}

/// What the script would have answered, as far as it is modelled.
fn same_answer(answer: Answer, real: &[i64], request: &Acquire, now: Time) -> bool {
    let micros = SETTING.micros(now);
    match (answer, real) {
        (Answer::Granted { token, left, .. }, [1, real, millis, ..]) => {
            token == *real && left == ticks(*millis)
        }
        (Answer::Granted { token, left, .. }, [real]) => {
            token == *real && token == micros && left == request.ttl
        }
        (Answer::Busy { left, .. }, [0, millis, ..]) => left == ticks(*millis),
        (Answer::Late { .. }, [2, real]) | (Answer::Gone { .. }, [3, real]) => micros == *real,
        _ => false,
    }
}

/// The time to live that a client asks for.
fn ttl_of(client: u8) -> Time {
    Time::from(client) * 2 + 2
}

fn attempt_of(client: u8, number: u8) -> Attempt {
    Attempt { client, number, window: ttl_of(client).min(SETTING.claim()) }
}

struct Pair {
    setting: Setting,
    model: Server,
    real: Real,
    random: fastrand::Rng,
}

impl Pair {
    fn attempt(&mut self) -> (Attempt, Time) {
        let client = self.random.u8(..CLIENTS);
        (attempt_of(client, self.random.u8(1..=3)), ttl_of(client))
    }

    fn acquire(&mut self, request: &Acquire) -> String {
        let (now, ttl) = (self.real.now, request.ttl);
        let (answer, effect) = self.model.acquire(now, request, &self.setting);
        let mode = format!("{:?}", request.mode).to_lowercase().into_bytes();
        let dead = number(SETTING.micros(SETTING.dead_after()));
        let (fence, queue) = (span(SETTING.fence(ttl)), span(SETTING.queue_keep(ttl)));
        let (owner, deadline) = (value(request.owner), number(request.deadline));
        let real = self.real.run(ACQUIRE, &[owner, span(ttl), deadline, fence, mode, dead, queue]);
        let what = format!("{request:?}: {answer:?}, {real:?}");
        assert!(same_answer(answer, &real, request, now), "{what}");
        self.compare(&effect.published, &what);
        what
    }

    fn release(&mut self, owner: Attempt, ttl: Time, last: Option<Token>) -> String {
        let (told, effect) = self.model.release(self.real.now, owner, ttl, last, &self.setting);
        let fence = span(SETTING.fence(ttl));
        let real = self.real.run(RELEASE, &[value(owner), fence, number(last.unwrap_or(0))]);
        let what = format!("release of {owner:?}, {last:?}: {told:?}, {real:?}");
        assert_eq!(verdict(told), real, "{what}");
        self.compare(&effect.published, &what);
        what
    }

    fn renew(&mut self, owner: Attempt, ttl: Time) -> String {
        let (told, _) = self.model.renew(self.real.now, owner, ttl, &self.setting);
        let fence = span(SETTING.fence(ttl));
        let real = self.real.run(RENEW, &[value(owner), span(ttl), number(1), fence]);
        let what = format!("renewal of {owner:?} to {ttl}: {told:?}, {real:?}");
        assert_eq!(verdict(told), real, "{what}");
        self.compare(&[], &what);
        what
    }

    fn pass(&mut self, ticks: Time) -> String {
        self.real.pass(ticks);
        self.model.purge(self.real.now);
        let what = format!("{ticks} ticks");
        self.compare(&[], &what);
        what
    }

    /// One random step on both sides. Answers what it was.
    fn step(&mut self) -> String {
        let now = self.real.now;
        let (owner, ttl) = self.attempt();
        match self.random.u8(..20) {
            0..=8 => {
                let mode = [Mode::Try, Mode::Join, Mode::Join, Mode::Beat, Mode::Beat];
                let mode = mode[self.random.usize(..mode.len())];
                let deadline = match self.random.i16(-1..6) {
                    5 => 0,
                    ahead => SETTING.micros(now + ahead),
                };
                self.acquire(&Acquire { owner, ttl, mode, deadline })
            }
            9..=12 => {
                // Those who have it release more often than by chance.
                let holder = self.model.lock.map(|lock| lock.owner).filter(|_| self.random.bool());
                let owner = holder.unwrap_or(owner);
                let last = self.random.bool().then(|| SETTING.micros(now) + 1);
                self.release(owner, ttl_of(owner.client), last)
            }
            13..=14 => {
                let owner = self.model.lock.map_or(owner, |lock| lock.owner);
                self.renew(owner, ttl)
            }
            15..=18 => {
                let ticks = self.random.i16(1..3);
                self.pass(ticks)
            }
            _ => {
                let (client, bit) = (owner.client, 1 << owner.client);
                let at_replica = match self.model.reaches(client) {
                    true => self.model.at_replica & bit != 0,
                    false => self.random.u8(..3) == 0,
                };
                self.model.heard ^= bit;
                self.model.at_replica &= !bit;
                self.model.at_replica |= if at_replica { bit } else { 0 };
                let hears = self.model.reaches(client);
                self.real.hears(client, at_replica, hears);
                format!("client {client} hears: {hears}, at a replica: {at_replica}")
            }
        }
    }

    fn compare_published(&mut self, published: &[(u8, Wake)], what: &str) {
        for client in 0..CLIENTS {
            if !self.model.reaches(client) {
                continue;
            }
            let heard = self.real.heard(client, !self.model.counts(client));
            let mine = published.iter().filter(|(to, _)| *to == client);
            let mine: Vec<&Wake> = mine.map(|(_, wake)| wake).collect();
            assert_eq!(heard.len(), mine.len(), "{what}: {heard:?}, {mine:?}");
            for (text, wake) in heard.iter().zip(mine) {
                let fields: Vec<&str> = text.split(' ').collect();
                let same = match wake {
                    Wake::Retry => fields[0] == "r",
                    Wake::Granted(grant) => {
                        let expected = [
                            format!("{:x}", grant.number),
                            grant.token.to_string(),
                            SETTING.micros(grant.now).to_string(),
                            (i64::from(grant.window) * TICK).to_string(),
                        ];
                        fields[0] == "g" && fields[1..5] == expected
                    }
                };
                assert!(same, "{what}: {text}, {wake:?}");
            }
        }
    }

    fn compare(&mut self, published: &[(u8, Wake)], what: &str) {
        self.compare_published(published, what);
        let owner: Option<String> = self.real.ask(redis::cmd("GET").arg(KEYS[0]));
        let real = owner.map(|owner| attempt(&owner)).zip(self.real.left(KEYS[0]));
        assert_eq!(self.model.lock.map(|lock| (lock.owner, lock.until)), real);
        let fence: Option<Token> = self.real.ask(redis::cmd("GET").arg(KEYS[1]));
        assert_eq!(self.model.fence, fence.zip(self.real.left(KEYS[1])));
        assert_eq!(self.model.queue, self.real.sorted(KEYS[2], 1));
        assert_eq!(self.model.beats, self.real.sorted(KEYS[3], TICK * 1_000));
        for set in [&self.model.queue, &self.model.beats] {
            assert!(set.members.is_empty() || set.until.is_some(), "{what}: {set:?} has no end");
        }
    }
}

impl Pair {
    /// With a seed that is odd, the scripts may not ask how many listen to a channel.
    fn new(servers: [&leasehold_support::Server; 2], seed: u64) -> Pair {
        let (mut connection, control) = (servers[0].connection(), servers[0].connection());
        redis::cmd("FLUSHALL").exec(&mut connection).expect("it is empty");
        let numsub = seed.is_multiple_of(2);
        if !numsub {
            let user = ["SETUSER", "unasked", "on", "nopass", "~*", "&*", "+@all"];
            let mut command = redis::cmd("ACL");
            command.arg(&user[..]).arg("-pubsub|numsub").exec(&mut connection).expect("a user");
            let login = redis::cmd("AUTH").arg("unasked").arg("").exec(&mut connection);
            login.expect("it is let in");
        }
        let ears = (0..CLIENTS).map(|_| servers.map(leasehold_support::Server::connection));
        let (ears, aside) = (ears.collect(), servers[1].connection());
        let mut pair = Pair {
            setting: Setting { numsub, ..SETTING },
            model: Server::default(),
            real: Real { connection, control, ears, aside, now: 10 },
            random: fastrand::Rng::with_seed(seed),
        };
        for client in 0..CLIENTS {
            pair.model.heard |= 1 << client;
            pair.real.hears(client, false, true);
        }
        pair
    }
}

/// What went before, told if the next step fails.
struct Way(Vec<String>);

impl Drop for Way {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.0.join("\n"));
        }
    }
}

#[test]
fn the_steps_are_those_of_the_scripts() {
    let (server, replica) = leasehold_support::Server::start_with_replica().expect("two servers");
    for seed in 0..40 {
        let mut pair = Pair::new([&server, &replica], seed);
        let mut way = Way(vec![format!("seed {seed}")]);
        for _ in 0..150 {
            let what = pair.step();
            way.0.push(format!("t={} {what}", pair.real.now));
        }
    }
}

/// The dead were left a queue that outlived their beats: whoever joined it then and died before its
/// first beat left beats without an end.
#[test]
fn a_queue_of_the_dead_makes_no_key_without_an_end() {
    let (server, replica) = leasehold_support::Server::start_with_replica().expect("two servers");
    let mut pair = Pair::new([&server, &replica], 0);
    let join = |client, number| Acquire {
        owner: attempt_of(client, number),
        ttl: ttl_of(client),
        mode: Mode::Join,
        deadline: 0,
    };
    pair.acquire(&join(2, 1));
    pair.acquire(&join(1, 1));
    pair.pass(SETTING.dead_after() + 1);
    // Client 1 is skipped, and stays in the queue alone.
    pair.release(attempt_of(2, 1), ttl_of(2), None);
    assert!(pair.model.queue.contains(attempt_of(1, 1)));
    pair.pass(SETTING.queue_keep(ttl_of(1)));
    pair.acquire(&join(2, 2));
    pair.acquire(&join(0, 1));
    assert!(pair.model.beats.contains(attempt_of(0, 1)));
}
