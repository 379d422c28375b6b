//! Attempts on several real servers, and tallies of replies made by hand.

use std::time::Duration;

use leasehold_support::Server;
use redis::{RedisError, Value};

use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::option::ReleaseKind;
use crate::base::share::Share;
use crate::base::sync::Arc;
use crate::base::time::{BootClock, Clock, Moment};
use crate::kind::mutex::quorum::QuorumKind;
use crate::protocol::Protocol as _;
use crate::protocol::lease_request::{LeaseCommand, LeaseRequest};
use crate::protocol::lock_kind::LockKind as _;
use crate::protocol::reply::{AcquireReply, Ownership};
use crate::protocol::request::{AcquireMode, AcquireRequest, ReleaseRequest};
use crate::protocol::target::Target;
use crate::topology::multi_node::node::{Node, NodeSettings};
use crate::topology::multi_node::scatter::NodeReply;
use crate::topology::quorum::tally::TallyKind;
use crate::topology::quorum::{Quorum, QuorumRules};
use crate::wire::connection::{Reply, ServerRun};
use crate::wire::endpoint;
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::manager::Timeouts;
use crate::wire::pool::PoolSettings;

const LEASE: Duration = Duration::from_secs(30);
/// No machine pauses for so long.
const TIMEOUT: Duration = Duration::from_secs(600);

fn quorum<'a>(urls: impl IntoIterator<Item = &'a str>) -> Quorum {
    let clock: Arc<dyn Clock> = Arc::new(BootClock);
    let quarantine = Some(Duration::ZERO);
    let identity = Arc::new(Identity::new("quorum"));
    let settings = NodeSettings {
        pool: PoolSettings::default(),
        timeouts: Timeouts { connect: TIMEOUT, command: TIMEOUT, settings: ["node_timeout"; 2] },
        quarantine,
        threads: identity.threads(),
    };
    let node = |url: &str| Node::new(endpoint::parse(url).unwrap(), &clock, &settings);
    let nodes: Vec<Node> = urls.into_iter().map(|url| node(url).unwrap()).collect();
    let rules = QuorumRules { need: nodes.len() / 2 + 1, timeout: TIMEOUT, longest: LEASE };
    Quorum::new(nodes, rules, identity, clock)
}

#[test]
fn contended_attempts_leave_no_ballots() {
    const ATTEMPTS: usize = 300;
    let servers: Vec<Server> = (0..3).map(|_| Server::start().unwrap()).collect();
    let urls: Vec<String> = servers.iter().map(Server::unix_url).collect();
    let quorum = quorum(urls.iter().map(String::as_str));
    let target = Target::new(&QuorumKind, Name::new(b"", b"x").unwrap());
    // Another has a majority, so that the third server's vote is given and taken back each time.
    for server in &servers[1..] {
        let mut set = redis::cmd("SET");
        set.arg("x").arg("1-:other").exec(&mut server.connection()).unwrap();
    }
    let mut owners = Vec::new();
    let mut busy = 0;
    for _ in 0..ATTEMPTS {
        let number = quorum.identity.next_attempt();
        let owner = QuorumKind.owner(&quorum.identity, number, LEASE.into(), false, Share::Whole);
        let request = AcquireRequest {
            owner: &owner,
            ttl: LEASE,
            tail: Duration::ZERO,
            share: Share::Whole,
            mode: AcquireMode::Try,
            dies_after: Duration::ZERO,
        };
        let node_reply =
            quorum.acquire(&target, &request, quorum.clock.now().after(TIMEOUT)).outcome;
        assert!(!matches!(node_reply, Ok(AcquireReply::Granted(_))), "{node_reply:?}");
        busy += usize::from(matches!(node_reply, Ok(AcquireReply::Busy(_))));
        owners.push(owner);
    }
    assert!(busy > ATTEMPTS / 2, "{busy}");
    let owed = |quorum: &Quorum| owners.iter().filter(|owner| quorum.may_still_own(owner)).count();
    assert_eq!(quorum.ballots.count(), owed(&quorum));
    // A vote that could not be withdrawn at once is left to the worker, and its ballot ends with
    // that.
    while owed(&quorum) > 0 {
        let command = LeaseCommand::Release { ttl: LEASE, last_token: None };
        let requests: Vec<LeaseRequest<'_>> =
            owners.iter().map(|owner| LeaseRequest { target: &target, owner, command }).collect();
        quorum.run(&requests, quorum.clock.now().after(TIMEOUT));
    }
    assert_eq!(quorum.ballots.count(), 0);
}

