//! Locks over TLS: whom the client trusts, who it is, and what it says when that goes wrong.

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::redis::{ConnectionAddr, IntoConnectionInfo as _};
use leasehold::{Error, LockClient, LockClientBuilder, LossCause};
use leasehold_support::Server;
use leasehold_tls_test::{Authority, Certificate, Terminator};

fn server() -> Server {
    Server::start().expect("a server")
}

fn before(server: &Server, certificate: &Certificate, clients: Option<&str>) -> Terminator {
    Terminator::start(server.socket(), certificate, clients).expect("a port")
}

fn to(terminator: &Terminator) -> LockClientBuilder {
    LockClient::builder(format!("rediss://{}", terminator.address())).connect_now(true)
}

/// A fault of TLS is told as one at once, and nobody tries again.
#[track_caller]
fn is_tls_fault(outcome: Result<LockClient, Error>) {
    let error = outcome.expect_err("no connection could be agreed on");
    assert!(error.is_refused(), "{error:?}");
    assert!(error.to_string().contains("TLS"), "{error}");
}

#[test]
fn lock_wait_hand_over_and_loss_work_over_tls() {
    let (server, authority) = (server(), Authority::new("ours"));
    let terminator = before(&server, &authority.sign("127.0.0.1"), None);
    let open = || to(&terminator).ca_certificate(authority.pem()).build().expect("a client");
    let (one, other) = (open(), open());
    let guard = one.mutex("x").unwrap().lock().unwrap();
    assert!(other.mutex("x").unwrap().try_lock().unwrap().is_none());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let guard = other.mutex("x").unwrap().lock().unwrap();
            (guard.fencing_token(), guard.release().is_ok())
        });
        while server.keys().iter().all(|key| key != b"{x}:queue") {
            thread::sleep(Duration::from_millis(2));
        }
        let token = guard.fencing_token();
        guard.release().unwrap();
        let (next, released) = waiting.join().unwrap();
        assert!(next > token && released);
    });
    let guard = one.mutex("x").unwrap().lock().unwrap();
    assert!(other.mutex("x").unwrap().force_release().unwrap());
    assert!(guard.check().is_err_and(|error| error.is_lost()));
    assert_eq!(guard.loss().map(|loss| loss.cause()), Some(LossCause::Deleted));
    assert!(terminator.handshakes() >= 2);
}

#[test]
fn connection_info_with_tls_trusts_what_the_builder_says() {
    let (server, authority) = (server(), Authority::new("ours"));
    let terminator = before(&server, &authority.sign("127.0.0.1"), None);
    let address = terminator.address();
    let to = |insecure| {
        let (host, port) = (address.ip().to_string(), address.port());
        let info = ConnectionAddr::TcpTls { host, port, insecure, tls_params: None };
        LockClient::builder_with_info(info.into_connection_info().unwrap()).connect_now(true)
    };
    let client = to(false).ca_certificate(authority.pem()).build().unwrap();
    client.mutex("x").unwrap().lock().unwrap().release().unwrap();
    // By the machine's authorities the server is a stranger.
    is_tls_fault(to(false).build());
    let before = terminator.handshakes();
    assert!(to(true).ca_certificate(authority.pem()).build().unwrap_err().is_config());
    assert_eq!(terminator.handshakes(), before);
}

#[test]
fn many_threads_share_a_small_pool_over_tls() {
    let (server, authority) = (server(), Authority::new("ours"));
    let terminator = before(&server, &authority.sign("127.0.0.1"), None);
    let client = to(&terminator).ca_certificate(authority.pem()).max_size(2).build().unwrap();
    thread::scope(|scope| {
        for thread in 0..16 {
            let client = &client;
            scope.spawn(move || {
                for _ in 0..50 {
                    client.mutex(format!("x{thread}")).unwrap().lock().unwrap().release().unwrap();
                }
            });
        }
    });
}

