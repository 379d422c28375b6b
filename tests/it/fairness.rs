//! Processes that wait by listening share a lock: none has it again and again while another listens.

use std::collections::BTreeMap;
use std::sync::Mutex as Shared;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{SOON, ask, exists, heavy, ms, open_at, server, until};
use leasehold_support::child::{hear, role, tell};
use leasehold_support::{Child, Server, lag};
use redis::{Connection, Script};

const NAME: &str = "shared";
const CHANNEL: &str = "redisson_lock__channel:{shared}";
const HOLD: Duration = ms(1);
/// How often the lock is taken in all, and how many of these count: at first not all have begun.
const TAKEN: usize = 600;
const COUNTED: usize = 400;
const THREADS: usize = 2;

/// Holds the lock for a while, alone. Returns whether that is to go on.
fn work(connection: &mut Connection, who: &str) -> bool {
    let mut begin = redis::pipe();
    begin.cmd("INCR").arg("inside").cmd("RPUSH").arg("order").arg(who);
    let (inside, taken): (u64, usize) = begin.query(connection).expect("an answer");
    assert_eq!(inside, 1, "two hold it");
    thread::sleep(HOLD);
    redis::cmd("DECR").arg("inside").exec(connection).expect("an answer");
    taken < TAKEN
}

/// How often each had the lock, in those that count.
#[track_caller]
fn assert_shared(server: &Server, whose: [&str; 2]) {
    let order: Vec<String> = ask(server, &["LRANGE", "order", "0", "-1"]);
    let mut counts = BTreeMap::new();
    for who in &order[TAKEN - COUNTED..TAKEN] {
        *counts.entry(who.as_str()).or_insert(0) += 1;
    }
    for who in whose {
        let count = counts.get(who).copied().unwrap_or(0);
        assert!(count >= COUNTED / 4, "{who} had it {count} times of {COUNTED}: {counts:?}");
    }
}

fn process(server: &Server, who: &str) -> Child {
    let builder = Child::role("contender").test("fairness::roles").env("URL", server.url());
    let mut child = builder.env("WHO", who).start().expect("a child");
    child.expect_line("ready", SOON);
    child
}

#[test]
fn roles() {
    if role().as_deref() == Some("contender") {
        contend();
    }
}

/// Threads of one process that want the lock again as soon as they have released it.
fn contend() {
    let variable = |name| std::env::var(name).expect("the parent sets it");
    let (url, who) = (variable("URL"), variable("WHO"));
    let client = open_at(&url);
    let lock = client.reentrant(NAME).expect("a lock");
    let open = || redis::Client::open(url.as_str())?.get_connection();
    tell("ready");
    hear();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut connection = open().expect("a connection");
                loop {
                    let guard = lock.lock().expect("a wait without trouble");
                    let goes_on = work(&mut connection, &who);
                    guard.release().expect("still ours");
                    if !goes_on {
                        return;
                    }
                }
            });
        }
    });
    tell("done");
}

#[test]
fn two_processes_share_a_reentrant_lock() {
    let _turn = heavy();
    let server = server();
    let mut processes = ["one", "other"].map(|who| process(&server, who));
    processes.iter_mut().for_each(|process| process.say("go"));
    processes.iter_mut().for_each(|process| drop(process.expect_line("done", SOON * 6)));
    assert_shared(&server, ["one", "other"]);
    until("it is given back", || !exists(&server, NAME));
}

/// A thread of a Java service: what Redisson's plain lock sends, each time a millisecond later.
struct Service {
    owner: String,
    commands: Connection,
    listener: Connection,
}

impl Service {
    fn new(server: &Server, thread: usize) -> Service {
        let owner = format!("285475da-9152-4c83-822a-67ee2f116a79:{thread}");
        let listener = server.connection();
        listener.set_read_timeout(Some(SOON)).expect("a time-out");
        Service { owner, commands: server.connection(), listener }
    }

