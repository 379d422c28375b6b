//! A terminal for a program, and its screen to be read.

use std::io::{Read as _, Write as _};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use pty_process::Size;
use pty_process::blocking::{Command, Pty, open};
use rustix::termios::{Termios, tcgetattr};
use vt100::{Parser, Screen};

use crate::common::{SOON, until};

/// What stood on the screen before.
pub(crate) const BEFORE: &str = "before $";

/// A program at a terminal; killed on drop.
pub(crate) struct Terminal {
    pty: Arc<Pty>,
    child: Child,
    /// How the terminal was set before.
    settings: Termios,
    seen: Arc<Mutex<(Parser, Vec<u8>)>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Runs a program at a terminal of this size: columns and rows.
    pub(crate) fn run(
        arguments: &[&str],
        variables: &[(&str, &str)],
        (columns, rows): (u16, u16),
    ) -> Terminal {
        let (pty, pts) = open().expect("a terminal");
        pty.resize(Size::new(rows, columns)).expect("a size");
        let settings = tcgetattr(&pty).expect("settings");
        let command = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .args(arguments)
            .env_remove("NO_COLOR")
            .env_remove("LEASEHOLD_URL")
            .env("TERM", "xterm-256color")
            .envs(variables.iter().copied());
        let child = command.spawn(pts).expect("the program");
        let mut parser = Parser::new(rows, columns, 0);
        parser.process(BEFORE.as_bytes());
        let (pty, seen) = (Arc::new(pty), Arc::new(Mutex::new((parser, Vec::new()))));
        let (from, to) = (Arc::clone(&pty), Arc::clone(&seen));
        let reader = thread::spawn(move || {
            let mut bytes = [0; 65_536];
            // The terminal hangs up when the program has ended.
            while let Ok(count @ 1..) = (&*from).read(&mut bytes) {
                let mut seen = to.lock().unwrap_or_else(PoisonError::into_inner);
                seen.0.process(&bytes[..count]);
                seen.1.extend_from_slice(&bytes[..count]);
            }
        });
        Terminal { pty, child, settings, seen, reader: Some(reader) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn press(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).expect("a key");
    }

    pub(crate) fn resize(&self, (columns, rows): (u16, u16)) {
        self.seen().0.screen_mut().set_size(rows, columns);
        self.pty.resize(Size::new(rows, columns)).expect("a size");
    }

    /// The lines of the screen, without blanks at their ends.
    pub(crate) fn lines(&self) -> Vec<String> {
        lines(self.seen().0.screen())
    }

    pub(crate) fn is_alternate(&self) -> bool {
        self.seen().0.screen().alternate_screen()
    }

    /// All bytes that came.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.seen().1.clone()
    }

    /// Waits for a screen.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, is_there: impl Fn(&[String]) -> bool) -> Vec<String> {
        let end = Instant::now() + SOON;
        loop {
            let lines = self.lines();
            if is_there(&lines) {
                return lines;
            }
            assert!(Instant::now() < end, "not in time: {what}\n{}", lines.join("\n"));
            thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Waits for the end, after which the screen is as it was.
    #[track_caller]
    pub(crate) fn ends_restored(mut self) -> ExitStatus {
        let mut status = None;
        until("the program ends", || {
            status = self.child.try_wait().expect("a status");
            status.is_some()
        });
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader");
        }
        let now = tcgetattr(&*self.pty).expect("settings");
        let modes =
            |it: &Termios| (it.input_modes, it.output_modes, it.control_modes, it.local_modes);
        assert_eq!(modes(&now), modes(&self.settings));
        let seen = self.seen();
        let screen = seen.0.screen();
        assert_eq!(lines(screen)[0], BEFORE);
        assert!(!screen.alternate_screen() && !screen.hide_cursor());
        drop(seen);
        status.expect("an end")
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, (Parser, Vec<u8>)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lines(screen: &Screen) -> Vec<String> {
    let (_, columns) = screen.size();
    screen.rows(0, columns).map(|line| line.trim_end().to_owned()).collect()
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Runs a program until it has written this text, and takes its terminal away. Returns how it ended.
pub(crate) fn hang_up(arguments: &[&str], variables: &[(&str, String)], text: &str) -> ExitStatus {
    let (mut pty, pts) = open().expect("a terminal");
    pty.resize(Size::new(24, 80)).expect("a size");
    let command = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(arguments)
        .env_remove("LEASEHOLD_URL")
        .env("TERM", "xterm-256color")
        .envs(variables.iter().map(|(name, value)| (name, value)));
    let mut child = Ending(command.spawn(pts).expect("the program"));
    let (mut bytes, mut seen) = ([0; 4096], Vec::new());
    while !String::from_utf8_lossy(&seen).contains(text) {
        let count = pty.read(&mut bytes).expect("a screen");
        seen.extend_from_slice(&bytes[..count]);
    }
    drop(pty);
    let mut status = None;
    until("the program ends", || {
        status = child.0.try_wait().expect("a status");
        status.is_some()
    });
    status.expect("an end")
}

/// Killed on drop: a test that fails must not leave a program that nobody can end.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
