//! A connection over TLS whose peer is gone, is slow, or takes nothing.

use std::io::Read as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redis::io::tcp::socket2::SockRef;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, DigitallySignedStruct, ServerConfig, ServerConnection, SignatureScheme,
};

use super::*;
use crate::wire::endpoint::parse;
use crate::wire::error_context::io_kind;
use crate::wire::raw_connection::RawConnection;

const SHORT: Duration = Duration::from_millis(50);
/// No machine pauses for so long.
const LONG: Duration = Duration::from_secs(600);

/// Trusts anybody, so that the peer needs no certificate that expires.
#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

/// The other end, which has agreed on TLS.
struct Peer {
    session: ServerConnection,
    socket: TcpStream,
}

impl Peer {
    fn agree(mut socket: TcpStream) -> Peer {
        // What comes before the seed of an Ed25519 key.
        let mut key = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20".to_vec();
        key.extend_from_slice(&[7; 32]);
        let key = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(key)).expect("a key");
        let chain = vec![CertificateDer::from(vec![0; 32])];
        let shown = SingleCertAndKey::from(CertifiedKey::new(chain, key));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("protocol versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(shown));
        let mut session = ServerConnection::new(Arc::new(config)).expect("a session");
        while session.is_handshaking() {
            session.complete_io(&mut socket).expect("a handshake");
        }
        Peer { session, socket }
    }

    /// Sends bytes one by one with pauses until the client hangs up. All of it takes far longer than `SHORT`.
    fn trickle(mut self, bytes: &[u8]) {
        for byte in bytes {
            self.session.writer().write_all(&[*byte]).expect("room");
            if self.session.write_tls(&mut self.socket).is_err() {
                return;
            }
            thread::sleep(SHORT / 5);
        }
    }

    /// Hangs up, and says so twice: the second time as to a client that goes on. That arrives
    /// before this returns.
    fn close_connection(self, client: &TcpStream) {
        self.socket.shutdown(Shutdown::Write).expect("open");
        SockRef::from(&self.socket).set_linger(Some(Duration::ZERO)).expect("an option");
        drop(self);
        while SockRef::from(client).take_error().expect("an option").is_none() {
            thread::yield_now();
        }
    }
}

/// Connects to a listener with these parameters in the URL.
fn open(
    to: &TcpListener,
    parameters: &str,
    most: Duration,
) -> std::result::Result<RawConnection, RedisError> {
    let address = to.local_addr().expect("an address");
    let endpoint = parse(&format!("rediss://{address}{parameters}")).expect("a URL");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting))
        .with_no_client_auth();
    RawConnection::connect(&endpoint.set_tls_source(TlsSource::Fixed(Arc::new(config))), most)
}

/// Gives the first connection to a thread.
fn serve<T: Send + 'static>(
    serve: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (TcpListener, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let accepts = listener.try_clone().expect("a listener");
    (listener, thread::spawn(move || serve(accepts.accept().expect("a client").0)))
}

fn pair() -> (RawConnection, Peer) {
    let (listener, peer) = serve(Peer::agree);
    let line = open(&listener, "", LONG).expect("a connection");
    (line, peer.join().expect("a peer"))
}

#[test]
fn write_to_a_gone_peer_fails_at_once() {
    let (mut line, peer) = pair();
    peer.close_connection(&line.stream.socket.inner);
    let error = line.send_packed_command(b"PING\r\n").expect_err("nothing is sent");
    assert_eq!(io_kind(&error), Some(io::ErrorKind::BrokenPipe), "{error:?}");
}

#[test]
fn write_to_a_gone_peer_reports_its_reason() {
    let (mut line, mut peer) = pair();
    // Not TLS, so the peer says that it cannot go on.
    peer.session.read_tls(&mut &[0xff; 64][..]).expect("room");
    peer.session.process_new_packets().expect_err("no TLS");
    peer.session.write_tls(&mut peer.socket).expect("an alert");
    peer.close_connection(&line.stream.socket.inner);
    let error = line.send_packed_command(b"PING\r\n").expect_err("nothing is sent");
    assert!(is_fault(&error), "{error:?}");
}

#[test]
fn write_into_a_full_socket_fails_at_its_timeout() {
    let (mut line, mut peer) = pair();
    line.set_write_timeout(Some(SHORT)).expect("a time-out");
    line.set_read_timeout(Some(SHORT)).expect("a time-out");
    let mut sent = 0;
    let error = loop {
        match line.send_packed_command(&[b'x'; RECORD]) {
            Ok(()) => sent += RECORD,
            Err(error) => break error,
        }
    };
    assert!(error.is_timeout(), "{error:?}");
    // All that was said to be sent is on its way.
    line.stream.socket.inner.shutdown(Shutdown::Write).expect("open");
    let (mut arrived, mut piece) = (0, [0; RECORD]);
    let mut stream = rustls::Stream::new(&mut peer.session, &mut peer.socket);
    while let Ok(length @ 1..) = stream.read(&mut piece) {
        arrived += length;
    }
    assert!(arrived >= sent, "{arrived} of {sent}");
}

#[test]
fn long_command_arrives_whole() {
    let (mut line, mut peer) = pair();
    let sent: Vec<u8> = (0..1_000_003_u32).map(|number| number as u8).collect();
    let expected = sent.clone();
    let reader = thread::spawn(move || {
        let mut read = vec![0; expected.len()];
        let mut stream = rustls::Stream::new(&mut peer.session, &mut peer.socket);
        stream.read_exact(&mut read).expect("a command");
        read == expected
    });
    line.send_packed_command(&sent).expect("a command");
    assert!(reader.join().expect("a reader"));
}

#[test]
fn trickling_handshake_ends_in_time() {
    let (listener, peer) = serve(|mut socket| {
        // The client's deadline has begun by its first byte. On a slow machine it is over before that.
        if socket.read_exact(&mut [0]).is_err() {
            return;
        }
        // The beginning of a long message of a handshake.
        let message = [&b"\x16\x03\x03\x40\x00"[..], &[0; 300]].concat();
        for byte in message {
            if socket.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(SHORT / 5);
        }
    });
    let error = open(&listener, "", SHORT * 20).err().expect("no handshake");
    assert!(error.is_timeout(), "{error:?}");
    peer.join().expect("a peer");
}

#[test]
fn trickling_reply_to_hello_ends_in_time() {
    let (listener, peer) = serve(|socket| Peer::agree(socket).trickle(&[b'+'; 1_000]));
    // Time enough for the handshake as a rule, and less than the trickle takes.
    let error = open(&listener, "?protocol=resp3", SHORT * 60).err().expect("no reply");
    assert!(error.is_timeout(), "{error:?}");
    // It fails where a slow machine had no time for the handshake.
    let _ = peer.join();
}

#[test]
fn secure_address_without_certificates_is_never_opened() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("an option");
    let address = listener.local_addr().expect("an address");
    let endpoint = parse(&format!("rediss://me:s3cret@{address}")).expect("a URL");
    let error = RawConnection::connect(&endpoint, SHORT * 4).err().expect("no certificates");
    assert_eq!(error.kind(), ErrorKind::InvalidClientConfig, "{error:?}");
    let accepted = listener.accept().err().map(|error| error.kind());
    assert_eq!(accepted, Some(io::ErrorKind::WouldBlock), "something was sent");
}
