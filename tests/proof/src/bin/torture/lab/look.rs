//! The state of the server during a trial, and the keys that are left at its end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_support::Server;
use leasehold_support::history::{Event, Snapshot, What, now};
use redis::Connection;

use super::Result;
use super::holder::list;
use super::plan::Plan;

const PAUSE: Duration = Duration::from_millis(4);
/// An expiry that is exact to a millisecond at the server is seen this much later.
const SLACK: Duration = Duration::from_millis(300);
/// How long the server keeps the place of a waiter that it took for dead.
const KEPT_PLACE: i64 = 61_000;

/// An event of the observer.
pub(crate) fn event(at: u64, lock: u32, what: What) -> Event {
    Event { at, process: std::process::id(), thread: 0, call: 0, lock, what }
}

/// Looks at owner and queue of each lock until it is over; not while `blind`.
pub(crate) fn look_on(
    server: &Server,
    plan: &Plan,
    over: &AtomicBool,
    blind: &AtomicBool,
) -> Vec<Event> {
    let mut events = Vec::new();
    let mut connection = None;
    while !over.load(Ordering::SeqCst) {
        thread::sleep(PAUSE);
        let looks = match &mut connection {
            _ if blind.load(Ordering::SeqCst) => None,
            Some(connection) => look(connection, plan).ok(),
            none => {
                *none = connect(server).ok();
                None
            }
        };
        match looks {
            Some(looks) => events.extend(looks),
            None => {
                // A waiter that was observed before may have been taken for dead meanwhile.
                let nothing = Snapshot { owner: None, queue: Vec::new(), micros: 0 };
                let nothing = |lock| event(now(), lock, What::Saw(nothing.clone()));
                events.extend((0..plan.locks).map(nothing));
                if !blind.load(Ordering::SeqCst) {
                    connection = connect(server).ok();
                }
            }
        }
    }
    events
}

fn connect(server: &Server) -> redis::RedisResult<Connection> {
    let client = redis::Client::open(server.unix_url())?;
    let connection = client.get_connection_with_timeout(Duration::from_millis(500))?;
    connection.set_read_timeout(Some(Duration::from_millis(500)))?;
    Ok(connection)
}

type Look = (Option<String>, Vec<(String, f64)>, Vec<(String, f64)>, (u64, u64));

fn look(connection: &mut Connection, plan: &Plan) -> redis::RedisResult<Vec<Event>> {
    let mut events = Vec::new();
    for lock in 0..plan.locks {
        let name = Plan::name(plan.trial, lock);
        let mut pipe = redis::pipe();
        pipe.atomic().cmd("GET").arg(&name);
        for beside in ["queue", "beats"] {
            let key = format!("{{{name}}}:{beside}");
            pipe.cmd("ZRANGE").arg(key).arg(0).arg(-1).arg("WITHSCORES");
        }
        pipe.cmd("TIME");
        let (owner, queue, beats, time): Look = pipe.query(connection)?;
        let beats: BTreeMap<String, f64> = beats.into_iter().collect();
        let death = |waiter: &String, place: f64| {
            let beat = beats.get(waiter).copied().unwrap_or_default();
            if place < 0.0 { 0 } else { beat as u64 }
        };
        let queue = queue.iter().map(|(waiter, place)| (short(waiter), death(waiter, *place)));
        let snapshot = Snapshot {
            owner: owner.as_deref().map(short),
            queue: queue.collect(),
            micros: time.0 * 1_000_000 + time.1,
        };
        events.push(event(now(), lock, What::Saw(snapshot)));
    }
    Ok(events)
}

/// The client and the number of an attempt.
fn short(attempt: &str) -> String {
    let parts: Vec<&str> = attempt.split(':').collect();
    match parts[..] {
        [_, client, number, ..] => format!("{}:{number}", &client[..client.len().min(8)]),
        _ => attempt.to_owned(),
    }
}

/// The entries that transactions under a lock have added, as tokens and ids; the list is deleted.
pub(crate) fn listed(connection: &mut Connection, plan: &Plan) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for lock in 0..plan.locks {
        let key = list(plan.trial, lock);
        let lines: Vec<String> = redis::cmd("LRANGE").arg(&key).arg(0).arg(-1).query(connection)?;
        redis::cmd("DEL").arg(&key).exec(connection)?;
        let entry = |line: &String| {
            let (token, id) = line.split_once(' ')?;
            Some((token.parse().ok()?, id.parse().ok()?))
        };
        let entries: Option<Vec<(u64, u64)>> = lines.iter().map(entry).collect();
        let entries = entries.ok_or("a strange entry in a list")?;
        events.push(event(now(), lock, What::Listed(entries)));
    }
    Ok(events)
}

/// Waits until no key of the trial's locks is left, for one lease with its tail at most. Returns the keys that
/// are left then.
///
/// Of a killed process the place in the queue may be left, as long as it ends.
pub(crate) fn left(
    connection: &mut Connection,
    plan: &Plan,
    killed: bool,
    clients: usize,
) -> Result<Vec<String>> {
    let end = Instant::now() + plan.lease + plan.tail + SLACK;
    let remembered = 2_000 + i64::try_from(plan.tail.as_millis())?;
    loop {
        let mut left = Vec::new();
        let mark = format!("t{}:", plan.trial);
        let mut scan = redis::cmd("SCAN");
        scan.cursor_arg(0).arg("MATCH").arg(format!("*{mark}*")).arg("COUNT").arg(1000);
        let keys = scan.iter::<String>(connection)?.collect::<redis::RedisResult<Vec<_>>>()?;
        for key in keys.iter().filter(|key| !key.starts_with("list:")) {
            let ttl: i64 = redis::cmd("PTTL").arg(key).query(connection)?;
            let longest = match key.rsplit_once("}:") {
                // It remembers the last token for as long as a lease with its tail, and at least a second.
                Some((_, "fence")) => remembered,
                Some((_, "queue" | "beats")) if killed => KEPT_PLACE,
                _ => 0,
            };
            if ttl != -2 && !(0..=longest).contains(&ttl) {
                left.push(format!("key {key} for {ttl} ms"));
            }
        }
        let channels: Vec<String> =
            redis::cmd("PUBSUB").arg("CHANNELS").arg("*").query(connection)?;
        if channels.len() > clients {
            left.push(format!("{} channels for {clients} clients", channels.len()));
        }
        if left.is_empty() || Instant::now() > end {
            return Ok(left);
        }
        thread::sleep(Duration::from_millis(10));
    }
}
