//! A stand-in for a sentinel, which tells where the master is and does nothing else.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

/// Tells of a master, in plain text at a port. Returns the port's address. It lives as long as the process.
///
/// # Errors
///
/// If no port is free.
pub fn sentinel(master: SocketAddr) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || tell(stream, master));
        }
    });
    Ok(address)
}

/// The same at a Unix socket, before which a [`Terminator`](crate::Terminator) may stand.
///
/// # Errors
///
/// If the socket cannot be made.
pub fn sentinel_at(socket: &Path, master: SocketAddr) -> io::Result<()> {
    let listener = UnixListener::bind(socket)?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || tell(stream, master));
        }
    });
    Ok(())
}

/// Replies to each command until the client hangs up.
fn tell(mut stream: impl Read + Write, master: SocketAddr) {
    let mut commands = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut commands) {
        // Several commands may come in one write. Each is an array, and no argument has a star.
        let commands = commands[..length].split(|byte| *byte == b'*').skip(1);
        let reply: String = commands.map(|command| reply(command, master)).collect();
        if stream.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

fn reply(command: &[u8], master: SocketAddr) -> String {
    if !command.windows(8).any(|window| window == b"SENTINEL") {
        return "-ERR unknown command\r\n".to_owned();
    }
    let (ip, port) = (master.ip().to_string(), master.port().to_string());
    let fields = ["ip", &ip, "port", &port, "flags", "master", "config-epoch", "1"];
    let mut reply = format!("*{}\r\n", fields.len());
    for field in fields {
        reply += &format!("${}\r\n{field}\r\n", field.len());
    }
    reply
}
