//! `top` at a real terminal, whose screen is read.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{LockClient, Wait};
use leasehold_support::fault::Operation;
use leasehold_support::{Direction, Proxy, Server};

use crate::common::{EndWaits, ask, long, open, run, server, until};
use crate::terminal::{BEFORE, Terminal, hang_up};

const USUAL: (u16, u16) = (80, 24);

fn top(server: &Server, arguments: &[&str], variables: &[(&str, &str)]) -> Terminal {
    let url = server.url();
    let variables = [&[("REDIS_URL", url.as_str())], variables].concat();
    Terminal::run(&[&["top"], arguments].concat(), &variables, USUAL)
}

/// Waits for a row that begins with this name.
#[track_caller]
fn row(terminal: &Terminal, number: usize, begin: &str) -> Vec<String> {
    terminal.until(begin, |lines| {
        lines.get(number + 1).is_some_and(|line| line.split(' ').next() == Some(begin))
    })
}

/// The processor time of the server, in seconds.
fn processor(server: &Server) -> f64 {
    let info: String = ask(server, &["INFO", "cpu"]);
    let value = |name: &str| -> f64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    };
    value("used_cpu_user:") + value("used_cpu_sys:")
}

/// What the server does in a while: scripts that clients run, and its processor's load in percent.
fn load(server: &Server, span: Duration) -> (u64, f64) {
    server.reset_stats();
    let used = processor(server);
    thread::sleep(span);
    let used = processor(server) - used;
    (server.commands().client_commands(&[]), used / span.as_secs_f64() * 100.0)
}

