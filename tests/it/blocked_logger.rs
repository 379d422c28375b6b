//! A logger that blocks, as before a full pipe, holds up nobody but those who write to it themselves.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex as StdMutex, PoisonError, mpsc};
use std::thread;

use crate::common::process::in_own_process;
use crate::common::queue::waiting;
use crate::common::{SOON, all_renewed, ask, heavy, ms, open, patient, renewed, server, until};
use leasehold::{Guard, LockClient, LossCause};

static BLOCKS: AtomicBool = AtomicBool::new(false);
/// How many threads are blocked, and the lines that were written.
static BLOCKED: StdMutex<usize> = StdMutex::new(0);
/// How many lines other threads wrote while the one is blocked that writes for all.
static BY_OTHERS: AtomicUsize = AtomicUsize::new(0);
static LINES: StdMutex<Vec<String>> = StdMutex::new(Vec::new());

struct Blocking;

impl log::Log for Blocking {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with("leasehold")
    }

    fn log(&self, record: &log::Record<'_>) {
        // Only there: a test whose own thread writes a line would wait for itself.
        let is_writer = thread::current().name() == Some("lease-log");
        if !is_writer && BLOCKS.load(Ordering::SeqCst) {
            BY_OTHERS.fetch_add(1, Ordering::SeqCst);
        }
        if is_writer && BLOCKS.load(Ordering::SeqCst) {
            *BLOCKED.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            while BLOCKS.load(Ordering::SeqCst) {
                thread::sleep(ms(1));
            }
        }
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(record.args().to_string());
    }

    fn flush(&self) {}
}

fn install() {
    log::set_logger(&Blocking).expect("the only logger");
    log::set_max_level(log::LevelFilter::Debug);
}

fn blocked() -> usize {
    *BLOCKED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn line_with(part: &str) -> Option<String> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.iter().find(|line| line.contains(part)).cloned()
}

/// The warning about one deleted key blocks for many leases.
#[test]
fn logger_that_blocks_keeps_no_lease_from_renewal_and_no_loss_from_its_callback() {
    in_own_process!();
    install();
    let server = server();
    let (sender, losses) = mpsc::channel();
    let builder = patient(LockClient::builder(server.url()));
    let client = builder.on_loss(move |loss| sender.send(loss.cause()).unwrap()).build().unwrap();
    let hold = |name: &str| client.mutex_with(name, renewed(9_000)).unwrap().lock().unwrap();
    let kept: Vec<Guard> = ["a", "b", "c"].map(hold).into();
    for name in ["gone", "gone too"] {
        let gone = hold(name);
        BLOCKS.store(true, Ordering::SeqCst);
        ask::<()>(&server, &["DEL", name]);
        assert_eq!(losses.recv_timeout(SOON), Ok(LossCause::Deleted));
        // Not dropped: a lost guard that is dropped is logged by its own thread.
        assert!(gone.release().unwrap_err().is_lost());
    }
    until("a line is blocked", || blocked() > 0);
    // While the line is blocked.
    (0..2).for_each(|_| all_renewed(&kept));
    // A thread that acquires does not call it either: the key has no time to live, which is worth a warning.
    ask::<()>(&server, &["SET", "no end", "somebody"]);
    let waiter = client.mutex("no end").unwrap();
    let waits = waiter.clone();
    let waits = thread::spawn(move || waits.lock().map(drop));
    until("it waits", || waiting(&server, "no end") == 1);
    waiter.cancel_waits();
    assert!(waits.join().unwrap().unwrap_err().is_cancelled());
    // The end of the client waits for the lines, and not for ever.
    kept.into_iter().for_each(|guard| guard.release().unwrap());
    client.shutdown(SOON).unwrap();
    drop(waiter);
    drop(client);
    assert_eq!(BY_OTHERS.load(Ordering::SeqCst), 0, "a thread that must not wait writes a line");
    BLOCKS.store(false, Ordering::SeqCst);
    for part in ["\"gone\": lost", "\"gone too\": lost", "no time to live"] {
        until("all lines are written", || line_with(part).is_some());
    }
}

/// What finds no room in the queue is counted, and the count is written.
#[test]
fn lines_beyond_the_queue_are_counted() {
    let _turn = heavy();
    in_own_process!();
    install();
    const LOCKS: usize = 3_000;
    let server = server();
    let client = open(&server);
    let guards: Vec<Guard> = (0..LOCKS)
        .map(|number| {
            client.mutex_with(format!("x{number}"), renewed(9_000)).unwrap().lock().unwrap()
        })
        .collect();
    BLOCKS.store(true, Ordering::SeqCst);
    ask::<()>(&server, &["FLUSHALL"]);
    let (sender, losses) = mpsc::channel();
    for guard in &guards {
        let sender = sender.clone();
        guard.on_loss(move |_| sender.send(()).unwrap());
    }
    (0..LOCKS).for_each(|_| losses.recv_timeout(SOON).unwrap());
    guards.into_iter().for_each(|guard| _ = guard.release());
    until("a line is blocked", || blocked() > 0);
    BLOCKS.store(false, Ordering::SeqCst);
    until("the rest is counted", || line_with("lines were not written").is_some());
    let text = line_with("lines were not written").unwrap();
    let left_out: usize = text.split(' ').next().unwrap().parse().unwrap();
    let written = LINES.lock().unwrap().iter().filter(|line| line.contains(": lost: ")).count();
    assert!(left_out + written >= LOCKS, "{left_out} + {written}");
}
