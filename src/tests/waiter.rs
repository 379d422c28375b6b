//! What a holder is told of those who wait, on the standing clock of the server in memory.

use std::time::Duration;

use super::double::until;
use crate::base::sync::spawn;
use crate::testing::Server;

const SECOND: Duration = Duration::from_secs(1);

/// The first who waits tells the holder. Where it died, or its process stands still, those behind it do.
#[test]
fn waiters_behind_a_dead_one_are_told_of() {
    let server = Server::standing_still();
    let clients = [(); 3].map(|()| server.client());
    let guard = clients[0].mutex("x").unwrap().lock().unwrap();
    assert!(!guard.is_contended(), "it listens from now on");
    for (ahead, client) in clients[1..].iter().enumerate() {
        let lock = client.mutex("x").unwrap();
        spawn("waiter", move || drop(lock.lock())).unwrap();
        until(|| clients[0].mutex("x").unwrap().inspect().unwrap().waiting() == Some(ahead + 1));
    }
    server.advance(SECOND);
    until(|| guard.waiters() == 2);
    server.link(&clients[1]).silence();
    for _ in 0..8 {
        server.advance(SECOND);
        until(|| guard.is_contended());
    }
    server.link(&clients[1]).restore();
    // And nobody who has given up is.
    clients[1..].iter().for_each(|client| assert_eq!(client.mutex("x").unwrap().cancel_waits(), 1));
    server.advance(SECOND * 4);
    assert!(!guard.is_contended());
}
