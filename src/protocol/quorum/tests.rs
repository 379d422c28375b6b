//! What several real servers come to.

use std::time::Duration;

use leasehold_support::Server;
use redis::IntoConnectionInfo as _;

use crate::base::id::Identity;
use crate::base::name::Name;
use crate::base::sync::Arc;
use crate::base::time::{BootClock, Clock};
use crate::protocol::kind::Kind as _;
use crate::protocol::quorum::kind::QuorumKind;
use crate::protocol::quorum::{Quorum, Rules};
use crate::protocol::{Answer, Attempt, Errand, Mode, Protocol as _, Target, Task};
use crate::wire::node::{Node, NodeSettings};
use crate::wire::pool::PoolSettings;

const LEASE: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(10);

fn quorum<'a>(urls: impl IntoIterator<Item = &'a str>) -> Quorum {
    let clock: Arc<dyn Clock> = Arc::new(BootClock);
    let probation = Some(Duration::ZERO);
    let settings = NodeSettings { pool: PoolSettings::default(), timeout: TIMEOUT, probation };
    let node = |url: &str| Node::new(url.into_connection_info().unwrap(), &clock, &settings);
    let nodes: Vec<Node> = urls.into_iter().map(|url| node(url).unwrap()).collect();
    let rules = Rules { need: nodes.len() / 2 + 1, timeout: TIMEOUT, longest: LEASE };
    Quorum::new(nodes, rules, Arc::new(Identity::new("quorum")), clock)
}

#[test]
fn contended_attempts_leave_nothing_in_the_table() {
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
        let owner = QuorumKind.owner(&quorum.identity, number, LEASE, false);
        let attempt =
            Attempt { owner: &owner, ttl: LEASE, mode: Mode::Try, dies_after: Duration::ZERO };
        let answer = quorum.acquire(&target, &attempt, quorum.clock.now().after(TIMEOUT));
        assert!(!matches!(answer, Ok(Answer::Granted(_))), "{answer:?}");
        busy += usize::from(matches!(answer, Ok(Answer::Busy(_))));
        owners.push(owner);
    }
    assert!(busy > ATTEMPTS / 2, "{busy}");
    let owed = |quorum: &Quorum| owners.iter().filter(|owner| quorum.remains(owner)).count();
    assert_eq!(quorum.claims.count(), owed(&quorum));
    // What could not be taken back at once is owed to the worker, and forgotten when that is done.
    while owed(&quorum) > 0 {
        let task = Task::Release { ttl: LEASE, last_token: None };
        let errands: Vec<Errand<'_>> =
            owners.iter().map(|owner| Errand { target: &target, owner, task }).collect();
        quorum.run(&errands, quorum.clock.now().after(TIMEOUT));
    }
    assert_eq!(quorum.claims.count(), 0);
}
