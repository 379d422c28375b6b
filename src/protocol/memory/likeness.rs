//! The scripts in memory are like those on a server: both are given the same requests, in random
//! order and at the same time, and must answer the same, publish the same, and leave the same keys.
//!
//! The server's time is given to the real scripts in place of `TIME`, so that both see the same to
//! the microsecond. Keys end by each one's own clock, so leases are long here.

use std::time::Duration;

use fastrand::Rng;
use leasehold_support::Server;
use redis::{Cmd, Connection};

use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::sync::Arc;
use crate::kind::mutex::MutexKind;
use crate::kind::reentrant::ReentrantKind;
use crate::protocol::recipe::Kind;
use crate::protocol::request::{Attempt, Mode};
use crate::protocol::target::Target;
use crate::protocol::wake::client_channel;
use crate::wire::Value;
use crate::wire::line::Line;
use crate::wire::script::{Argument, Call};
use crate::wire::subscription::{Event, Place, Subscription};

use super::request::Request;
use super::store::{Store, WrongType};

/// How far the scripted time goes in one sequence, and so how far times to live may be apart: less
/// than the shortest of them.
const SPAN: u64 = 45_000_000;
const APART: i64 = 50_000;
const START: u64 = 1_800_000_000_000_000;

const CLIENTS: usize = 3;
const SOON: Duration = Duration::from_secs(10);

/// What a key holds, in a form that both sides have.
#[derive(Debug, PartialEq)]
enum Found {
    Nothing,
    Text(Vec<u8>),
    Pairs(Vec<(Vec<u8>, Vec<u8>)>),
    Scores(Vec<(i64, Vec<u8>)>),
}

struct Pair {
    rng: Rng,
    control: Connection,
    /// At the replica of the server that `control` is connected to.
    aside: Connection,
    store: Store,
    target: Arc<Target>,
    clients: Vec<Client>,
    /// The channel that tells where the messages of one request end.
    mark: Vec<u8>,
    micros: u64,
    /// What happened, for whoever has to find out why the two differ.
    history: Vec<String>,
}

struct Client {
    identity: Identity,
    channel: Vec<u8>,
    /// At the server, and at its replica.
    ears: [Subscription; 2],
    /// With which of them it listens to its own channel.
    listens: Option<usize>,
    owners: Vec<Vec<u8>>,
}

impl Pair {
    fn new(servers: [&Server; 2], kind: &'static dyn Kind, seed: u64) -> Pair {
        let name = format!("like:{}:{seed}", kind.name());
        let target = Target::new(kind, Name::new(b"", name.as_bytes()).unwrap());
        let mark = format!("mark:{name}").into_bytes();
        let mut store = Store::default();
        let clients = (0..CLIENTS)
            .map(|number| {
                let identity = Identity::new("like");
                let mut ears = servers.map(|server| {
                    let url = format!("{}?protocol=resp3", server.url());
                    let connection = redis::Client::open(url).unwrap().get_connection().unwrap();
                    Subscription::new(Line::Open(connection), SOON, &mark, Place::Any).unwrap()
                });
                if let Some(channel) = target.channel() {
                    ears[0].subscribe(channel).unwrap();
                    store.subscribe(of_name(number), channel);
                }
                let channel = client_channel(&identity);
                Client { identity, channel, ears, listens: None, owners: Vec::new() }
            })
            .collect();
        let rng = Rng::with_seed(seed);
        let [control, aside] = servers.map(Server::connection);
        let (micros, history) = (START, Vec::new());
        let mut pair = Pair { rng, control, aside, store, target, clients, mark, micros, history };
        pair.await_listeners(&pair.mark.clone(), [CLIENTS, CLIENTS]);
        if let Some(channel) = pair.target.clone().channel() {
            pair.await_listeners(channel, [CLIENTS, 0]);
        }
        pair
    }

    /// What one connection asked for may come after what the next asked for.
    fn await_listeners(&mut self, channel: &[u8], counts: [usize; 2]) {
        let mut ask = redis::cmd("PUBSUB");
        ask.arg("NUMSUB").arg(channel);
        loop {
            let found = [&mut self.control, &mut self.aside]
                .map(|server| ask.query::<(Vec<u8>, usize)>(server).unwrap().1);
            if found == counts {
                return;
            }
        }
    }

