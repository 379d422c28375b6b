//! Whom a client trusts, and what it does to its process. Each process here has an environment, or a
//! choice of cryptography, of its own.

use std::path::PathBuf;
use std::time::Duration;

use leasehold::LockClient;
use leasehold_support::child::{self, tell};
use leasehold_support::{Child, Server};
use leasehold_tls_test::{Authority, Terminator, sentinel, sentinel_at};
use rustls::CipherSuite;
use rustls::crypto::{CryptoProvider, ring};

const SOON: Duration = Duration::from_secs(20);

/// A server over TLS, and who vouches for it.
struct Place {
    _server: Server,
    authority: Authority,
    terminator: Terminator,
}

impl Place {
    fn new(name: &str) -> Place {
        let (server, authority) = (Server::start().expect("a server"), Authority::new(name));
        let certificate = authority.sign("127.0.0.1");
        let terminator = Terminator::start(server.socket(), &certificate, None).expect("a port");
        Place { _server: server, authority, terminator }
    }

    fn url(&self) -> String {
        format!("rediss://{}", self.terminator.address())
    }
}

/// A file that is removed in the end.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let file = format!("leasehold-{}-{name}", std::process::id());
        let file = File(std::env::temp_dir().join(file));
        std::fs::write(&file.0, text).expect("a file");
        file
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a role with the machine's certificates in this file, and returns when it has said that all is well.
#[track_caller]
fn run(role: &str, machine: &File, ours: &Place, other: &str) {
    let child = Child::role(role).test("roles").env("SSL_CERT_FILE", &machine.0);
    let child = child.env("SSL_CERT_DIR", "");
    let child = child.env("URL", ours.url()).env("PEM", ours.authority.pem()).env("OTHER", other);
    let mut child = child.start().expect("a child");
    child.expect_line("well", SOON);
    assert!(child.wait().success(), "{}", child.output());
}

#[test]
fn roles() {
    match child::role().as_deref() {
        Some("machine") => trusts_the_machine(),
        Some("given") => trusts_the_one_given(),
        Some("nobody") => trusts_nobody(),
        Some("chooser") => chooses(),
        Some("bystander") => chooses_nothing(),
        _ => return,
    }
    tell("well");
}

fn variable(name: &str) -> String {
    std::env::var(name).expect(name)
}

fn lock(client: &LockClient) {
    client.mutex("x").unwrap().try_lock().unwrap().expect("free").release().unwrap();
}

fn is_tls_fault(client: &LockClient) {
    let error = client.mutex("x").unwrap().try_lock().unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("TLS"), "{error:?}");
}

#[test]
fn system_certificates_are_read_once_for_each_client() {
    let (ours, other) = (Place::new("ours"), Place::new("a stranger"));
    run("machine", &File::new("once", ours.authority.pem()), &ours, &other.url());
    assert!(ours.terminator.handshakes() >= 1 && other.terminator.handshakes() == 0);
}

fn trusts_the_machine() {
    let client = LockClient::builder(variable("URL")).build().unwrap();
    let other = LockClient::builder(variable("OTHER")).build().unwrap();
    // No connection is there yet, and none of them finds anything to read.
    std::fs::remove_file(variable("SSL_CERT_FILE")).unwrap();
    lock(&client);
    is_tls_fault(&other);
    // Nobody has chosen for the process.
    assert!(CryptoProvider::get_default().is_none());
    // The next client finds that there is nothing any more.
    let error = LockClient::builder(variable("URL")).build().unwrap_err();
    assert!(error.is_config() && error.to_string().contains("ca_certificate"), "{error}");
}

#[test]
fn only_the_given_authority_is_trusted() {
    let (ours, other) = (Place::new("ours"), Place::new("the machine's"));
    run("given", &File::new("given", other.authority.pem()), &ours, &other.url());
    assert!(ours.terminator.handshakes() >= 1 && other.terminator.handshakes() == 0);
}

fn trusts_the_one_given() {
    let open = |name| LockClient::builder(variable(name)).ca_certificate(variable("PEM")).build();
    is_tls_fault(&open("OTHER").unwrap());
    // The machine's are not even looked for.
    std::fs::remove_file(variable("SSL_CERT_FILE")).unwrap();
    lock(&open("URL").unwrap());
}

#[test]
fn build_reports_a_machine_without_certificates() {
    run("nobody", &File::new("empty", ""), &Place::new("ours"), "");
}

fn trusts_nobody() {
    let error = LockClient::builder(variable("URL")).build().unwrap_err();
    assert!(error.is_config() && error.to_string().contains("ca_certificate"), "{error}");
    // A client that speaks no TLS needs none.
    LockClient::builder("redis://127.0.0.1:1").build().unwrap();
    assert!(CryptoProvider::get_default().is_none());
}

#[test]
fn crypto_provider_of_the_process_is_used_and_kept() {
    let ours = Place::new("ours");
    run("chooser", &File::new("chooser", ours.authority.pem()), &ours, "");
    assert_eq!(ours.terminator.suite(), Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256));
}

fn chooses() {
    let suites = vec![ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    let provider = CryptoProvider { cipher_suites: suites, ..ring::default_provider() };
    provider.install_default().expect("the first");
    lock(&LockClient::builder(variable("URL")).build().unwrap());
    assert_eq!(CryptoProvider::get_default().expect("ours").cipher_suites.len(), 1);
}

#[test]
fn process_without_a_crypto_provider_gets_none() {
    let ours = Place::new("ours");
    run("bystander", &File::new("bystander", ""), &ours, "");
    assert!(ours.terminator.handshakes() >= 1);
}

fn chooses_nothing() {
    let builder = LockClient::builder(variable("URL")).ca_certificate(variable("PEM"));
    lock(&builder.build().unwrap());
    assert!(CryptoProvider::get_default().is_none());
}

#[test]
fn plaintext_sentinel_may_name_a_tls_master() {
    let ours = Place::new("ours");
    let sentinel = sentinel(ours.terminator.address()).unwrap();
    let client = LockClient::builder("rediss://a-master")
        .sentinels([format!("redis://{sentinel}")])
        .ca_certificate(ours.authority.pem())
        .build()
        .unwrap();
    lock(&client);
    assert!(ours.terminator.handshakes() >= 1);
}

#[test]
fn tls_sentinel_may_name_a_plaintext_master() {
    let (server, authority) = (Server::builder().tcp().start().unwrap(), Authority::new("ours"));
    let socket = std::env::temp_dir().join(format!("leasehold-{}-sentinel", std::process::id()));
    sentinel_at(&socket, server.addr()).unwrap();
    let terminator = Terminator::start(&socket, &authority.sign("127.0.0.1"), None).unwrap();
    let builder = |scheme| {
        LockClient::builder("redis://a-master")
            .sentinels([format!("{scheme}://{}", terminator.address())])
            .ca_certificate(authority.pem())
    };
    lock(&builder("rediss").build().unwrap());
    assert!(terminator.handshakes() >= 1);
    // Certificates that are for none of them are a mistake.
    let error = builder("redis").build().unwrap_err();
    assert!(error.is_config() && error.to_string().contains("rediss://"), "{error}");
    std::fs::remove_file(socket).unwrap();
}