/// A key of another type keeps no vote, and it takes the place of one that may arrive yet only
/// until the request for that is dead.
#[test]
fn ballot_behind_a_foreign_key_ends_with_its_deadline() {
    let servers: Vec<Server> = (0..3).map(|_| Server::start().unwrap()).collect();
    let urls: Vec<String> = servers.iter().map(Server::unix_url).collect();
    let quorum = quorum(urls.iter().map(String::as_str));
    let target = Target::new(&QuorumKind, Name::new(b"", b"x").unwrap());
    for server in &servers {
        redis::cmd("RPUSH").arg("x").arg("y").exec(&mut server.connection()).unwrap();
    }
    let give_back = |owner: &[u8]| {
        let command = LeaseCommand::Release { ttl: LEASE, last_token: None };
        let requests = [LeaseRequest { target: &target, owner, command }];
        // One of them may not be connected to at first.
        (0..10).any(|_| quorum.run(&requests, quorum.clock.now().after(TIMEOUT))[0].is_ok())
    };
    let now = quorum.clock.now();
    quorum.ballots.ask(b"dead", 0b111, now, now, now.after(LEASE));
    assert!(give_back(b"dead"), "the worker goes on until the lease is over");
    assert_eq!(quorum.ballots.count(), 0);
    quorum.ballots.ask(b"on its way", 0b111, now, now.after(LEASE), now.after(LEASE));
    assert!(!give_back(b"on its way"));
    assert_eq!(quorum.ballots.count(), 1);
}

fn delivery(ask: TallyKind, run: u64, outcome: Result<i64, Failure>) -> Option<NodeReply> {
    let now = BootClock.now();
    let reply = |number| {
        let list = |numbers: &[i64]| {
            Value::Array(numbers.iter().map(|&number| Value::Int(number)).collect())
        };
        let value = match (ask, number) {
            (TallyKind::Renew, 0) => list(&[0, 1 << 50, -1, 7]),
            (TallyKind::Renew, _) => list(&[number, 1 << 50]),
            (TallyKind::Release, 0) => list(&[0, 0, 7]),
            (TallyKind::Release, _) => Value::Int(number),
        };
        Reply { value, sent: now, received: now, clock: None }
    };
    Some(NodeReply {
        outcomes: vec![outcome.map(reply)],
        asked: now,
        server_run: Some(ServerRun { run, counts_from: Moment::PAST }),
        repeated: false,
        not_sent: None,
    })
}

fn unreached() -> Result<i64, Failure> {
    Err(Failure::no_connection())
}

fn refused() -> Result<i64, Failure> {
    let text = Some("command not allowed when used memory > 'maxmemory'".into());
    Err(Failure::Refused(redis::make_extension_error("OOM".into(), text)))
}

