//! A waiter whose listener is at a replica, as after its server was demoted. The replica passes every
//! message on, and the master does not count it (rule 12).

use leasehold_support::Server;
use redis::{Connection, FromRedisValue, Value};

use crate::common::{ask, exists, no_key_is_immortal};
use crate::queue::owner;
use crate::queue::script::Bare;

const HOLDER: &str = "a0";
/// Listens at the replica.
const ASIDE: &str = "a1";
/// Listens at the master.
const NEXT: &str = "a2";

/// A lock that is held, and two attempts that wait for it.
struct Stage {
    master: Server,
    replica: Server,
    bare: Bare,
    aside: Ear,
    next: Ear,
}

impl Stage {
    fn new() -> Stage {
        let (master, replica) = Server::start_with_replica().expect("a server and its replica");
        let bare = Bare::new(&master);
        let (aside, next) = (Ear::new(&replica, ASIDE), Ear::new(&master, NEXT));
        Stage { master, replica, bare, aside, next }
    }

    /// All join, in this order.
    fn join(&mut self) {
        assert_ne!(self.bare.join_as(&attempt(HOLDER), "join"), 0);
        assert_eq!(self.bare.join_as(&attempt(ASIDE), "join"), 0);
        assert_eq!(self.bare.join_as(&attempt(NEXT), "join"), 0);
        let (_, counted): (String, u64) = ask(&self.master, &["PUBSUB", "NUMSUB", &channel(ASIDE)]);
        assert_eq!(counted, 0, "the master knows of the listener at its replica");
    }

    fn release(&mut self, client: &str) {
        assert_eq!(self.bare.release_as(&attempt(client)), 1);
    }

    fn owner(&self) -> String {
        owner(&self.master, "x")
    }

    fn place(&self, client: &str) -> Option<i64> {
        ask(&self.master, &["ZSCORE", "{x}:queue", &attempt(client)])
    }

    /// What the two have been told since they were last asked: the waiter at the replica first.
    fn heard(&mut self) -> [Vec<Message>; 2] {
        [self.aside.heard(&self.master), self.next.heard(&self.master)]
    }
}

fn attempt(client: &str) -> String {
    Bare::attempt_of(client, 1)
}

fn channel(client: &str) -> String {
    format!("leasehold:{client}")
}

/// A message to a waiter.
#[derive(Debug, PartialEq)]
enum Message {
    Granted(u64),
    Retry,
}

/// Listens on the channel of one client.
struct Ear {
    connection: Connection,
    channel: String,
}

impl Ear {
    fn new(server: &Server, client: &str) -> Ear {
        let (mut connection, channel) = (server.connection(), channel(client));
        redis::cmd("SUBSCRIBE").arg(&channel).exec(&mut connection).expect("it is confirmed");
        Ear { connection, channel }
    }

    fn heard(&mut self, master: &Server) -> Vec<Message> {
        ask::<()>(master, &["PUBLISH", &self.channel, "the end"]);
        let mut heard = Vec::new();
        loop {
            let parts = match self.connection.recv_response().expect("a message") {
                Value::Array(parts) | Value::Push { data: parts, .. } => parts,
                other => panic!("{other:?}"),
            };
            let payload = String::from_redis_value(parts[2].clone()).expect("text");
            let words: Vec<&str> = payload.split(' ').collect();
            heard.push(match words[0] {
                "g" => Message::Granted(words[2].parse().expect("a token")),
                "r" => Message::Retry,
                "w" => continue,
                _ => return heard,
            });
        }
    }
}

#[test]
fn uncounted_grant_is_kept_where_numsub_is_denied() {
    let mut stage = Stage::new();
    let user = ["ACL", "SETUSER", "unasked", "on", "nopass", "~*", "&*", "+@all", "-pubsub|numsub"];
    ask::<()>(&stage.master, &user);
    let mut login = redis::cmd("AUTH");
    login.arg("unasked").arg("").exec(&mut stage.bare.connection).unwrap();
    stage.join();

    stage.release(HOLDER);
    assert_eq!(stage.owner(), attempt(ASIDE), "what was granted is another's");
    let [aside, next] = stage.heard();
    let [Message::Granted(first)] = aside[..] else { panic!("{aside:?}") };
    assert_eq!(next, []);
    assert_eq!(ask::<u64>(&stage.master, &["GET", "{x}:fence"]), first, "a token of nobody's");

    stage.release(ASIDE);
    assert_eq!(stage.owner(), attempt(NEXT));
    let [aside, next] = stage.heard();
    assert_eq!(aside, []);
    assert!(matches!(next[..], [Message::Granted(second)] if second > first), "{first}, {next:?}");
}

#[test]
fn uncounted_waiter_is_skipped_before_any_grant() {
    let mut stage = Stage::new();
    stage.join();

    stage.release(HOLDER);
    assert_eq!(stage.owner(), attempt(NEXT));
    let [aside, next] = stage.heard();
    assert_eq!(aside, [Message::Retry]);
    let [Message::Granted(first)] = next[..] else { panic!("{next:?}") };
    assert_eq!(ask::<u64>(&stage.master, &["GET", "{x}:fence"]), first, "a token of nobody's");

    // It asks, as it is told to, and has its place again.
    let passed_over = stage.place(ASIDE).expect("it keeps its place");
    assert!(passed_over < 0);
    assert_eq!(stage.bare.join_as(&attempt(ASIDE), "beat"), 0);
    assert_eq!(stage.place(ASIDE), Some(-passed_over));

    // Where nobody else waits, the lock is free, and it is told to ask again.
    stage.release(NEXT);
    assert!(!exists(&stage.master, "x"), "{} has it", stage.owner());
    assert_eq!(stage.heard(), [vec![Message::Retry], vec![]]);
    no_key_is_immortal(&stage.master);
    assert_eq!(stage.bare.join_as(&attempt(ASIDE), "beat"), 1);
    assert_eq!(stage.owner(), attempt(ASIDE));
    assert!(ask::<u64>(&stage.master, &["GET", "{x}:fence"]) > first);
    assert_eq!(stage.heard(), [vec![], vec![]]);
    drop(stage.replica);
}