    fn step(&mut self) {
        let step = *self.rng.choice(&[0, 0, 1, 999, 1000, 70_000, 1_000_000, 3_000_001]).unwrap();
        self.micros = (self.micros + step).min(START + SPAN);
        let client = self.rng.usize(..CLIENTS);
        match self.rng.u32(..100) {
            0..5 => self.toggle(client),
            5..14 => self.tamper(),
            14..20 => {
                let owner = self.holder().filter(|_| self.rng.u32(..3) > 0);
                let owner = owner.unwrap_or_else(|| self.owner(client));
                let deadlines = [self.micros, self.micros + 1_000_000, self.micros - 1];
                let deadline = *self.rng.choice(&deadlines).unwrap();
                self.request(Request::Force { owner, deadline, fence: 300_000 });
            }
            20..22 => self.request(Request::Ask),
            22..26 => self.request(Request::Inspect),
            choice => {
                let owner = self.owner(client);
                let ttl = Duration::from_secs(*self.rng.choice(&[100, 500, 2000]).unwrap());
                let tokens = [None, None, Some(self.micros - 5), Some(self.micros + 9)];
                let last_token = *self.rng.choice(&tokens).unwrap();
                let count = self.rng.u32(1..4);
                let request = match choice {
                    26..40 => Request::release(&owner, ttl, last_token),
                    40..50 => Request::renew(&owner, ttl, count),
                    _ => self.acquire(&owner, ttl),
                };
                self.request(request);
            }
        }
    }

    fn acquire(&mut self, owner: &[u8], ttl: Duration) -> Request {
        let modes = [Mode::Try, Mode::Join, Mode::Join, Mode::Beat];
        let attempt = Attempt {
            owner,
            ttl,
            mode: *self.rng.choice(&modes).unwrap(),
            dies_after: Duration::from_secs(*self.rng.choice(&[1, 3, 10]).unwrap()),
        };
        let deadlines = [0, self.micros, self.micros + 1_000_000, self.micros - 1];
        Request::acquire(&attempt, *self.rng.choice(&deadlines).unwrap())
    }

    /// Any owner of the lock, foreign or not.
    fn holder(&mut self) -> Option<Vec<u8>> {
        let (found, _) = self.store.serve(&self.target, &Request::Inspect, self.micros);
        self.target.kind().inspected(found.ok()?).ok()?.map(|holder| holder.owner)
    }

    /// An attempt of a client, mostly one of its earlier ones.
    fn owner(&mut self, client: usize) -> Vec<u8> {
        let client = &mut self.clients[client];
        if client.owners.len() < 2 || self.rng.u32(..12) == 0 {
            let window = Duration::from_secs(*self.rng.choice(&[100, 700]).unwrap());
            let number = client.identity.next_attempt();
            let queues = self.rng.u32(..6) > 0;
            let kind = self.target.kind();
            client.owners.push(kind.owner(&client.identity, number, window, queues));
        }
        let recent = client.owners.len().saturating_sub(3);
        self.rng.choice(&client.owners[recent..]).unwrap().clone()
    }

    /// A client that listens does so no more; another begins to, here or at the replica.
    fn toggle(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let channel = client.channel.clone();
        let place = if let Some(place) = client.listens.take() {
            client.ears[place].unsubscribe(&channel).unwrap();
            self.store.unsubscribe(number as u64, &channel);
            None
        } else {
            let place = usize::from(self.rng.u32(..3) == 0);
            client.ears[place].subscribe(&channel).unwrap();
            self.store.subscribe(number as u64, &channel);
            self.store.put_at_replica(number as u64, place == 1);
            Some(place)
        };
        client.listens = place;
        self.history.push(format!("client {number} listens at {place:?}"));
        self.await_listeners(&channel, [0, 1].map(|one| usize::from(place == Some(one))));
    }

