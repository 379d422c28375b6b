//! The picture of `top` in the README: text from a terminal, made by
//! `LEASEHOLD_REMAKE=1 cargo test --package leasehold-cli picture`.
//!
//! Times and tokens differ from run to run, so that the check compares what stays: the titles, and the name and kind
//! of each row.

use std::path::Path;
use std::thread;

use leasehold::{LockClient, Wait};

use crate::common::{EndWaits, ask, long, open, server, until};
use crate::terminal::Terminal;

const SIZE: (u16, u16) = (80, 10);
const BEGIN: &str = "<!-- top: made by a test -->\n\n```text\n";
const END: &str = "\n```\n";

/// What a reader sees instead of the machine of the tests.
const PROCESSES: [&str; 6] = ["47@web-3", "98@web-1", "502@gpu-2", "12@web-2", "7@batch", ""];

/// Locks of all kinds and of other programs, some of which are waited for.
fn screen() -> Vec<String> {
    let server = server();
    let labelled = |label| LockClient::builder(server.url()).label(label).build().unwrap();
    let (billing, reports, gpus) = (labelled("billing"), labelled("reports"), labelled("train"));
    let waiters = [open(&server), open(&server), open(&server)];
    let queued = long().wait(Wait::queue());
    let _orders = billing.mutex_with("orders:42", queued).unwrap().lock().unwrap();
    let _report = reports.mutex_with("nightly-report", queued).unwrap().lock().unwrap();
    let _gpus = gpus.semaphore_with("gpu", 2, long()).unwrap().acquire_many(2).unwrap();
    let _catalog = reports.rw_lock_with("catalog", long()).unwrap().read().unwrap();
    ask::<()>(&server, &["HSET", "invoices", "285475da-9152-4c83-822a-67ee2f116a79:52", "1"]);
    ask::<()>(&server, &["PEXPIRE", "invoices", "30000"]);
    ask::<()>(&server, &["SET", "cron:backup", "backup-7", "NX", "PX", "600000"]);
    thread::scope(|scope| {
        let _waits = EndWaits(&waiters);
        let gpu = waiters[1].semaphore_with("gpu", 2, long()).unwrap();
        scope.spawn(move || _ = gpu.acquire().unwrap_err());
        let waiting = |name: &str| {
            let found = billing.locks_named(name).unwrap();
            found.iter().filter_map(|lock| lock.inspection().waiting()).sum::<usize>()
        };
        // Of two locks with one waiter each, that with the longer wait comes first.
        until("one waits", || waiting("gpu") == 1);
        for (client, name) in waiters
            .iter()
            .map(|client| (client, "orders:42"))
            .chain([(&waiters[0], "nightly-report")])
        {
            let lock = client.mutex_with(name, queued).unwrap();
            scope.spawn(move || _ = lock.lock().unwrap_err());
        }
        until("all wait", || {
            (waiting("orders:42"), waiting("nightly-report"), waiting("gpu")) == (3, 1, 1)
        });
        let announced = || ask::<usize>(&server, &["ZCARD", "leasehold:index"]) == 4;
        until("all are announced", announced);
        let terminal = Terminal::run(&["top", "--scan"], &[("REDIS_URL", &server.url())], SIZE);
        let screen = terminal.until("the rows", |lines| {
            lines[2].starts_with("orders:42 ") && lines[7].starts_with("invoices ")
        });
        terminal.press("q");
        terminal.ends_restored();
        screen
    })
}

/// The screen with other hosts and processes than those of the tests.
fn retouched(screen: &[String]) -> Vec<String> {
    let title = |word: &str| screen[1].find(word).expect("a title");
    let (first, last) = (title("HOLDER"), title("HELD"));
    let here = format!("{}@", std::process::id());
    let mut lines = screen.to_vec();
    for (line, process) in lines[2..8].iter_mut().zip(PROCESSES) {
        let letters: Vec<char> = line.chars().collect();
        let (before, cell, after): (String, String, String) = (
            letters[..first].iter().collect(),
            letters[first..last].iter().collect(),
            letters[last..].iter().collect(),
        );
        if let Some((label, _)) = cell.split_once(&here) {
            let cell: String = format!("{label}{process}").chars().take(last - first - 1).collect();
            *line = format!("{before}{cell:width$}{after}", width = last - first);
        }
    }
    lines[8] = "orders:42 is blocked by billing 47@web-3".to_owned();
    lines
}

/// What does not change from run to run.
fn form(lines: &[String]) -> Vec<String> {
    let words = |line: &String| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let mut form: Vec<String> = lines[2..8].iter().map(words).collect();
    form.extend([lines[1].clone(), lines[9].clone()]);
    form
}

#[test]
fn picture_of_the_readme_is_current_in_form() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(&path).expect("the README");
    let (before, rest) = readme.split_once(BEGIN).expect("the begin of the picture");
    let (picture, after) = rest.split_once(END).expect("its end");
    let screen = screen();
    if std::env::var_os("LEASEHOLD_REMAKE").is_some() {
        let picture = retouched(&screen).join("\n");
        std::fs::write(&path, format!("{before}{BEGIN}{picture}{END}{after}")).expect("the README");
        return;
    }
    let picture: Vec<String> = picture.lines().map(str::to_owned).collect();
    assert_eq!(form(&picture), form(&screen), "make it anew: see the head of this file");
}
