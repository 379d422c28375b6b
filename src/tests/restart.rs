//! A server that closes all connections, and may have lost its memory.

use std::time::Duration;

use super::double::{listen, until};
use crate::base::loss::LossCause;
use crate::base::option::{Lease, LockOptions};
use crate::base::sync;
use crate::base::sync::channel::unbounded;
use crate::client::LockClient;
use crate::kind::Guard;
use crate::testing::Server;

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3_600);

fn hold(client: &LockClient, name: &str, lease: Lease) -> Guard {
    client.mutex_with(name, LockOptions::new().lease(lease)).unwrap().lock().unwrap()
}

/// Does something that closes all connections, and waits until the only client that listens does so again.
fn during_a_break(server: &Server, client: &LockClient, act: impl FnOnce()) {
    let before = server.inner().subscriptions();
    act();
    // It counts as listening until it has noticed.
    until(|| server.inner().subscriptions() > before && client.engine().listener.is_live());
    server.advance(Duration::ZERO);
}

/// A fixed lease is asked about by nobody else, and would look valid for an hour.
#[test]
fn listening_client_learns_of_an_empty_restart_at_once() {
    let server = Server::standing_still();
    let client = server.client();
    listen(&client);
    let guards = [Lease::fixed(HOUR), Lease::renewed(LONG)].map(|lease| {
        let name = format!("{lease:?}");
        hold(&client, &name, lease)
    });
    server.advance(SECOND * 2);
    server.restart();
    // No time passes.
    until(|| guards.iter().all(|guard| !guard.is_valid()));
    assert!(guards.iter().all(|guard| guard.loss().unwrap().cause() == LossCause::Deleted));
}

/// Nobody sees the end of an idle connection before it is used.
#[test]
fn client_that_does_not_listen_learns_it_by_its_next_request() {
    let server = Server::standing_still();
    let client = server.client();
    let guard = hold(&client, "fixed", Lease::fixed(HOUR));
    server.advance(SECOND / 10);
    server.restart();
    server.advance(SECOND / 10);
    drop(hold(&client, "another", Lease::renewed(LONG)));
    until(|| !guard.is_valid());
    assert_eq!(guard.loss().unwrap().cause(), LossCause::Deleted);
}

/// Its worker looks at the connection when a renewal is due.
#[test]
fn renewal_of_one_lease_has_the_others_asked_about() {
    let server = Server::standing_still();
    let client = server.client();
    let fixed = hold(&client, "fixed", Lease::fixed(HOUR));
    let renewed = hold(&client, "renewed", Lease::renewed(LONG));
    server.advance(SECOND * 2);
    server.restart();
    server.advance(SECOND * 10);
    until(|| !fixed.is_valid() && !renewed.is_valid());
}

/// Its connections ended while the server was down, which came back later.
#[test]
fn server_that_is_away_for_a_while_is_asked_when_it_is_back() {
    let server = Server::standing_still();
    let client = server.client();
    listen(&client);
    let link = server.link(&client);
    let guard = hold(&client, "fixed", Lease::fixed(HOUR));
    server.advance(SECOND);
    link.cut();
    server.restart();
    server.advance(SECOND * 60);
    assert!(guard.is_valid(), "nobody has said what has become of it");
    let tries = link.faults();
    // One that has failed for a minute is made once a second.
    server.advance(SECOND * 10);
    assert!((5..=40).contains(&(link.faults() - tries)), "{}", link.faults() - tries);
    link.restore();
    server.advance(SECOND * 2);
    until(|| !guard.is_valid());
}

/// Each lease is asked about once, a thousand at a time, and stays.
#[test]
fn leases_that_are_still_there_are_asked_about_once_and_stay() {
    let server = Server::standing_still();
    let client = server.client();
    listen(&client);
    let link = server.link(&client);
    let guards: Vec<_> = (0..2_500u32)
        .map(|number| hold(&client, &number.to_string(), Lease::fixed(HOUR)))
        .collect();
    server.advance(SECOND * 5);
    let before = link.exchanges();
    during_a_break(&server, &client, || server.break_connections());
    until(|| link.exchanges() == before + 3);
    server.advance(SECOND * 5);
    assert_eq!(link.exchanges(), before + 3);
    assert!(guards.iter().all(Guard::is_valid));
    // One that was granted since the break is not in doubt.
    let before = link.exchanges();
    let guard = hold(&client, "later", Lease::fixed(HOUR));
    server.advance(SECOND * 5);
    assert_eq!(link.exchanges(), before + 1);
    assert!(guard.is_valid());
}

#[test]
fn server_that_comes_and_goes_is_not_asked_all_the_time() {
    let server = Server::standing_still();
    let client = server.client();
    listen(&client);
    let link = server.link(&client);
    let guard = hold(&client, "fixed", Lease::fixed(HOUR));
    server.advance(SECOND * 5);
    let before = link.exchanges();
    for _ in 0..5 {
        server.advance(SECOND / 100);
        during_a_break(&server, &client, || server.break_connections());
    }
    assert_eq!(link.exchanges(), before + 1);
    // But it is asked after the last time, too.
    server.flush();
    server.advance(SECOND);
    until(|| !guard.is_valid());
    assert_eq!(link.exchanges(), before + 2);
}

/// The request ran before the restart, and its reply comes after it.
#[test]
fn grant_from_before_the_restart_is_asked_about() {
    let server = Server::standing_still();
    let client = server.client();
    listen(&client);
    let link = server.link(&client);
    link.delay_answers(1, SECOND / 2);
    let lock = client.mutex_with("x", LockOptions::new().lease(Lease::fixed(HOUR))).unwrap();
    let (sender, receiver) = unbounded();
    let body = move || _ = sender.send(lock.lock().unwrap().into_owned().unwrap());
    sync::spawn("taker", body).unwrap();
    until(|| link.faults() == 1);
    server.advance(SECOND / 4);
    during_a_break(&server, &client, || server.restart());
    server.advance(SECOND / 4);
    let owned = receiver.recv().unwrap();
    until(|| !owned.is_valid());
}

/// A lease that lingers is asked about by nobody, and no thread takes it again.
#[test]
fn lingering_lease_is_not_taken_again_after_a_restart() {
    let server = Server::standing_still();
    let client = server.client();
    listen(&client);
    let options = LockOptions::new().linger(SECOND * 5).lease(Lease::renewed(LONG));
    let lock = client.mutex_with("x", options).unwrap();
    let (first, link) = (lock.lock().unwrap(), server.link(&client));
    first.release().unwrap();
    let before = link.exchanges();
    // There can be a token for it by then.
    server.advance(SECOND / 100);
    drop(lock.lock().unwrap());
    assert_eq!(link.exchanges(), before, "it lingers");
    server.advance(SECOND / 100);
    during_a_break(&server, &client, || server.restart());
    let again = lock.lock().unwrap();
    assert!(link.exchanges() > before);
    again.check().unwrap();
}