    /// What an operator, or somebody's mistake, does to the keys.
    fn tamper(&mut self) {
        let keys = self.target.keys().to_vec();
        let key = self.rng.choice(&keys[..keys.len().min(4)]).unwrap().clone();
        let mut command = Cmd::new();
        let mut run = self.store.at(self.micros);
        let what = self.rng.u32(..9);
        match what {
            0..3 => {
                run.del(&key);
                command.arg("DEL").arg(&key);
            }
            3 => {
                run.del(&key);
                command.arg("PEXPIRE").arg(&key).arg(0);
            }
            4 => {
                let value = *self.rng.choice(&["junk", "7", "1800000050000000"]).unwrap();
                let ttl = self.rng.bool().then_some(400_000_u64);
                run.set(&key, value.as_bytes(), ttl);
                command.arg("SET").arg(&key).arg(value);
                if let Some(ttl) = ttl {
                    command.arg("PX").arg(ttl);
                }
            }
            5 => {
                run.del(&key);
                run.hset(&key, b"field", b"1").unwrap();
                redis::cmd("DEL").arg(&key).exec(&mut self.control).unwrap();
                command.arg("HSET").arg(&key).arg("field").arg(1);
            }
            6 => {
                // A token that is ahead of the server's clock.
                let ahead = self.micros + self.rng.u64(..5_000_000);
                run.set(&keys[1], ahead.to_string().as_bytes(), Some(3_000_000));
                command.arg("SET").arg(&keys[1]).arg(ahead).arg("PX").arg(3_000_000);
            }
            // Somebody died long ago.
            _ => {
                let client = self.rng.choice(&self.clients).unwrap();
                let (Some(owner), Some(beats)) = (self.rng.choice(&client.owners), keys.get(3))
                else {
                    return;
                };
                let Ok(Some(_)) = run.zscore(beats, owner) else { return };
                let death = (START - self.rng.u64(1..4_000) * 1_000_000) as i64;
                run.zadd(beats, owner, death).unwrap();
                command.arg("ZADD").arg(beats).arg("XX").arg(death).arg(owner);
            }
        }
        self.history.push(format!("tampering {what} with {}", key.escape_ascii()));
        command.exec(&mut self.control).unwrap();
        self.compare_keys();
    }

    fn request(&mut self, request: Request) {
        self.history.push(format!("+{} µs: {request:?}", self.micros - START));
        let real = self.real(&request);
        let (answer, published) = self.store.serve(&self.target, &request, self.micros);
        let answer = answer.map_err(|WrongType| "WRONGTYPE".to_owned());
        let same = match (&real, &answer) {
            (Ok(real), Ok(answer)) => is_like(real, answer),
            (real, answer) => real == answer,
        };
        assert!(same, "{real:?} on the server, {answer:?} in memory; {:#?}", self.recent());
        redis::cmd("PUBLISH").arg(&self.mark).arg("").exec(&mut self.control).unwrap();
        for number in 0..CLIENTS {
            let heard = self.heard(number);
            let told: Vec<_> = published
                .iter()
                .filter(|told| {
                    let ears = [number as u64, of_name(number)];
                    self.store.hearers(&told.channel).any(|ear| ears.contains(&ear))
                })
                .map(|told| (told.channel.clone(), told.payload.clone()))
                .collect();
            assert_eq!(heard, told, "client {number}; {:#?}", self.recent());
        }
        self.compare_keys();
    }

    /// Runs the real script, or command, with our time for the server's.
    fn real(&mut self, request: &Request) -> Result<Value, String> {
        let call = real_call(&self.target, request);
        let Some(call) = call else { return Ok(Value::Int(0)) };
        let mut parts = call.with_source().as_ref().unwrap_or(&call).parts();
        if parts[0] == b"EVAL" {
            let source = String::from_utf8(parts[1].clone()).unwrap();
            let time = "{ARGV[#ARGV - 1], ARGV[#ARGV]}";
            parts[1] = source.replace("redis.call('TIME')", time).into_bytes();
            parts.push((self.micros / 1_000_000).to_string().into_bytes());
            parts.push((self.micros % 1_000_000).to_string().into_bytes());
        }
        let mut command = Cmd::new();
        for part in parts {
            command.arg(part);
        }
        command
            .query::<Value>(&mut self.control)
            .map_err(|error| error.code().unwrap_or_default().to_owned())
    }

    fn recent(&self) -> &[String] {
        &self.history[self.history.len().saturating_sub(12)..]
    }

    fn heard(&mut self, client: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut heard = Vec::new();
        for ear in &mut self.clients[client].ears {
            loop {
                match ear.next(SOON).unwrap() {
                    Event::Message { channel, .. } if channel == self.mark => break,
                    Event::Message { channel, payload } => heard.push((channel, payload)),
                    Event::Subscribed { .. } | Event::Nothing => {}
                }
            }
        }
        heard
    }

    fn compare_keys(&mut self) {
        for key in self.target.keys().to_vec() {
            let found = self.found(&key);
            let run = self.store.at(self.micros);
            let kept = match (run.get(&key), run.zrange(&key), run.hkeys(&key)) {
                (Ok(Some(text)), _, _) => Found::Text(text),
                (Ok(None), _, _) => Found::Nothing,
                (_, Ok(scores), _) => Found::Scores(scores),
                (_, _, Ok(fields)) => Found::Pairs(
                    fields
                        .into_iter()
                        .map(|field| {
                            let value = run.hget(&key, &field).unwrap().unwrap();
                            (field, value)
                        })
                        .collect(),
                ),
                odd => panic!("{odd:?}"),
            };
            let kept = (kept, run.pttl(&key));
            let same = found.0 == kept.0 && is_close(found.1, kept.1);
            let key = key.escape_ascii();
            assert!(
                same,
                "{key}: {found:?} on the server, {kept:?} in memory; {:#?}",
                self.recent()
            );
        }
    }

