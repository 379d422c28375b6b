//! A request that is on its way although its connection is gone.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use leasehold_support::Server;
use leasehold_support::fault::Operation;

use super::ms;

/// A way to the server on which one request gets stuck, while its connection is already cut.
pub(crate) struct Detour {
    pub(crate) url: String,
    /// Whether the next request for a lock gets stuck.
    pub(crate) armed: Arc<AtomicBool>,
}

impl Detour {
    /// Begins to relay; what gets stuck arrives so much later.
    pub(crate) fn start(server: &Server, late: Duration) -> Detour {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let (socket, armed) = (server.socket().to_owned(), Arc::new(AtomicBool::new(false)));
        let trigger = Arc::clone(&armed);
        // It ends with the process.
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, UnixStream::connect(&socket)) else {
                    return;
                };
                let trigger = Arc::clone(&trigger);
                thread::spawn(move || Detour::relay(client, server, &trigger, late));
            }
        });
        Detour { url, armed }
    }

    fn relay(client: TcpStream, server: UnixStream, trigger: &AtomicBool, late: Duration) {
        let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
        let (mut client, mut server, mut chunk) = (client, server, vec![0; 64 * 1024]);
        while let Ok(length @ 1..) = client.read(&mut chunk) {
            let asks = Operation::of(&chunk[..length]) == Ok(Operation::Acquire);
            if asks && trigger.swap(false, Ordering::SeqCst) {
                let _ = client.shutdown(Shutdown::Both);
                thread::sleep(late);
                let _ = server.write_all(&chunk[..length]);
                thread::sleep(ms(100));
                break;
            }
            if server.write_all(&chunk[..length]).is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
    }
}