#[test]
#[expect(clippy::print_stdout, reason = "the screen and the figures are there to be read")]
fn thousand_locks_and_200_waiters_are_sorted_by_what_blocks() {
    let server = server();
    let holder = LockClient::builder(server.url()).label("billing").build().unwrap();
    let waiters = [open(&server), open(&server), open(&server)];
    let options = long().wait(Wait::queue());
    let held: Vec<_> = (0..1_000)
        .map(|number| {
            let lock = holder.mutex_with(format!("lock:{number}"), options).unwrap();
            lock.lock().unwrap().into_owned().unwrap()
        })
        .collect();
    thread::scope(|scope| {
        let _waits = EndWaits(&waiters);
        // Three processes wait for one lock, and one for each of 197 others.
        let names = (0..197).map(|number| format!("lock:{number}"));
        let places = names.map(|name| (&waiters[0], name));
        let most = waiters.iter().map(|client| (client, "lock:777".to_owned()));
        for (client, name) in places.chain(most) {
            let lock = client.mutex_with(name, options).unwrap();
            scope.spawn(move || _ = lock.lock().unwrap_err());
        }
        let is_announced = || ask::<usize>(&server, &["ZCARD", "leasehold:index"]) == 1_000;
        until("all are announced", is_announced);
        let waiting = || {
            let locks = holder.locks("lock:*").unwrap().filter_map(Result::ok);
            locks.filter_map(|lock| lock.inspection().waiting()).sum::<usize>()
        };
        until("all wait", || waiting() == 200);

        // The server is asked at the beginning, and then once a second at most.
        let proxy = Proxy::start(&server).unwrap();
        let inspected = || proxy.tally(Direction::Request, Operation::Inspect).seen;
        let start = Instant::now();
        let terminal = top(&server, &[], &[("REDIS_URL", &proxy.url())]);
        // It is written line by line.
        let screen = terminal.until("the whole screen", |lines| {
            lines[2].starts_with("lock:777") && lines[23].starts_with("q quit")
        });
        assert!(
            screen[0].starts_with("leasehold top: 1000 locks, 200 wait; by blocking"),
            "{screen:#?}"
        );
        assert!(screen[2].contains("mutex") && screen[2].contains("billing"), "{screen:#?}");
        assert_eq!(screen[2].split_whitespace().rev().nth(1), Some("3"), "{screen:#?}");
        assert!(screen[22].starts_with("lock:777 is blocked by billing "), "{screen:#?}");
        println!("{}", screen.join("\n"));
        until("it has refreshed", || inspected() >= 4_000);
        assert!(inspected() as f64 <= (start.elapsed().as_secs_f64() + 1.0) * 1_000.0);

        // By the longest wait, the longest hold, the end of the lease, the name.
        terminal.press("s");
        terminal.until("another order", |lines| lines[0].contains("; by longest"));
        terminal.press("sss");
        row(&terminal, 1, "lock:0");
        terminal.press("/:777\r");
        let screen = row(&terminal, 1, "lock:777");
        assert!(screen[0].contains("1 shown for \":777\""), "{screen:#?}");
        terminal.press("\r");
        let screen = terminal.until("the lock alone", |lines| {
            lines[0] == "mutex lock:777" && lines[6].starts_with("blocked by ")
        });
        let detail = [
            "held by billing, process ",
            "3 wait:",
            "  1. ",
            "  2. ",
            "  3. ",
            "blocked by billing ",
        ];
        for (line, begin) in screen[1..].iter().zip(detail) {
            assert!(line.starts_with(begin), "{screen:#?}");
        }
        terminal.press("\x1b");
        row(&terminal, 1, "lock:777");
        terminal.press("/");
        terminal.until("the filter", |lines| lines[23].starts_with("filter: :777_"));
        terminal.press("\x1b");
        // The lock that was looked at stays chosen, and on the screen.
        terminal.until("all rows", |lines| {
            !lines[0].contains("shown") && lines.iter().any(|line| line.starts_with("lock:777 "))
        });
        // The key Home.
        terminal.press("\x1b[H");
        row(&terminal, 1, "lock:0");

        terminal.resize((130, 30));
        // The last line is drawn last.
        terminal.until("the blockers", |lines| {
            lines[1].ends_with("BLOCKER")
                && lines.get(29).is_some_and(|line| line.starts_with("q quit"))
        });
        terminal.resize((40, 10));
        terminal.until("few columns", |lines| {
            lines[1].ends_with("LONG")
                && !lines[1].contains("KIND")
                && lines[9].starts_with("q quit")
        });
        terminal.resize(USUAL);
        terminal.until("the usual ones", |lines| lines[1].contains("KIND") && lines.len() == 24);

        // What a refresh costs, beside a pause.
        let span = Duration::from_secs(10);
        let before = inspected();
        let (scripts, used) = load(&server, span);
        let refreshes = (inspected() - before) / 1_000;
        terminal.press("p");
        terminal.until("a pause", |lines| lines[0].ends_with("PAUSED"));
        let before = inspected();
        let (idle_scripts, idle) = load(&server, span);
        assert!(inspected() - before <= 1_000, "more than a refresh that was under way");
        println!(
            "in {span:?}: {refreshes} refreshes, {scripts} scripts, processor {used:.2} %; paused: \
             {idle_scripts} scripts, processor {idle:.2} %"
        );
        terminal.press("q");
        assert_eq!(terminal.ends_restored().code(), Some(0));
        let once = run(&server, ["top", "--once"]).ends(0).stdout;
        assert!(once.lines().nth(1).unwrap().starts_with("lock:777 "), "{once}");
        let json = run(&server, ["top", "--json"]).ends(0).json();
        assert_eq!(json["locks"][0]["name"], "lock:777");
        assert_eq!(json["locks"].as_array().unwrap().len(), 1_000);
    });
    drop(held);
}

#[test]
fn signals_end_it_and_leave_the_terminal_as_it_was() {
    let server = server();
    for (name, signal) in [("TERM", 15), ("HUP", 1), ("INT", 2)] {
        let terminal = top(&server, &[], &[]);
        terminal.until("the screen", |lines| lines[0].starts_with("leasehold top"));
        assert!(terminal.is_alternate());
        kill(&terminal, name);
        assert_eq!(terminal.ends_restored().signal(), Some(signal), "{name}");
    }
    let terminal = top(&server, &[], &[]);
    terminal.until("the screen", |lines| lines[0].starts_with("leasehold top"));
    // Control and C.
    terminal.press("\x03");
    assert_eq!(terminal.ends_restored().code(), Some(0));
}

fn kill(terminal: &Terminal, signal: &str) {
    let mut kill = Command::new("kill");
    let status = kill.arg(format!("-{signal}")).arg(terminal.pid().to_string()).status();
    assert!(status.unwrap().success());
}