    fn found(&mut self, key: &[u8]) -> (Found, i64) {
        let control = &mut self.control;
        let mut ask = |words: &[&[u8]]| {
            let mut command = Cmd::new();
            words.iter().for_each(|word| {
                command.arg(*word);
            });
            command.query::<Value>(control).unwrap()
        };
        let ttl = redis::from_redis_value(ask(&[b"PTTL", key])).unwrap();
        let kind: String = redis::from_redis_value(ask(&[b"TYPE", key])).unwrap();
        let found = match kind.as_str() {
            "none" => Found::Nothing,
            "string" => Found::Text(redis::from_redis_value(ask(&[b"GET", key])).unwrap()),
            "hash" => Found::Pairs(redis::from_redis_value(ask(&[b"HGETALL", key])).unwrap()),
            _ => {
                let scores: Vec<(Vec<u8>, f64)> =
                    redis::from_redis_value(ask(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]))
                        .unwrap();
                let whole = |(member, score): (Vec<u8>, f64)| (score as i64, member);
                Found::Scores(scores.into_iter().map(whole).collect())
            }
        };
        (found, ttl)
    }
}

/// With which number a client listens to the channel of the name, which it always does at the server
/// itself: those at the replica are not counted there.
fn of_name(client: usize) -> u64 {
    (client + CLIENTS) as u64
}

/// The command that the engine would have sent for a request.
fn real_call(target: &Target, request: &Request) -> Option<Call> {
    let millis = Duration::from_millis;
    match request {
        Request::Acquire { owner, ttl, deadline, mode, dies_after, .. } => {
            let dies_after = Duration::from_micros(*dies_after);
            let attempt = Attempt { owner, ttl: millis(*ttl), mode: *mode, dies_after };
            Some(target.acquire(&attempt, *deadline))
        }
        Request::Release { owner, fence, last_token } => {
            let last_token = (*last_token != 0).then_some(*last_token);
            Some(target.release(owner, millis(*fence), last_token))
        }
        Request::Renew { owner, ttl, count, .. } => Some(target.renew(owner, millis(*ttl), *count)),
        // The usual fence of a forced release would be over too soon for this comparison.
        Request::Force { owner, deadline, fence } => {
            let script = &target.kind().scripts().force;
            let [deadline, fence] = [*deadline, *fence].map(Argument::Number);
            Some(script.call(target.keys(), &[Argument::Bytes(owner), deadline, fence]))
        }
        Request::Ask => target.request(),
        Request::Inspect => Some(target.inspect()),
        Request::Delete { .. } => None,
    }
}

fn is_close(one: i64, other: i64) -> bool {
    (one < 0) == (other < 0) && if one < 0 { one == other } else { (one - other).abs() < APART }
}

/// Equal but for times to live, which stand second in `{0, …}` and third in `{1, …}`.
fn is_like(real: &Value, answer: &Value) -> bool {
    let (Value::Array(real), Value::Array(answer)) = (real, answer) else { return real == answer };
    let ttl = match real.first() {
        Some(Value::Int(0)) => 1,
        Some(Value::Int(1)) => 2,
        _ => usize::MAX,
    };
    real.len() == answer.len()
        && real.iter().zip(answer).enumerate().all(|(place, pair)| match pair {
            (Value::Int(one), Value::Int(other)) if place == ttl => is_close(*one, *other),
            (one, other) => one == other,
        })
}

fn compare(kind: &'static dyn Kind, seeds: u64, steps: u32) {
    let (server, replica) = Server::start_with_replica().unwrap();
    for seed in 0..seeds {
        let mut pair = Pair::new([&server, &replica], kind, seed);
        for client in 0..CLIENTS {
            pair.toggle(client);
        }
        for _ in 0..steps {
            pair.step();
        }
    }
}

#[test]
fn the_mutex_in_memory_is_like_the_one_on_a_server() {
    compare(&MutexKind, 60, 120);
}

#[test]
fn the_reentrant_lock_in_memory_is_like_the_one_on_a_server() {
    compare(&ReentrantKind, 20, 100);
}
