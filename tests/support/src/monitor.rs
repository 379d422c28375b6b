//! The commands of a server, as it reports them.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::Server;

/// How long the server may take to begin.
const BEGIN: Duration = Duration::from_secs(10);

/// A connection on which a server reports all commands that it runs (`MONITOR`), until it hangs up.
#[derive(Debug)]
pub struct Monitor {
    lines: Arc<Mutex<Vec<Line>>>,
    stream: UnixStream,
    reader: Option<JoinHandle<()>>,
}

/// One command, as the server reported it.
#[derive(Debug, Clone)]
pub struct Line {
    /// When it was read.
    pub at: Instant,
    /// The line: the server's time, the client, and the quoted words.
    pub text: String,
}

impl Monitor {
    /// Connects to a server that replies.
    ///
    /// # Panics
    ///
    /// If it does not reply.
    pub fn start(server: &Server) -> Monitor {
        let mut stream = UnixStream::connect(server.socket()).expect("a connection");
        stream.set_read_timeout(Some(BEGIN)).expect("a time-out");
        stream.write_all(b"MONITOR\r\n").expect("a request");
        let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
        let mut first = String::new();
        reader.read_line(&mut first).expect("an answer");
        assert_eq!(first, "+OK\r\n");
        stream.set_read_timeout(None).expect("no time-out");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&lines);
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            while reader.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
                let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
                let line = Line { at: Instant::now(), text };
                noted.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                bytes.clear();
            }
        });
        Monitor { lines, stream, reader: Some(reader) }
    }

    /// Returns the commands so far in which this text is.
    pub fn lines(&self, text: &str) -> Vec<Line> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|line| line.text.contains(text)).cloned().collect()
    }

    /// Says whether the server has not hung up yet. It does when it becomes a replica.
    pub fn is_open(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| !reader.is_finished())
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
