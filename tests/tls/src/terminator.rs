//! A TLS terminator: speaks TLS to clients, and plain text to a server's socket.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{CipherSuite, RootCertStore, ServerConfig, ServerConnection};

use crate::Certificate;

/// Accepts TLS connections until it is dropped.
#[derive(Debug)]
pub struct Terminator {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    handshakes: Arc<AtomicU64>,
    suite: Arc<Mutex<Option<CipherSuite>>>,
}

impl Terminator {
    /// Stands before the server at this Unix socket, and shows this certificate. Where clients have
    /// to show one, `clients` is the PEM text of the authority that signs theirs.
    ///
    /// # Errors
    ///
    /// If no port is free.
    ///
    /// # Panics
    ///
    /// If the certificates are none.
    pub fn start(
        socket: &Path,
        certificate: &Certificate,
        clients: Option<&str>,
    ) -> io::Result<Terminator> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let terminator = Terminator {
            address: listener.local_addr()?,
            stop: Arc::default(),
            handshakes: Arc::default(),
            suite: Arc::default(),
        };
        let config = Arc::new(config(certificate, clients));
        let (stop, handshakes) = (Arc::clone(&terminator.stop), Arc::clone(&terminator.handshakes));
        let suite = Arc::clone(&terminator.suite);
        let socket: PathBuf = socket.to_owned();
        thread::spawn(move || {
            for client in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(client) = client else { continue };
                let (config, socket) = (Arc::clone(&config), socket.clone());
                let (handshakes, suite) = (Arc::clone(&handshakes), Arc::clone(&suite));
                thread::spawn(move || {
                    // A client that hangs up, or is not believed, ends its connection and no other.
                    let _ = serve(&client, &socket, config, &handshakes, &suite);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Ok(terminator)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The cipher suite of the last connection.
    pub fn suite(&self) -> Option<CipherSuite> {
        *self.suite.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many clients have agreed on a connection.
    pub fn handshakes(&self) -> u64 {
        self.handshakes.load(Ordering::SeqCst)
    }
}

impl Drop for Terminator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn config(certificate: &Certificate, clients: Option<&str>) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("protocol versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            roots
                .add(CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM"))
                .expect("a root");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
        }
    };
    let chain = vec![CertificateDer::from_pem_slice(certificate.pem.as_bytes()).expect("PEM")];
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).expect("PEM");
    builder.with_single_cert(chain, key).expect("a certificate and its key")
}

fn serve(
    client: &TcpStream,
    socket: &Path,
    config: Arc<ServerConfig>,
    handshakes: &AtomicU64,
    suite: &Mutex<Option<CipherSuite>>,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
    while tls.is_handshaking() {
        if let Err(error) = tls.complete_io(&mut &*client) {
            // The client learns why.
            let _ = tls.write_tls(&mut &*client);
            return Err(error);
        }
    }
    let agreed = tls.negotiated_cipher_suite().map(|agreed| agreed.suite());
    *suite.lock().unwrap_or_else(PoisonError::into_inner) = agreed;
    handshakes.fetch_add(1, Ordering::SeqCst);
    let server = UnixStream::connect(socket)?;
    let tls = Mutex::new(tls);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = answers(&server, client, &tls);
            let _ = client.shutdown(Shutdown::Both);
        });
        let outcome = requests(client, &server, &tls);
        let _ = server.shutdown(Shutdown::Both);
        outcome
    })
}

/// From the client to the server, until either hangs up.
fn requests(
    mut client: &TcpStream,
    mut server: &UnixStream,
    tls: &Mutex<ServerConnection>,
) -> io::Result<()> {
    let (mut sealed, mut open) = (vec![0; 16 * 1024], Vec::new());
    loop {
        {
            let mut tls = tls.lock().unwrap_or_else(PoisonError::into_inner);
            // What came with the handshake is in there already.
            if let Err(error) = tls.reader().read_to_end(&mut open)
                && error.kind() != io::ErrorKind::WouldBlock
            {
                return Err(error);
            }
            while tls.wants_write() {
                tls.write_tls(&mut client)?;
            }
        }
        server.write_all(&open)?;
        open.clear();
        let length = client.read(&mut sealed)?;
        if length == 0 {
            return Ok(());
        }
        let mut rest = &sealed[..length];
        let mut tls = tls.lock().unwrap_or_else(PoisonError::into_inner);
        while !rest.is_empty() {
            tls.read_tls(&mut rest)?;
            tls.process_new_packets().map_err(io::Error::other)?;
            if let Err(error) = tls.reader().read_to_end(&mut open)
                && error.kind() != io::ErrorKind::WouldBlock
            {
                return Err(error);
            }
        }
    }
}

/// From the server to the client, until either hangs up.
fn answers(
    mut server: &UnixStream,
    mut client: &TcpStream,
    tls: &Mutex<ServerConnection>,
) -> io::Result<()> {
    let mut open = vec![0; 16 * 1024];
    loop {
        let length = server.read(&mut open)?;
        if length == 0 {
            return Ok(());
        }
        let mut tls = tls.lock().unwrap_or_else(PoisonError::into_inner);
        tls.writer().write_all(&open[..length])?;
        while tls.wants_write() {
            tls.write_tls(&mut client)?;
        }
    }
}
