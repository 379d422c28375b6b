//! The line in the log about a wait that takes long, on a clock that stands still.

use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use crate::common::log::texts;
use crate::common::until;
use leasehold::testing::Server as Memory;
use leasehold::{LockClient, Mutex};

const SECOND: Duration = Duration::from_secs(1);

/// The lines about slow waits for a lock.
#[allow(clippy::print_stdout, reason = "the texts are there to be read")]
fn lines(name: &str) -> Vec<String> {
    let lines = texts(&[&format!("lock {name:?}: waiting for ")]);
    lines.iter().for_each(|line| println!("{line}"));
    lines
}

/// Waits on a thread of its own, which says that it has the lock, and gives it back.
fn wait<'scope>(
    scope: &'scope Scope<'scope, '_>,
    lock: &Mutex,
    span: Option<Duration>,
) -> ScopedJoinHandle<'scope, bool> {
    let lock = lock.clone();
    scope.spawn(move || match span {
        None => lock.lock().map(drop).is_ok(),
        Some(span) => lock.try_lock_for(span).unwrap().is_some(),
    })
}

/// Time passes in steps of a heartbeat.
fn pass(server: &Memory, seconds: u32) {
    (0..seconds).for_each(|_| server.advance(SECOND));
}

#[test]
fn wait_of_twelve_seconds_logs_one_line_that_explains_it() {
    let server = Memory::standing_still();
    lines("slow");
    let builder = |label: &str| LockClient::builder("redis://memory").label(label);
    let billing = server.connect(builder("billing\r\n\x1b[31m")).unwrap();
    let [first, second] = ["first", "second"].map(|label| server.connect(builder(label)).unwrap());
    let silent = server.connect(builder("silent").slow_wait(None)).unwrap();
    let guard = billing.mutex("slow").unwrap().lock().unwrap();
    let queues = |number: usize| {
        let lock = billing.mutex("slow").unwrap();
        until("it queues", || {
            server.advance(Duration::ZERO);
            lock.inspect().unwrap().waiting() == Some(number)
        });
    };
    thread::scope(|scope| {
        pass(&server, 3);
        let waiters = [&first, &second, &silent].map(|client| client.mutex("slow").unwrap());
        let waiters: Vec<_> = waiters
            .iter()
            .enumerate()
            .map(|(number, lock)| {
                let waiter = wait(scope, lock, None);
                queues(number + 1);
                waiter
            })
            .collect();
        pass(&server, 9);
        assert_eq!(lines("slow"), [""; 0], "too soon");
        pass(&server, 3);
        let mut logged = lines("slow");
        logged.sort_unstable();
        let [one, other] = &logged[..] else { panic!("{logged:#?}") };
        let token = guard.fencing_token().to_string();
        for (line, place) in [(one, 1), (other, 2)] {
            let parts = [
                &format!("at place {place} of the queue; held by billing[31m, process "),
                &format!("token {token}; its lease ends in "),
                "waiting for 1",
                ", for 1",
            ];
            assert!(parts.iter().all(|part| line.contains(part)), "{line}, {parts:?}");
            // A thread that a busy machine held up looks a little later.
            let seconds = |before: &str| -> f64 {
                let (_, rest) = line.split_once(before).unwrap();
                let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap();
                rest[..end].parse().unwrap()
            };
            let (waited, held) = (seconds("waiting for "), seconds(", for "));
            assert!((10.0..=12.0).contains(&waited) && (13.0..=15.0).contains(&held), "{line}");
            assert!(line.chars().all(|letter| !letter.is_control()), "{line:?}");
        }
        pass(&server, 20);
        assert_eq!(lines("slow").len(), 2, "one line for each wait");
        guard.release().unwrap();
        for waiter in waiters {
            until("it is served", || {
                server.advance(SECOND);
                waiter.is_finished()
            });
            assert!(waiter.join().unwrap());
        }
    });
}

#[test]
fn slow_wait_for_a_thread_of_this_process_names_it() {
    let server = Memory::standing_still();
    lines("same");
    let client = server.connect(LockClient::builder("redis://memory").label("us")).unwrap();
    let lock = client.mutex("same").unwrap();
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (1..=2)
            .map(|number| {
                let waiter = wait(scope, &lock, Some(SECOND * 15));
                until("it waits", || guard.waiters() == number);
                waiter
            })
            .collect();
        pass(&server, 16);
        assert!(waiters.into_iter().all(|waiter| !waiter.join().unwrap()));
    });
    let mut logged = lines("same");
    logged.sort_unstable();
    let [one, other] = &logged[..] else { panic!("{logged:#?}") };
    let token = guard.fencing_token();
    for (line, place) in [(one, 1), (other, 2)] {
        let parts = [
            format!("waiting for 10s at place {place} among the threads of this process; "),
            format!("held by us, process {} on ", std::process::id()),
            format!(", for 10s, token {token}; its lease ends in "),
        ];
        assert!(parts.iter().all(|part| line.contains(part.as_str())), "{line}, {parts:?}");
    }
    guard.release().unwrap();
}

/// A thread that first waits behind another of its process and then in Redis waits once.
#[test]
fn wait_that_goes_on_as_acquirer_is_logged_once() {
    let server = Memory::standing_still();
    lines("twice");
    let (here, there) = (server.client(), server.client());
    let guard = here.mutex("twice").unwrap().lock().unwrap();
    let lock = there.mutex("twice").unwrap();
    thread::scope(|scope| {
        let first = wait(scope, &lock, Some(SECOND * 12));
        until("it queues", || {
            server.advance(Duration::ZERO);
            lock.inspect().unwrap().waiting() == Some(1)
        });
        pass(&server, 1);
        let second = wait(scope, &lock, None);
        until("both wait", || {
            server.advance(SECOND / 2);
            lines("twice").len() == 2
        });
        pass(&server, 20);
        assert!(!first.join().unwrap());
        pass(&server, 5);
        assert_eq!(lines("twice").len(), 2, "one line for each wait");
        guard.release().unwrap();
        until("it is served", || {
            server.advance(SECOND);
            second.is_finished()
        });
        assert!(second.join().unwrap());
    });
}

#[test]
fn wait_for_a_permit_of_twelve_seconds_logs_one_line() {
    let server = Memory::standing_still();
    lines("slow-gpu");
    let builder = |label: &str| LockClient::builder("redis://memory").label(label);
    let [farm, other] = ["farm", "other"].map(|label| server.connect(builder(label)).unwrap());
    let gpus = farm.semaphore("slow-gpu", 2).unwrap();
    let held = gpus.acquire_many(2).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| other.semaphore("slow-gpu", 2).unwrap().acquire().map(drop));
        until("it stands in the line", || {
            server.advance(SECOND / 1_000);
            gpus.inspect().unwrap().waiting() == Some(1)
        });
        (0..20).for_each(|_| server.advance(SECOND));
        let logged = lines("slow-gpu");
        let [line] = &logged[..] else { panic!("{logged:#?}") };
        let parts = ["at place 1 of the queue; held by farm, process ", "its lease ends in "];
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
        held.release().unwrap();
        until("it is served", || {
            server.advance(SECOND);
            waits.is_finished()
        });
        waits.join().unwrap().unwrap();
    });
}
