//! The terminal, which is left as it was: at the end, after a panic, and when a signal ends or stops the program.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::DefaultTerminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, enable_raw_mode};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::low_level::emulate_default_handler;

/// The terminal in raw mode, with the screen of the program in place of what was there.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) terminal: DefaultTerminal,
}

impl Screen {
    /// Takes the terminal. A panic on any thread gives it back before its message is printed.
    pub(super) fn take() -> io::Result<Screen> {
        Ok(Screen { terminal: ratatui::try_init()? })
    }

    /// Gives the terminal back, stops the program as the shell expects it, and takes the terminal again when it
    /// goes on.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        self.terminal.show_cursor()?;
        ratatui::try_restore()?;
        emulate_default_handler(SIGTSTP)?;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        // Not `clear`, which asks the terminal where the cursor is: over a slow line the reply may come too late.
        self.terminal = DefaultTerminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // On a terminal that is gone nothing can be done.
        let _ = self.terminal.show_cursor();
        let _ = ratatui::try_restore();
    }
}

/// The signals that came.
#[derive(Debug)]
pub(super) struct Signals {
    ends: Vec<(i32, Arc<AtomicBool>)>,
    stop: Arc<AtomicBool>,
}

impl Signals {
    /// Catches them from now on.
    pub(super) fn catch() -> io::Result<Signals> {
        let flag = |signal| {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
            io::Result::Ok(flag)
        };
        let ends = [SIGTERM, SIGHUP, SIGINT];
        let ends = ends.into_iter().map(|signal| Ok((signal, flag(signal)?)));
        Ok(Signals { ends: ends.collect::<io::Result<_>>()?, stop: flag(SIGTSTP)? })
    }

    /// The signal that ends the program.
    pub(super) fn end(&self) -> Option<i32> {
        let came = |(signal, flag): &(i32, Arc<AtomicBool>)| {
            flag.load(Ordering::SeqCst).then_some(*signal)
        };
        self.ends.iter().find_map(came)
    }

    /// Whether the program is to stop; asked once for each signal.
    pub(super) fn take_stop(&self) -> bool {
        self.stop.swap(false, Ordering::SeqCst)
    }
}

/// Ends the program by a signal, so that its parent sees which one.
pub(super) fn end_by(signal: i32) -> io::Result<()> {
    emulate_default_handler(signal)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use pty_process::blocking::{Command, open};

    use super::*;

    const ROLE: &str = "LEASEHOLD_TEST_PANIC_ON_SCREEN";

    /// Not a test: what the next one runs at a terminal.
    #[test]
    fn role_panics_while_it_has_the_screen() {
        if std::env::var_os(ROLE).is_none() {
            return;
        }
        let _screen = Screen::take().expect("a screen");
        // Another thread than the one that has the screen.
        let other = std::thread::spawn(|| panic!("planted"));
        let _ = other.join();
        panic!("planted, too");
    }

    #[test]
    fn panic_gives_the_terminal_back_before_its_message() {
        let (mut pty, pts) = open().expect("a terminal");
        let name = "command::top::screen::tests::role_panics_while_it_has_the_screen";
        let command = Command::new(std::env::current_exe().expect("this program"))
            .args([name, "--exact", "--nocapture"])
            .env(ROLE, "1")
            .env("TERM", "xterm");
        let mut child = command.spawn(pts).expect("the role");
        let (mut bytes, mut seen) = ([0; 4096], Vec::new());
        while let Ok(count @ 1..) = pty.read(&mut bytes) {
            seen.extend_from_slice(&bytes[..count]);
        }
        assert!(!child.wait().expect("an end").success());
        let text = String::from_utf8_lossy(&seen);
        let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what:?}: {text:?}"));
        let (enter, leave) = (place("\x1b[?1049h"), place("\x1b[?1049l"));
        assert!(enter < leave && leave < place("planted"), "{text:?}");
        // The message goes on at the start of its next line: the terminal is not raw any more.
        assert!(text[leave..].contains("\r\n"), "{text:?}");
    }
}
