//! Certificates that a program provides at each connection, and that expire while its client lives.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use leasehold::redis;
use leasehold::{Certificates, Lease, LockClient, LockClientBuilder, LockOptions};
use leasehold_support::{Server, until};
use leasehold_tls_test::{Authority, Certificate, Terminator};

/// The longest that a test waits for what must come.
const SOON: Duration = Duration::from_secs(60);

/// A store of certificates, as an agent keeps it that renews them.
#[derive(Clone)]
struct Store {
    authority: String,
    /// The certificate of the moment; none stands for an agent that is down.
    current: Arc<Mutex<Option<Certificate>>>,
    asked: Arc<AtomicU64>,
}

impl Store {
    fn of(authority: &Authority, certificate: Certificate) -> Store {
        let current = Arc::new(Mutex::new(Some(certificate)));
        Store { authority: authority.pem().to_owned(), current, asked: Arc::default() }
    }

    fn put(&self, certificate: Option<Certificate>) {
        *self.current.lock().unwrap() = certificate;
    }

    fn get(&self) -> Result<Certificates, Box<dyn std::error::Error + Send + Sync>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let Certificate { pem, key } =
            self.current.lock().unwrap().clone().ok_or("the agent is down")?;
        Ok(Certificates::new().ca_certificate(&self.authority).client_certificate(pem, key))
    }
}

fn to(terminator: &Terminator) -> LockClientBuilder {
    let builder = LockClient::builder(format!("rediss://{}", terminator.address()));
    builder.connect_timeout(SOON).command_timeout(SOON)
}

#[test]
fn lease_outlives_the_certificate_that_it_was_taken_with() {
    let (server, authority) = (Server::start().unwrap(), Authority::new("ours"));
    let certificate = authority.sign("127.0.0.1");
    let terminator =
        Terminator::start(server.socket(), &certificate, Some(authority.pem())).unwrap();
    let close_all = || {
        redis::cmd("CLIENT")
            .arg(&["KILL", "TYPE", "normal"])
            .exec(&mut server.connection())
            .unwrap();
    };

    #[allow(clippy::disallowed_methods, reason = "certificates end by the wall clock")]
    let now = SystemTime::now();
    let short = authority.sign_until("a client", now + Duration::from_secs(8));
    let store = Store::of(&authority, short.clone());
    let provided = store.clone();
    let client = to(&terminator).certificates(move || provided.get()).build().unwrap();
    let with_short = || {
        to(&terminator).ca_certificate(authority.pem()).client_certificate(&short.pem, &short.key)
    };
    let fixed = with_short().connect_now(true).build().expect("it is valid at first");
    let options = LockOptions::new().lease(Lease::renewed(Duration::from_secs(30)));
    let guard = client.mutex_with("x", options).unwrap().lock().unwrap();

    until("it has expired", || {
        with_short().connect_now(true).build().is_err_and(|error| error.is_refused())
    });
    // Open connections stay open, and none is made with the old one.
    guard.check().unwrap();
    store.put(Some(authority.sign("a client")));
    close_all();
    let asked = store.asked.load(Ordering::SeqCst);
    let middle = Duration::from_secs(20);
    until("time passes", || guard.remaining() < middle);
    until("it is renewed", || guard.remaining() > middle);
    guard.check().unwrap();
    guard.release().unwrap();
    assert!(store.asked.load(Ordering::SeqCst) > asked);
    // A client whose certificate is fixed has ended with it.
    let lock = fixed.mutex("y").unwrap();
    until("it is refused", || lock.try_lock().is_err_and(|error| error.is_refused()));
}

#[test]
fn failing_provider_is_an_outage_that_ends_with_it() {
    let (server, authority) = (Server::start().unwrap(), Authority::new("ours"));
    let certificate = authority.sign("127.0.0.1");
    let terminator =
        Terminator::start(server.socket(), &certificate, Some(authority.pem())).unwrap();
    let store = Store::of(&authority, authority.sign("a client"));
    let provided = store.clone();
    let client = to(&terminator).certificates(move || provided.get()).build().unwrap();
    let lock = client.mutex("x").unwrap();
    let torn = Certificate { pem: "-----BEGIN CERT".to_owned(), key: String::new() };
    for (certificate, text) in [
        (None, "the provider of certificates failed: the agent is down"),
        // It was being written.
        (
            Some(torn),
            "the provider of certificates failed: invalid client_certificate: no certificate in it",
        ),
    ] {
        store.put(certificate);
        until("the error says why", || {
            let error = lock.try_lock().unwrap_err();
            assert!(error.is_unreachable() && error.is_transient(), "{error:?}");
            error.to_string().contains(text)
        });
    }
    store.put(Some(authority.sign("a client")));
    until("it works", || lock.try_lock().is_ok_and(|guard| guard.is_some()));
}

#[test]
fn provider_that_nobody_would_ask_is_rejected() {
    let provided = || Ok(Certificates::new());
    let plain = LockClient::builder("redis://localhost").certificates(provided);
    let text = plain.build().unwrap_err().to_string();
    assert!(text.contains("certificates") && text.contains("rediss://"), "{text}");
    let both = LockClient::builder("rediss://localhost").certificates(provided);
    let error = both.ca_certificate(Authority::new("ours").pem()).build().unwrap_err();
    assert!(error.is_config() && error.to_string().contains("beside certificates"), "{error}");
}
