//! A relay before a TLS server, which does harm to what the server says.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// What becomes of bytes that the server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// So many of a connection's first bytes go through, and then it is closed.
    CutAfter(usize),
    /// A bit of them is another.
    Flip,
    /// Nothing goes through, either way, and connections stay open.
    Hold,
}

/// Passes bytes on between clients and a TLS server, until it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    plan: Mutex<Plan>,
}

#[derive(Debug, Default)]
struct Plan {
    harm: Option<Harm>,
    /// How many times more.
    times: usize,
    done: usize,
}

impl Relay {
    /// Stands before the server at this address.
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub fn to(server: SocketAddr) -> io::Result<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let relay = Relay { address: listener.local_addr()?, shared: Arc::default() };
        let shared = Arc::clone(&relay.shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.stop.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else {
                    continue;
                };
                let ends = || Some((client.try_clone().ok()?, server.try_clone().ok()?));
                let Some((from, to)) = ends() else { continue };
                let (requests, answers) = (Arc::clone(&shared), Arc::clone(&shared));
                thread::spawn(move || pass(&from, &to, &requests, false));
                thread::spawn(move || pass(&server, &client, &answers, true));
            }
        });
        Ok(relay)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Does this to so many pieces that come from now on.
    pub fn harm(&self, harm: Harm, times: usize) {
        *self.shared.plan() = Plan { harm: Some(harm), times, done: 0 };
    }

    /// How often it did the harm that it was told last; whatever it held goes through from now on.
    pub fn heal(&self) -> usize {
        let mut plan = self.shared.plan();
        plan.harm = None;
        plan.done
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be done to a piece, if anything; `before` bytes went through already.
    fn due(&self, answers: bool, before: usize, length: usize) -> Option<Harm> {
        let mut plan = self.plan();
        let due = plan.harm.filter(|harm| match harm {
            Harm::Hold => true,
            Harm::Flip => answers,
            Harm::CutAfter(most) => answers && before + length > *most,
        })?;
        plan.times = plan.times.checked_sub(1)?;
        plan.done += 1;
        Some(due)
    }

    fn waits(&self) -> bool {
        !self.stop.load(Ordering::SeqCst) && self.plan().harm == Some(Harm::Hold)
    }
}

/// One way, until either end hangs up.
fn pass(mut from: &TcpStream, mut to: &TcpStream, shared: &Shared, answers: bool) {
    let (mut piece, mut before) = (vec![0; 16 * 1024], 0);
    while let Ok(length) = from.read(&mut piece)
        && length > 0
    {
        let piece = &mut piece[..length];
        let sent = match shared.due(answers, before, length) {
            None => to.write_all(piece),
            Some(Harm::CutAfter(most)) => {
                let _ = to.write_all(&piece[..most.saturating_sub(before)]);
                break;
            }
            Some(Harm::Flip) => {
                // The last byte is a part of what is sealed, or of the seal.
                piece[length - 1] ^= 1;
                to.write_all(piece)
            }
            Some(Harm::Hold) => {
                while shared.waits() {
                    thread::sleep(Duration::from_millis(5));
                }
                to.write_all(piece)
            }
        };
        if sent.is_err() {
            break;
        }
        before += length;
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
