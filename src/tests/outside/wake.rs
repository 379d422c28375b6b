//! Messages on a client's channel.

use std::time::Duration;

use leasehold_support::fuzz::Target;

use super::{SMALL, bounded, variant};
use crate::base::sync;
use crate::base::sync::channel::unbounded;
use crate::protocol::wake_message::{WakeMessage, client_channel, read};
use crate::testing::Server;
use crate::tests::double::{listen, until};

const WORDS: &[&str] = &["g ", "s ", "r ", "u ", "c ", "w ", "p ", "x ", "n", "1 ", ",", " lock"];
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn message_of_any_bytes_is_read_or_ignored() {
    Target::new("wake").words(WORDS).run(|input| {
        bounded(input, SMALL, || match read(input.to_vec()) {
            WakeMessage::Grant { name, grant } => {
                assert!(name.len() < input.len());
                let numbers = grant.permits.map_or(0, |permits| permits.len());
                assert!(numbers <= input.len() / 2, "{numbers} permits");
                format!("Grant {}", numbers.min(2))
            }
            message => variant(&message),
        })
    });
}

/// A client holds one lock and waits for another. What strangers publish makes it ask, and believe in a grant for a while,
/// but its release tells it better; it keeps the one lock, and gets the other when that is free.
#[test]
fn client_survives_any_message() {
    let server = Server::standing_still();
    let (here, there) = (server.client(), server.client());
    let taken = there.mutex("lock").unwrap().lock().unwrap();
    let held = here.mutex("held").unwrap().lock().unwrap();
    listen(&here);
    let (sender, receiver) = unbounded();
    let lock = here.mutex("lock").unwrap();
    let body = move || {
        let taken = loop {
            match lock.lock().and_then(|guard| guard.release()) {
                // A grant that nobody made.
                Err(error) if error.is_lost() || error.is_not_held() || error.is_transient() => {}
                taken => break taken,
            }
        };
        let _ = sender.send(taken);
    };
    sync::spawn("waiter", body).unwrap();
    until(|| server.is_queued_for("lock"));
    server.advance(Duration::ZERO);

    let channel = client_channel(here.engine().protocol.identity());
    let mut count = 0;
    Target::new("wake").words(WORDS).run(|input| {
        // The lock that it waits for, by the numbers of its attempts, with the server's time.
        let now = server.inner().micros().to_string();
        let ours = String::from_utf8_lossy(input).replace("NOW", &now);
        for payload in [input, ours.as_bytes()] {
            server.inner().call(&[b"PUBLISH", &channel, payload]).unwrap();
        }
        count += 1;
        if count % 16 == 0 {
            // All were taken from the line.
            server.advance(Duration::ZERO);
            assert!(here.engine().listener.is_live());
        }
        variant(&read(input.to_vec()))
    });
    server.advance(SECOND);
    held.release().unwrap();
    taken.release().unwrap();
    server.run_until(|| !receiver.is_empty());
    receiver.recv().unwrap().unwrap();
}
