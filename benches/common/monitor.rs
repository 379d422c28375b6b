//! What clients send, as the server's `MONITOR` shows it, which unlike its counters tells that from
//! what scripts call.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use leasehold_support::Server;

/// Counts what clients send from its start on.
#[derive(Debug)]
pub(crate) struct Monitor<'a> {
    server: &'a Server,
    reader: JoinHandle<BTreeMap<String, u64>>,
}

impl Monitor<'_> {
    const END: &'static str = "the monitor's end";

    pub(crate) fn start(server: &Server) -> Monitor<'_> {
        let mut stream = UnixStream::connect(server.socket()).expect("the server's socket");
        stream.write_all(b"MONITOR\r\n").expect("the server listens");
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        assert_eq!(lines.next().as_deref(), Some("+OK"), "the server lets us watch");
        let reader = thread::spawn(move || {
            let mut sent = BTreeMap::new();
            for line in lines.take_while(|line| !line.contains(Self::END)) {
                // After the time comes where it is from, which is `lua` for what scripts call.
                let Some((origin, command)) = line.split_once("] ") else { continue };
                if !origin.ends_with(" lua") {
                    let name = command.split('"').nth(1).unwrap_or_default().to_lowercase();
                    *sent.entry(name).or_insert(0) += 1;
                }
            }
            sent
        });
        Monitor { server, reader }
    }

    /// Answers how often each command was sent, `eval` and `evalsha` aside.
    pub(crate) fn others(self) -> BTreeMap<String, u64> {
        let ended: redis::RedisResult<String> =
            redis::cmd("ECHO").arg(Self::END).query(&mut self.server.connection());
        ended.expect("an answer to ECHO");
        let mut sent = self.reader.join().expect("the reader of MONITOR goes on");
        sent.retain(|name, _| name != "eval" && name != "evalsha");
        sent
    }
}
