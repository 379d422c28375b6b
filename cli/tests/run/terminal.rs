//! Ctrl-C, Ctrl-Z and `fg` in a terminal, beside flock(1).

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use leasehold_support::{Server, skip};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::common::{ask, wait_until};
use crate::flock::{Tool, beside_flock};

/// An interactive shell in a terminal of its own.
struct Terminal {
    keys: File,
    screen: Arc<Mutex<String>>,
    /// How much of the screen was looked at.
    seen: usize,
    shell: Child,
}

impl Terminal {
    /// Opens one, if there are the programs for it.
    fn open() -> Option<Terminal> {
        if ["bash", "setsid"]
            .iter()
            .any(|name| Command::new(name).arg("--version").output().is_err())
        {
            skip("a terminal with a shell needs bash and setsid(1)");
            return None;
        }
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a terminal");
        grantpt(&keys).expect("a terminal");
        unlockpt(&keys).expect("a terminal");
        let name = ptsname(&keys, Vec::new()).expect("its name");
        let name = std::ffi::OsStr::from_bytes(name.as_bytes());
        let other = || {
            OwnedFd::from(OpenOptions::new().read(true).write(true).open(name).expect("its end"))
        };
        let mut command = Command::new("setsid");
        command.args(["--ctty", "bash", "--norc", "--noprofile", "-i"]);
        command.env("PS1", "$ ").env("TERM", "dumb");
        command.env_remove("HISTFILE").env_remove("LEASEHOLD_URL");
        let shell =
            command.stdin(other()).stdout(other()).stderr(other()).spawn().expect("a shell");
        let keys = File::from(keys);
        let mut output = keys.try_clone().expect("a second handle");
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&screen);
        // It ends with the last process that has the terminal.
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                shown.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            }
        });
        Some(Terminal { keys, screen, seen: 0, shell })
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("a terminal");
    }

    /// Waits for a text after what was seen before.
    fn expect(&mut self, text: &str) {
        let screen = Arc::clone(&self.screen);
        let seen = self.seen;
        let look = || screen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut end = None;
        let what = format!("{text:?} on the screen");
        let shown = std::panic::AssertUnwindSafe(|| {
            wait_until(&what, || {
                end = look()[seen..].find(text).map(|place| seen + place + text.len());
                end.is_some()
            });
        });
        if std::panic::catch_unwind(shown).is_err() {
            panic!("no {text:?} in {:?}", &look()[seen..]);
        }
        self.seen = end.expect("found");
    }

    /// Types a line. What a command prints must not be in it, as the terminal shows both.
    fn enter(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    /// Types a line until the shell prints this. It drops what is typed while it cleans up after an interrupt.
    fn enter_until(&mut self, line: &str, text: &str) {
        for _ in 0..9 {
            self.enter(line);
            let end = Instant::now() + Duration::from_secs(1);
            let is_shown = || {
                let screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
                screen[self.seen..].contains(text)
            };
            while !is_shown() && Instant::now() < end {
                sleep(Duration::from_millis(2));
            }
            if is_shown() {
                break;
            }
        }
        self.expect(text);
    }

    /// Types lines until `cat` returns one: the shell takes those that come before it has given the terminal away.
    fn enter_to_cat(&mut self, line: &str) {
        let (screen, seen) = (Arc::clone(&self.screen), self.seen);
        let both = format!("{line}\r\n{line}\r\n");
        let is_there =
            || screen.lock().unwrap_or_else(PoisonError::into_inner)[seen..].contains(&both);
        wait_until("the echo of cat", || {
            self.enter(line);
            let end = Instant::now() + Duration::from_millis(200);
            while !is_there() && Instant::now() < end {
                sleep(Duration::from_millis(2));
            }
            is_there()
        });
        self.expect(&both);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn line(tool: &Tool, job: &[&str]) -> String {
    let command = tool.command(&[], job);
    let url = command.get_envs().find(|(name, _)| *name == "REDIS_URL").and_then(|(_, url)| url);
    let url = url.map(|url| format!("REDIS_URL='{}' ", url.display())).unwrap_or_default();
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| format!("'{}'", word.display())).collect();
    format!("{url}{}", words.join(" "))
}

#[test]
fn ctrl_c_ends_the_job_and_the_loop_around_it() {
    beside_flock(|tool| {
        let Some(mut terminal) = Terminal::open() else { return };
        let job = line(tool, &["sh", "-c", "echo up$((6*7)); exec sleep 60"]);
        terminal.enter(&job);
        terminal.expect("up42");
        terminal.press("\x03");
        terminal.enter_until("echo status=$?.", "status=130.");
        terminal.enter(&format!("for turn in 1 2 3; do {job}; echo turn''ed; done"));
        terminal.expect("up42");
        terminal.press("\x03");
        terminal.enter_until("echo end''ed", "ended");
        let screen = terminal.screen.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(!screen.contains("turned"), "{screen}");
    });
}

/// Without -v, and as soon as the wait is longer than a moment.
#[test]
fn run_that_waits_at_a_terminal_says_for_whom() {
    let server = Server::start().expect("a server");
    let _: () = ask(&server, &["SET", "lock", "somebody", "NX", "PX", "600000"]);
    let Some(mut terminal) = Terminal::open() else { return };
    terminal.enter(&line(&Tool::Leasehold(server.url()), &["sh", "-c", "echo up$((6*7))"]));
    terminal.expect("leasehold: waiting for \"lock\", held by somebody; its lease ends in 9m");
    let _: u32 = ask(&server, &["DEL", "lock"]);
    terminal.expect("up42");
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    beside_flock(|tool| {
        let Some(mut terminal) = Terminal::open() else { return };
        // The program beside it in the pipeline stops and goes on with it, and reads its output.
        let job = line(tool, &["sh", "-c", "echo up$((6*7)); exec cat"]);
        terminal.enter(&format!("{job} | cat"));
        terminal.expect("up42");
        terminal.enter_to_cat("one");
        terminal.press("\x1a");
        terminal.expect("Stopped");
        terminal.enter("echo shell=$?.");
        terminal.expect("shell=148.");
        terminal.enter("fg");
        terminal.enter_to_cat("two");
        terminal.press("\x1a");
        terminal.expect("Stopped");
        // In the background it stops again when it reads.
        terminal.enter("bg; sleep 0.2; jobs");
        terminal.expect("Stopped");
        terminal.enter("fg");
        terminal.enter_to_cat("three");
        terminal.press("\x04");
        terminal.enter("echo status=$?.");
        terminal.expect("status=0.");
    });
}

#[test]
fn kill_of_a_background_job_ends_it() {
    beside_flock(|tool| {
        let Some(mut terminal) = Terminal::open() else { return };
        let script =
            "trap \"echo got$((6*7)); exit 3\" TERM; echo up$((6*7)); while :; do sleep 0.01; done";
        let job = line(tool, &["sh", "-c", script]);
        terminal.enter(&format!("{job} &"));
        terminal.expect("up42");
        terminal.enter("kill %1; wait %1; echo status=$?.");
        terminal.expect("got42");
    });
}