#[test]
#[cfg(target_os = "linux")]
fn stopped_program_gives_the_terminal_back_and_takes_it_again() {
    let server = server();
    let terminal = top(&server, &[], &[]);
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", terminal.pid())).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    };
    // Control and Z, and the signal.
    for way in ["\x1a", "TSTP"] {
        terminal.until("the screen", |lines| lines[0].starts_with("leasehold top"));
        match way {
            "TSTP" => kill(&terminal, way),
            key => terminal.press(key),
        }
        until("it has stopped", || state() == 'T');
        terminal.until("what was there", |lines| lines[0] == BEFORE);
        kill(&terminal, "CONT");
    }
    terminal.until("the screen", |lines| lines[0].starts_with("leasehold top"));
    terminal.press("q");
    assert_eq!(terminal.ends_restored().code(), Some(0));
}

/// The window is closed, or the connection to the machine is cut.
#[test]
fn program_ends_with_its_terminal() {
    let server = server();
    let variables = [("REDIS_URL", server.url())];
    assert_eq!(hang_up(&["top"], &variables, "leasehold top").signal(), Some(1));
}

/// A key may be several bytes, the last of which never come.
#[test]
fn signal_ends_it_within_a_key() {
    let server = server();
    let terminal = top(&server, &[], &[]);
    terminal.until("the screen", |lines| lines[0].starts_with("leasehold top"));
    terminal.press("\x1b[");
    kill(&terminal, "TERM");
    assert_eq!(terminal.ends_restored().signal(), Some(15));
}

#[test]
fn outage_is_shown_and_its_end_too() {
    let server = server();
    let terminal = top(&server, &["--interval", "50ms", "--timeout", "500ms"], &[]);
    terminal.until("the screen", |lines| lines[0].starts_with("leasehold top"));
    server.kill();
    let screen = terminal.until("an error", |lines| lines[22].starts_with("not refreshed: "));
    assert!(screen[0].starts_with("leasehold top"), "{screen:#?}");
    server.restart();
    terminal.until("no error", |lines| lines[22].is_empty());
    terminal.press("q");
    assert_eq!(terminal.ends_restored().code(), Some(0));
}

#[test]
fn foreign_locks_are_shown_with_a_scan() {
    let server = server();
    ask::<()>(&server, &["SET", "plain", "someone", "NX", "PX", "60000"]);
    ask::<()>(&server, &["HSET", "java", "285475da-9152-4c83-822a-67ee2f116a79:52", "1"]);
    ask::<()>(&server, &["SET", "\u{1b}[2J", "\u{1b}]0;x\u{7}", "PX", "60000"]);
    let terminal = top(&server, &["--scan", "--sort", "name"], &[]);
    row(&terminal, 1, "\\x1b[2J");
    row(&terminal, 2, "java");
    let screen = row(&terminal, 3, "plain");
    assert!(screen[4].contains("plain      someone"), "{screen:#?}");
    terminal.press("q");
    terminal.ends_restored();
}

#[test]
fn no_colour_is_sent_where_none_is_wanted() {
    let server = server();
    let client = open(&server);
    let lock = client.mutex_with("a", long()).unwrap();
    let other = open(&server);
    let _guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let _waits = EndWaits(std::slice::from_ref(&other));
        scope.spawn(|| other.mutex_with("a", long()).unwrap().lock().unwrap_err());
        until("it waits", || lock.inspect().unwrap().waiting() == Some(1));
        until("it is announced", || ask::<usize>(&server, &["ZCARD", "leasehold:index"]) == 1);
        let colours = |variables| {
            let terminal = top(&server, &[], variables);
            row(&terminal, 1, "a");
            let bytes = String::from_utf8(terminal.bytes()).unwrap();
            terminal.press("q");
            terminal.ends_restored();
            // Of the 16 colours, or of 256.
            bytes
                .split("\x1b[")
                .filter(|part| part.starts_with("38;5;") || part.starts_with("33m"))
                .count()
        };
        assert!(colours(&[]) > 0);
        assert_eq!(colours(&[("NO_COLOR", "1")]), 0);
    });
}

#[test]
fn without_a_terminal_it_says_what_to_use() {
    let server = server();
    let ran = run(&server, ["top"]).ends(64);
    assert!(ran.stderr.contains("--once"), "{ran:?}");
    let ran = run(&server, ["top", "--once"]).ends(0);
    assert_eq!(ran.stdout.lines().count(), 1, "{ran:?}");
}