    /// Redisson's script for `tryLock`: how long another has it.
    fn try_lock(&mut self) -> Option<u64> {
        thread::sleep(ms(1));
        let script = "if ((redis.call('exists', KEYS[1]) == 0) or \
            (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then \
            redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); \
            return nil; end; return redis.call('pttl', KEYS[1]);";
        let script = Script::new(script);
        let mut call = script.key(NAME);
        call.arg(30_000).arg(&self.owner).invoke(&mut self.commands).expect("an answer")
    }

    /// Returns when it began to listen, and how often the lock had been taken then, unless it did not have to wait.
    fn lock(&mut self) -> Option<(Instant, usize)> {
        self.try_lock()?;
        redis::cmd("SUBSCRIBE").arg(CHANNEL).exec(&mut self.listener).expect("an answer");
        let taken = redis::cmd("LLEN").arg("order").query(&mut self.commands).expect("a number");
        let begin = (Instant::now(), taken);
        while let Some(left) = self.try_lock() {
            // What is published while it asks wakes it at once.
            self.listener.set_read_timeout(Some(ms(left.max(1)))).expect("a time-out");
            let _ = self.listener.recv_response();
        }
        self.listener.set_read_timeout(Some(SOON)).expect("a time-out");
        let mut unsubscribe = redis::cmd("UNSUBSCRIBE");
        let packed = unsubscribe.arg(CHANNEL).get_packed_command();
        self.listener.send_packed_command(&packed).expect("a connection");
        loop {
            let heard = self.listener.recv_response().expect("an answer");
            if format!("{heard:?}").contains("nsubscribe") {
                return Some(begin);
            }
        }
    }

    fn unlock(&mut self) {
        let script = "if (redis.call('hexists', KEYS[1], ARGV[1]) == 0) then return nil; end; \
            redis.call('del', KEYS[1]); redis.call('publish', KEYS[2], '0'); return 1;";
        let script = Script::new(script);
        let mut call = script.key(NAME);
        let released: Option<u64> =
            call.key(CHANNEL).arg(&self.owner).invoke(&mut self.commands).expect("an answer");
        assert_eq!(released, Some(1), "it was not the service's");
    }
}

#[test]
fn a_slow_listener_shares_a_lock_with_our_process() {
    let _turn = heavy();
    let server = server();
    let mut process = process(&server, "ours");
    process.say("go");
    // From and to which turn each wait of the service lasted.
    let waits = Shared::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (mut service, waits) = (Service::new(&server, number), &waits);
            scope.spawn(move || {
                loop {
                    let begin = service.lock();
                    let end = Instant::now();
                    let taken: usize =
                        redis::cmd("LLEN").arg("order").query(&mut service.commands).unwrap();
                    let goes_on = work(&mut service.commands, "service");
                    service.unlock();
                    // Our process waits for a few milliseconds. A listener that the machine holds up for longer comes too late.
                    if let Some((begin, from)) = begin
                        && lag::worst_between(begin, end).is_zero()
                    {
                        waits.lock().unwrap().push((from, taken));
                    }
                    if !goes_on {
                        return;
                    }
                }
            });
        }
    });
    process.expect_line("done", SOON * 6);
    let order: Vec<String> = ask(&server, &["LRANGE", "order", "0", "-1"]);
    let passed_over =
        |(from, to): &(usize, usize)| order[*from..*to].iter().filter(|who| *who == "ours").count();
    let waits = waits.into_inner().unwrap();
    let sum: usize = waits.iter().map(passed_over).sum();
    // Each listener has its turn when each thread of ours has had about one.
    assert!(sum <= waits.len() * (THREADS + 1), "{sum} turns of ours in {} waits", waits.len());
    for who in ["ours", "service"] {
        assert!(order.iter().any(|turn| turn == who), "{who} never had it");
    }
    until("it is given back", || !exists(&server, NAME));
}