#[test]
fn foreign_or_misnamed_certificate_is_refused_at_once() {
    let (server, authority) = (server(), Authority::new("ours"));
    let ours = before(&server, &authority.sign("127.0.0.1"), None);
    let begin = Instant::now();
    is_tls_fault(to(&ours).ca_certificate(Authority::new("a stranger").pem()).build());
    // Nor do the authorities of the machine know it.
    is_tls_fault(to(&ours).build());
    let elsewhere = before(&server, &authority.sign("redis.example"), None);
    is_tls_fault(to(&elsewhere).ca_certificate(authority.pem()).build());
    // A lazy client says it at the first lock, and does not ride it out like an outage.
    let lazy = to(&elsewhere).ca_certificate(authority.pem()).connect_now(false).build().unwrap();
    is_tls_fault(lazy.mutex("x").unwrap().lock().map(|_| lazy.clone()));
    // So does one of sentinels, none of which can be spoken to.
    let sentinel = format!("rediss://{}", ours.address());
    let builder = LockClient::builder("rediss://a-master").sentinels([sentinel]);
    is_tls_fault(builder.connect_now(true).build());
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    assert_eq!((ours.handshakes(), elsewhere.handshakes()), (0, 0));
}

#[test]
fn client_shows_its_certificate_on_request() {
    let (server, authority) = (server(), Authority::new("ours"));
    let terminator = before(&server, &authority.sign("127.0.0.1"), Some(authority.pem()));
    let builder = || to(&terminator).ca_certificate(authority.pem());
    is_tls_fault(builder().build());
    let stranger = Authority::new("a stranger").sign("worker");
    is_tls_fault(builder().client_certificate(&stranger.pem, &stranger.key).build());
    let worker = authority.sign("worker");
    let client = builder().client_certificate(&worker.pem, &worker.key).build().unwrap();
    client.mutex("x").unwrap().lock().unwrap().release().unwrap();
}

/// A server without TLS reads the handshake as the beginning of a long command.
#[test]
fn silent_server_in_the_handshake_fails_in_time() {
    let (listener, plain) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), Server::builder().tcp().start().unwrap());
    for address in [listener.local_addr().unwrap(), plain.addr()] {
        let timeout = Duration::from_millis(300);
        let builder = LockClient::builder(format!("rediss://{address}"));
        let begin = Instant::now();
        let error = builder
            .ca_certificate(Authority::new("a").pem())
            .connect_timeout(timeout)
            .command_timeout(timeout)
            .connect_now(true)
            .build()
            .unwrap_err();
        assert!(error.is_unreachable(), "{error:?}");
        assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    }
}

#[test]
fn malformed_certificates_are_rejected_before_any_io() {
    let authority = Authority::new("ours");
    let (worker, other) = (authority.sign("worker"), authority.sign("other"));
    let builder = || LockClient::builder("rediss://127.0.0.1:1");
    // As it comes from an environment variable.
    let one_line = worker.key.replace('\n', "\\n");
    for (outcome, field) in [
        (builder().ca_certificate("nonsense").build(), "ca_certificate"),
        (builder().client_certificate("nonsense", &worker.key).build(), "client_certificate"),
        (builder().client_certificate(&worker.pem, "nonsense").build(), "client_certificate"),
        (builder().client_certificate(&worker.pem, &other.key).build(), "client_certificate"),
        (builder().client_certificate(&worker.pem, one_line).build(), "client_certificate"),
        (
            LockClient::builder("redis://127.0.0.1:1").ca_certificate(authority.pem()).build(),
            "rediss://",
        ),
    ] {
        let error = outcome.expect_err(field);
        assert!(error.is_config() && error.to_string().contains(field), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("nonsense"), "{error:?}");
        assert!(error.to_string().len() < 200, "{error}");
    }
}

#[test]
fn debug_output_shows_neither_password_nor_key() {
    let worker = Authority::new("ours").sign("worker");
    let builder = LockClient::builder("rediss://me:s3cret@127.0.0.1:1")
        .client_certificate(&worker.pem, &worker.key);
    let mut shown = format!("{builder:?}");
    let client = builder.build().unwrap();
    let error = client.mutex("x").unwrap().try_lock().unwrap_err();
    shown += &format!("{client:?} {error} {error:?}");
    assert!(shown.contains("rediss://127.0.0.1:1"), "{shown}");
    for secret in ["s3cret", "BEGIN", "PRIVATE"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}