/// The ownership by the outcomes of three servers.
fn judged(
    ask: TallyKind,
    said: [Result<i64, Failure>; 3],
    repeated: bool,
) -> Result<Ownership, Failure> {
    let quorum = quorum(["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]);
    let mut node_replies: Vec<Option<NodeReply>> =
        said.into_iter().zip(1..).map(|(outcome, run)| delivery(ask, run, outcome)).collect();
    if let Some(Some(first)) = node_replies.first_mut() {
        first.repeated = repeated;
    }
    quorum.tally(&node_replies, 0, b"owner", ask).map(|tallied| tallied.ownership)
}

#[test]
fn outcome_is_unknown_where_any_server_ran_a_request() {
    let silent = || Err(Failure::silent());
    let wrong_type = || Err(Failure::wrong_type());
    for ask in [TallyKind::Renew, TallyKind::Release] {
        for first in [Ok(1), Ok(0), Ok(-1), Ok(7), silent(), wrong_type()] {
            let shown = format!("{ask:?} {first:?}");
            let failure = judged(ask, [first, unreached(), unreached()], false).unwrap_err();
            assert!(failure.is_unknown(), "{shown}: {failure:?}");
        }
        // A vote that is gone may be what the request did that two servers ran before they refused
        // it.
        let failure = judged(ask, [Ok(0), refused(), refused()], false).unwrap_err();
        assert!(failure.is_unknown(), "{failure:?}");
        let failure = judged(ask, [refused(), unreached(), unreached()], true).unwrap_err();
        assert!(failure.is_unknown(), "{failure:?}");
    }
}

/// It may have been given back by the first sending, or have been lost before.
#[test]
fn vote_that_a_repeated_release_does_not_find_counts_for_neither() {
    let released = |said: [i64; 3]| judged(TallyKind::Release, said.map(Ok), true);
    for gone in [0, -1] {
        let failure = released([gone, 1, 0]).unwrap_err();
        assert!(failure.is_unknown(), "{gone}: {failure:?}");
        assert_eq!(released([gone, 1, 1]).unwrap(), Ownership::Owned);
        assert_eq!(released([gone, 0, 0]).unwrap(), Ownership::Gone);
    }
    assert_eq!(released([1, 1, 0]).unwrap(), Ownership::Owned);
}

/// One small pool among servers that are down is not why too few agree.
#[test]
fn exhausted_pools_make_the_quorum_pool_exhausted() {
    use crate::base::error::Error;
    use crate::wire::failure::Shortage;
    let in_use = || {
        let shortage = Shortage {
            waited: Duration::from_secs(1),
            size: 8,
            address: "127.0.0.1:1".to_owned(),
            is_silent: false,
        };
        Err(Failure::NotSent(NotSentReason::Exhausted(shortage)))
    };
    let error_of = |said| Error::from(judged(TallyKind::Renew, said, false).unwrap_err());
    for said in [[in_use(), in_use(), in_use()], [unreached(), in_use(), in_use()]] {
        let error = error_of(said);
        assert!(error.is_pool_exhausted() && !error.is_unreachable(), "{error:?}");
        // A client of several servers has no `max_wait`.
        let text = error.to_string();
        assert!(text.contains("max_size or node_timeout"), "{text}");
        assert!(!text.contains("max_wait"), "{text}");
    }
    let error = error_of([unreached(), unreached(), in_use()]);
    assert!(error.is_unreachable() && !error.is_pool_exhausted(), "{error:?}");
}

#[test]
fn request_that_no_server_ran_is_not_sent() {
    for ask in [TallyKind::Renew, TallyKind::Release] {
        let failure = judged(ask, [unreached(), unreached(), unreached()], false).unwrap_err();
        assert!(
            matches!(failure, Failure::NotSent(NotSentReason::NoMajority { .. })),
            "{failure:?}"
        );
        let failure = judged(ask, [refused(), unreached(), unreached()], false).unwrap_err();
        assert!(
            matches!(failure, Failure::NotSent(NotSentReason::NoMajority { .. })),
            "{failure:?}"
        );
        let failure = judged(ask, [refused(), refused(), unreached()], false).unwrap_err();
        assert!(matches!(&failure, Failure::Refused(error) if is_oom(error)), "{failure:?}");
        assert_eq!(judged(ask, [Ok(1), Ok(1), unreached()], false).unwrap(), Ownership::Owned);
        assert_eq!(judged(ask, [Ok(0), Ok(0), unreached()], false).unwrap(), Ownership::Gone);
    }
}

fn is_oom(error: &RedisError) -> bool {
    error.code() == Some("OOM")
}

/// An attempt of the client, and its outcome.
fn attempted(quorum: &Quorum, target: &Target) -> (Vec<u8>, Result<AcquireReply, Failure>) {
    let number = quorum.identity.next_attempt();
    let owner = QuorumKind.owner(&quorum.identity, number, LEASE.into(), false, Share::Whole);
    let request = AcquireRequest {
        owner: &owner,
        ttl: LEASE,
        tail: Duration::ZERO,
        share: Share::Whole,
        mode: AcquireMode::Try,
        dies_after: Duration::ZERO,
    };
    let outcome = quorum.acquire(target, &request, quorum.clock.now().after(TIMEOUT)).outcome;
    (owner, outcome)
}

/// A client need not listen to all servers, and one that listens to several is one.
#[test]
fn release_returns_the_largest_count_of_listeners() {
    let servers: Vec<Server> = (0..3).map(|_| Server::start().unwrap()).collect();
    let urls: Vec<String> = servers.iter().map(Server::unix_url).collect();
    let quorum = quorum(urls.iter().map(String::as_str));
    let target = Target::new(&QuorumKind, Name::new(b"", b"x").unwrap());
    let channel = target.channel().unwrap();
    let listen = |server: &Server| {
        let mut connection = server.connection();
        redis::cmd("SUBSCRIBE").arg(channel).exec(&mut connection).unwrap();
        connection
    };
    let _listeners = [&servers[0], &servers[1], &servers[1]].map(listen);
    // A server to which the client is not connected yet misses a round.
    loop {
        let (owner, outcome) = attempted(&quorum, &target);
        assert!(matches!(outcome, Ok(AcquireReply::Granted(_))), "{outcome:?}");
        let is_everywhere = quorum.ballots.servers(&owner) == 0b111;
        let request = ReleaseRequest {
            owner: &owner,
            ttl: LEASE,
            last_token: None,
            kind: ReleaseKind::Lua,
            is_wanted: false,
        };
        let deadline = quorum.clock.now().after(TIMEOUT);
        let released = quorum.release(&target, &request, deadline).unwrap();
        assert_eq!(released.ownership, Ownership::Owned);
        if is_everywhere {
            assert_eq!(released.listeners, 2);
            return;
        }
    }
}

/// The message of one server may come before another has run the release.
#[test]
fn announced_release_is_no_holder() {
    let servers: Vec<Server> = (0..3).map(|_| Server::start().unwrap()).collect();
    let urls: Vec<String> = servers.iter().map(Server::unix_url).collect();
    let quorum = quorum(urls.iter().map(String::as_str));
    let target = Target::new(&QuorumKind, Name::new(b"", b"x").unwrap());
    for server in &servers {
        let mut set = redis::cmd("SET");
        set.arg("x").arg("1-:other").arg("PX").arg(30_000).exec(&mut server.connection()).unwrap();
    }
    let (_, outcome) = attempted(&quorum, &target);
    assert!(matches!(outcome, Ok(AcquireReply::Busy(_))), "{outcome:?}");
    assert!(quorum.released.is_first(b"1-:other", quorum.clock.now()));
    let (_, outcome) = attempted(&quorum, &target);
    assert!(matches!(outcome, Ok(AcquireReply::Split(_))), "{outcome:?}");
}

/// One server that has forgotten a hold is borne: two others are there that have not.
#[test]
fn hold_is_doubted_when_fewer_than_a_majority_were_there_since() {
    let quorum = quorum(["redis://a", "redis://b", "redis://c"]);
    let target = Target::new(&QuorumKind, Name::new(b"", b"x").unwrap());
    let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
    let ends = |node: usize, at| quorum.nodes[node].server_clock().note_break(at);
    assert_eq!(quorum.unbroken_since(&target), Moment::PAST);
    ends(2, at(5));
    assert_eq!(quorum.unbroken_since(&target), Moment::PAST);
    ends(0, at(7));
    assert_eq!(quorum.unbroken_since(&target), at(5));
    ends(1, at(6));
    assert_eq!(quorum.unbroken_since(&target), at(6));
}
