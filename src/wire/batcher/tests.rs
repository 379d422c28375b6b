//! Threads that meet in a batcher, and a server that the tests let through.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Scope, ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

use leasehold_support::lag::{self, Spent as _};
use redis::Value;

use super::pending::{BYTES, ENTRIES, Sleepers};
use super::queue::{EACH, FEW};
use super::*;
use crate::base::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::base::testing::manual_clock::ManualClock;
use crate::base::time::{BootClock, Clock as _};
use crate::wire::connection::Reply;
use crate::wire::failure::{NotSentReason, Shortage};
use crate::wire::script::{NO_KEYS, Script};

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(50);
const MILLI: Duration = Duration::from_millis(1);

/// What a clock shows that nobody has put forward.
fn now() -> Moment {
    ManualClock::START
}

/// A batcher of one place on a clock that stands still, and a server whose every exchange is let through by the test.
struct Stage {
    batcher: Batcher,
    clock: Arc<ManualClock>,
    gate: Mutex<Receiver<Result<(), Failure>>>,
    /// The commands of each batch.
    seen: Mutex<Vec<Vec<String>>>,
    connects: AtomicBool,
    /// How long a caller waits for a connection.
    wait: Duration,
}

fn stage() -> (Stage, Sender<Result<(), Failure>>) {
    let (sender, gate) = channel();
    let clock = Arc::new(ManualClock::new(false));
    let mut batcher = Batcher::new(Arc::<ManualClock>::clone(&clock), 1);
    batcher.turn = LONG;
    let (gate, seen) = (Mutex::new(gate), Mutex::default());
    let connects = AtomicBool::new(true);
    (Stage { batcher, clock, gate, seen, connects, wait: LONG }, sender)
}

/// The words of packed commands of one word each.
fn words(packed: &[u8]) -> Vec<String> {
    let lines: Vec<&str> = std::str::from_utf8(packed).unwrap().split("\r\n").collect();
    lines.chunks_exact(3).map(|command| command[2].to_owned()).collect()
}

fn echo(word: &str) -> CallOutcome {
    let value = Value::SimpleString(word.to_owned());
    Ok(Reply { value, sent: now(), received: now(), clock: None })
}

fn word_of(outcome: &CallOutcome) -> &str {
    match outcome {
        Ok(Reply { value: Value::SimpleString(word), .. }) => word,
        other => panic!("{other:?}"),
    }
}

impl Stage {
    /// The deadline is counted from the start of the test, where it is far.
    fn call(&self, word: &str, span: Duration) -> CallOutcome {
        let call = Call::plain(&[word.as_bytes()]);
        let from = if span < LONG { self.clock.now() } else { now() };
        let sender =
            Fake(|start: Moment| start.after(self.wait), |batch: &mut Batch<'_>| self.send(batch));
        self.batcher.call(&call, from.after(span), &sender)
    }

    fn send(&self, batch: &mut Batch<'_>) -> Result<(), Failure> {
        if !self.connects.load(Ordering::Relaxed) {
            self.gate.lock().recv().unwrap()?;
        }
        let (packed, count, _) = batch.seal();
        let commands = words(packed);
        assert_eq!(commands.len(), count);
        self.seen.lock().push(commands.clone());
        if self.connects.load(Ordering::Relaxed) {
            self.gate.lock().recv().unwrap()?;
        }
        for word in &commands {
            batch.push_outcome(echo(word));
        }
        Ok(())
    }

    fn spawn<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        word: impl Into<String>,
        span: Duration,
    ) -> ScopedJoinHandle<'scope, CallOutcome> {
        let word = word.into();
        scope.spawn(move || self.call(&word, span))
    }

    /// Commands that wait, batch by batch.
    fn waiting(&self) -> Vec<usize> {
        let waits = |entry: &&BatchEntry| matches!(entry, BatchEntry::Waiting { .. });
        let queue = self.batcher.queue.lock();
        queue
            .batches
            .iter()
            .map(|pending| pending.entries.lock().all.iter().filter(waits).count())
            .collect()
    }

    fn pass(&self, span: Duration) {
        self.clock.put_forward(self.clock.now().after(span));
    }

    fn await_waiting(&self, wanted: &[usize]) {
        while self.waiting() != wanted {
            sleep(MILLI / 10);
        }
    }

    fn await_seen(&self, batches: usize) {
        while self.seen.lock().len() < batches {
            sleep(MILLI / 10);
        }
    }

    /// One is under way, and so many wait, in order.
    fn with_waiting<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        count: usize,
    ) -> Vec<ScopedJoinHandle<'scope, CallOutcome>> {
        let mut handles = vec![self.spawn(scope, "w0", LONG)];
        self.await_seen(1);
        for number in 1..=count {
            handles.push(self.spawn(scope, format!("w{number}"), LONG));
            let (full, rest) = (number / ENTRIES, number % ENTRIES);
            let batches = [vec![ENTRIES; full], vec![rest; usize::from(rest > 0)]].concat();
            self.await_waiting(&batches);
        }
        handles
    }

    fn assert_idle(&self) {
        self.batcher.assert_idle();
    }
}

fn exhausted(waited: Duration) -> NotSentReason {
    let address = "HOST:PORT".to_owned();
    NotSentReason::Exhausted(Shortage { waited, size: 1, address, is_silent: false })
}

/// Carries batches as a test says.
struct Fake<L, C>(L, C);

impl<L, C> BatchSender for Fake<L, C>
where
    L: Fn(Moment) -> Moment,
    C: Fn(&mut Batch<'_>) -> Result<(), Failure>,
{
    fn limit(&self, start: Moment) -> Moment {
        self.0(start)
    }

    fn shortage(&self, waited: Duration) -> NotSentReason {
        exhausted(waited)
    }

    fn send(&self, batch: &mut Batch<'_>) -> Result<(), Failure> {
        self.1(batch)
    }
}

/// Waits long for a connection, and carries batches as a test says.
fn fake<C>(send: C) -> impl BatchSender
where
    C: Fn(&mut Batch<'_>) -> Result<(), Failure>,
{
    Fake(|_| now().after(LONG), send)
}

fn broken() -> Failure {
    Failure::Unknown(io::Error::from(io::ErrorKind::ConnectionReset).into())
}

fn unreachable() -> Failure {
    let error = io::Error::from(io::ErrorKind::ConnectionRefused);
    Failure::NotSent(NotSentReason::Connect(error.into()))
}

#[test]
fn waiting_calls_share_a_batch_and_get_their_own_replies() {
    let (stage, gate) = stage();
    scope(|scope| {
        let handles = stage.with_waiting(scope, 5);
        gate.send(Ok(())).unwrap();
        gate.send(Ok(())).unwrap();
        for (number, handle) in handles.into_iter().enumerate() {
            assert_eq!(word_of(&handle.join().unwrap()), format!("w{number}"));
        }
    });
    assert_eq!(*stage.seen.lock(), [vec!["w0"], vec!["w1", "w2", "w3", "w4", "w5"]]);
    stage.assert_idle();
}

#[test]
fn sleepers_are_counted_by_what_they_wait_for() {
    let (stage, gate) = stage();
    scope(|scope| {
        let handles = stage.with_waiting(scope, 3);
        let batch = Arc::clone(stage.batcher.queue.lock().batches.front().unwrap());
        let asleep = Sleepers { leaders: 1, followers: 2 };
        while batch.entries.lock().sleepers != asleep {
            sleep(MILLI / 10);
        }
        gate.send(Ok(())).unwrap();
        gate.send(Ok(())).unwrap();
        handles.into_iter().for_each(|handle| _ = handle.join().unwrap().unwrap());
        assert_eq!(batch.entries.lock().sleepers, Sleepers::default());
    });
    stage.assert_idle();
}

#[test]
fn full_batch_leaves_the_rest_for_the_next() {
    let (stage, gate) = stage();
    scope(|scope| {
        let handles = stage.with_waiting(scope, ENTRIES + 3);
        for _ in 0..3 {
            gate.send(Ok(())).unwrap();
        }
        for (number, handle) in handles.into_iter().enumerate() {
            assert_eq!(word_of(&handle.join().unwrap()), format!("w{number}"));
        }
    });
    let sizes: Vec<usize> = stage.seen.lock().iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, ENTRIES, 3]);
    stage.assert_idle();
}

#[test]
fn long_commands_do_not_wait_for_each_other() {
    let packed = vec![0; BYTES];
    let pending = PendingBatch::new(&packed, now(), now());
    assert_eq!(pending.entries.lock().enter(&packed, now()), None);
    assert_eq!(pending.entries.lock().commands.len(), BYTES);
}

#[test]
fn call_past_its_deadline_is_withdrawn_and_never_sent() {
    let (stage, gate) = stage();
    scope(|scope| {
        let handles = stage.with_waiting(scope, 1);
        // The first came after its deadline, the second is a follower, the third must be a leader.
        for span in [Duration::ZERO, SHORT] {
            let handle = stage.spawn(scope, "late", span);
            if !span.is_zero() {
                stage.await_waiting(&[2]);
                stage.pass(span);
            }
            let failure = handle.join().unwrap().unwrap_err();
            assert_eq!(failure.is_held_up(), span.is_zero(), "{failure}");
            assert!(matches!(failure, Failure::NotSent(_)), "{failure}");
        }
        let handle = stage.spawn(scope, "late", LONG * 2);
        stage.await_waiting(&[1, 1]);
        gate.send(Ok(())).unwrap();
        gate.send(Ok(())).unwrap();
        gate.send(Ok(())).unwrap();
        assert_eq!(word_of(&handle.join().unwrap()), "late");
        for handle in handles {
            handle.join().unwrap().unwrap();
        }
    });
    assert_eq!(*stage.seen.lock(), [["w0"], ["w1"], ["late"]]);
    stage.assert_idle();
}

#[test]
fn leader_that_leaves_hands_on_and_the_last_dissolves_the_batch() {
    let (mut stage, gate) = stage();
    stage.wait = SHORT * 4;
    let stage = stage;
    scope(|scope| {
        let first = stage.spawn(scope, "w0", LONG);
        stage.await_seen(1);
        let leader = stage.spawn(scope, "leader", LONG);
        stage.await_waiting(&[1]);
        stage.pass(SHORT * 2);
        let follower = stage.spawn(scope, "follower", LONG);
        stage.await_waiting(&[2]);
        stage.pass(SHORT * 2);
        let outcome = leader.join().unwrap();
        assert!(matches!(outcome, Err(Failure::NotSent(NotSentReason::Exhausted(_)))));
        gate.send(Ok(())).unwrap();
        gate.send(Ok(())).unwrap();
        assert_eq!(word_of(&follower.join().unwrap()), "follower");
        first.join().unwrap().unwrap();
        let last = stage.spawn(scope, "w1", LONG);
        stage.await_seen(3);
        let alone = stage.spawn(scope, "alone", LONG);
        stage.await_waiting(&[1]);
        stage.pass(SHORT * 4);
        alone.join().unwrap().unwrap_err();
        gate.send(Ok(())).unwrap();
        last.join().unwrap().unwrap();
    });
    stage.assert_idle();
}

#[test]
fn caller_at_its_deadline_gets_an_unknown_outcome() {
    let (stage, gate) = stage();
    scope(|scope| {
        let first = stage.spawn(scope, "w0", LONG);
        stage.await_seen(1);
        let leader = stage.spawn(scope, "w1", LONG);
        stage.await_waiting(&[1]);
        let follower = stage.spawn(scope, "follower", SHORT);
        stage.await_waiting(&[2]);
        gate.send(Ok(())).unwrap();
        stage.await_seen(2);
        stage.pass(SHORT);
        assert!(matches!(follower.join().unwrap(), Err(failure) if failure.is_unknown()));
        gate.send(Ok(())).unwrap();
        assert_eq!(word_of(&leader.join().unwrap()), "w1");
        first.join().unwrap().unwrap();
    });
    stage.assert_idle();
}

#[test]
fn broken_connection_is_unknown_only_to_its_own_batch() {
    let (stage, gate) = stage();
    scope(|scope| {
        let mut handles = stage.with_waiting(scope, 3);
        gate.send(Ok(())).unwrap();
        stage.await_seen(2);
        let next = stage.spawn(scope, "next", LONG);
        stage.await_waiting(&[1]);
        gate.send(Err(broken())).unwrap();
        gate.send(Ok(())).unwrap();
        handles.remove(0).join().unwrap().unwrap();
        for handle in handles {
            assert!(matches!(handle.join().unwrap(), Err(failure) if failure.is_disconnect()));
        }
        assert_eq!(word_of(&next.join().unwrap()), "next");
    });
    stage.assert_idle();
}

#[test]
fn batch_without_a_connection_fails_as_not_sent() {
    let (stage, gate) = stage();
    scope(|scope| {
        let mut handles = stage.with_waiting(scope, 3);
        stage.connects.store(false, Ordering::Relaxed);
        gate.send(Ok(())).unwrap();
        gate.send(Err(unreachable())).unwrap();
        handles.remove(0).join().unwrap().unwrap();
        for handle in handles {
            let outcome = handle.join().unwrap();
            assert!(matches!(outcome, Err(Failure::NotSent(NotSentReason::Connect(_)))));
        }
    });
    assert_eq!(*stage.seen.lock(), [["w0"]]);
    stage.assert_idle();
}

#[test]
fn followers_go_on_when_the_leaders_time_ends() {
    let (stage, _gate) = stage();
    let end = now().after(LONG);
    let pending = PendingBatch::new(&[], end, end);
    for later in [MILLI, MILLI * 2] {
        pending.entries.lock().enter(&[], end.after(later)).unwrap();
    }
    stage.batcher.queue.lock().taken = 1;
    let sender = Fake(|start| start, |_: &mut Batch<'_>| Err(Failure::NotSent(exhausted(MILLI))));
    let span = CallerTime { start: Moment::PAST, deadline: end, sender: &sender };
    Batch::new(&stage.batcher, &[], span, Some((&pending, 0))).run().unwrap_err();
    let queue = stage.batcher.queue.lock();
    assert_eq!((queue.taken, queue.batches.len()), (0, 1));
    let entries = pending.entries.lock();
    assert_eq!((entries.leader, entries.deadline), (2, end.after(MILLI * 2)));
    assert!(entries.leader_woken && matches!(entries.all[0], BatchEntry::Abandoned));
}

#[test]
fn panic_of_a_leader_leaves_no_call_waiting() {
    let (stage, gate) = stage();
    scope(|scope| {
        let first = stage.spawn(scope, "w0", LONG);
        stage.await_seen(1);
        let leader = scope.spawn(|| {
            let call = Call::plain(&[b"w1"]);
            let send = |batch: &mut Batch<'_>| {
                batch.seal();
                batch.push_outcome(echo("w1"));
                batch.push_outcome(echo("w2"));
                panic!("the leader's");
            };
            let deadline = now().after(LONG);
            catch_unwind(AssertUnwindSafe(|| stage.batcher.call(&call, deadline, &fake(send))))
        });
        stage.await_waiting(&[1]);
        let served = stage.spawn(scope, "w2", LONG);
        stage.await_waiting(&[2]);
        let forgotten = stage.spawn(scope, "w3", LONG);
        stage.await_waiting(&[3]);
        gate.send(Ok(())).unwrap();
        first.join().unwrap().unwrap();
        assert!(leader.join().unwrap().is_err());
        assert_eq!(word_of(&served.join().unwrap()), "w2");
        assert!(matches!(forgotten.join().unwrap(), Err(failure) if failure.is_unknown()));
    });
    stage.assert_idle();
}

#[test]
fn batch_that_waited_a_turn_takes_an_extra_connection() {
    let (mut stage, gate) = stage();
    (stage.batcher.turn, stage.batcher.all) = (SHORT, 2);
    let stage = stage;
    let elsewhere = |word: &str| {
        let call = Call::plain(&[word.as_bytes()]);
        let word = word.to_owned();
        let sender = fake(move |batch: &mut Batch<'_>| {
            batch.seal();
            batch.push_outcome(echo(&word));
            Ok(())
        });
        stage.batcher.call(&call, now().after(LONG), &sender)
    };
    scope(|scope| {
        let stuck = stage.spawn(scope, "stuck", LONG);
        stage.await_seen(1);
        let besides = scope.spawn(|| elsewhere("besides"));
        stage.await_waiting(&[1]);
        stage.pass(SHORT);
        assert_eq!(word_of(&besides.join().unwrap()), "besides");
        gate.send(Ok(())).unwrap();
        stuck.join().unwrap().unwrap();
    });
    stage.assert_idle();
}

/// How many exchanges are under way when so many callers have come.
fn taken_by(batcher: &Batcher, callers: usize) -> usize {
    let gate = Mutex::new(());
    scope(|scope| {
        let closed = gate.lock();
        for number in 0..callers {
            let gate = &gate;
            scope.spawn(move || {
                let word = number.to_string();
                let sender = fake(|batch: &mut Batch<'_>| {
                    let words = words(batch.seal().0);
                    drop(gate.lock());
                    words.iter().for_each(|word| batch.push_outcome(echo(word)));
                    Ok(())
                });
                let call = Call::plain(&[word.as_bytes()]);
                let outcome = batcher.call(&call, now().after(LONG), &sender);
                assert_eq!(word_of(&outcome), word);
            });
        }
        while batcher.queue.lock().callers < callers {
            sleep(MILLI / 10);
        }
        let taken = batcher.queue.lock().taken;
        drop(closed);
        taken
    })
}

#[test]
fn few_callers_have_a_place_each_and_a_crowd_shares_fewer() {
    let mut batcher = Batcher::new(Arc::new(ManualClock::new(false)), 10);
    batcher.turn = LONG;
    assert_eq!(taken_by(&batcher, EACH), EACH);
    batcher.assert_idle();
    // One more is a crowd, and has fewer.
    let mut crowd = Batcher::new(Arc::new(ManualClock::new(false)), 10);
    crowd.turn = LONG;
    crowd.queue.lock().callers = EACH;
    crowd.queue.lock().count_caller();
    assert_eq!(crowd.usual_places(&crowd.queue.lock()), FEW);
    // It is gone when callers come one by one.
    crowd.queue.lock().callers = 0;
    crowd.queue.lock().count_caller();
    assert_eq!(crowd.usual_places(&crowd.queue.lock()), EACH);
    // One connection is for others.
    assert_eq!(Batcher::new(Arc::new(ManualClock::new(false)), 8).each, 7);
    assert_eq!(Batcher::new(Arc::new(ManualClock::new(false)), 2).each, 2);
}

#[test]
fn newcomer_with_a_free_place_leads_the_pending_batch() {
    let (stage, _gate) = stage();
    // As if a place had been given back, and the leader that was woken does not run yet.
    let pending = PendingBatch::new(Call::plain(&[b"asleep"]).packed(), now().after(LONG), now());
    let mut queue = stage.batcher.queue.lock();
    queue.batches.push_back(Arc::clone(&pending));
    queue.callers = 1;
    drop(queue);
    let call = Call::plain(&[b"awake"]);
    let sender = fake(|batch: &mut Batch<'_>| {
        let words = words(batch.seal().0);
        assert_eq!(words, ["awake", "asleep"]);
        for word in words {
            batch.push_outcome(echo(&word));
        }
        Ok(())
    });
    let outcome = stage.batcher.call(&call, now().after(LONG), &sender);
    assert_eq!(word_of(&outcome), "awake");
    let entry = std::mem::replace(&mut pending.entries.lock().all[0], BatchEntry::Abandoned);
    assert!(matches!(entry, BatchEntry::Done(outcome) if word_of(&outcome) == "asleep"));
    stage.assert_idle();
}

#[test]
fn unknown_script_is_sent_again_with_its_source() {
    static SCRIPT: Script = Script::new("return 1");
    let (stage, _gate) = stage();
    let calls = AtomicU64::new(0);
    let sender = fake(|batch: &mut Batch<'_>| {
        let whole = batch.seal().0.windows(4).any(|part| part == b"EVAL")
            && calls.fetch_add(1, Ordering::Relaxed) == 1;
        batch.push_outcome(if whole {
            echo("done")
        } else {
            let kind = redis::ErrorKind::Server(redis::ServerErrorKind::NoScript);
            Err(Failure::Refused((kind, "no script").into()))
        });
        Ok(())
    });
    let outcome = stage.batcher.call(&SCRIPT.call(NO_KEYS, []), now().after(LONG), &sender);
    assert_eq!(word_of(&outcome), "done");
    stage.assert_idle();
}

/// Everything at once: every answer is the caller's own, every wait ends in time, and nothing
/// is left behind.
#[test]
fn every_call_gets_its_own_reply_in_time() {
    lag::watch();
    for (size, seed) in [(1, 11), (2, 12), (3, 13), (8, 14)] {
        let mut batcher = Batcher::new(Arc::new(BootClock), size);
        batcher.turn = MILLI * 3;
        let batcher = batcher;
        let answered = AtomicU64::new(0);
        scope(|scope| {
            for thread in 0..16_u64 {
                let (batcher, answered) = (&batcher, &answered);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed * 100 + thread);
                    for number in 0.. {
                        // On a slow machine few are answered in time.
                        if number >= 150 && answered.load(Ordering::Relaxed) > 500 {
                            break;
                        }
                        let word = format!("t{thread}n{number}");
                        let call = Call::plain(&[word.as_bytes()]);
                        let span = MILLI * random.u32(1..40);
                        let (pause, fate) = (random.u64(0..300), random.u32(0..100));
                        let (start, begin) = (BootClock.now(), Instant::now());
                        let send = |batch: &mut Batch<'_>| {
                            if fate == 0 {
                                return Err(unreachable());
                            }
                            if fate == 1 {
                                let (start, deadline) = batch.span();
                                sleep(deadline.min(start.after(MILLI * 20)).since(BootClock.now()));
                                return Err(Failure::NotSent(exhausted(MILLI)));
                            }
                            let words = words(batch.seal().0);
                            assert!((1..=ENTRIES).contains(&words.len()));
                            assert_eq!(words[0], word);
                            sleep(Duration::from_micros(pause));
                            for (index, word) in words.iter().enumerate() {
                                if fate == 2 && index == 1 {
                                    return Err(broken());
                                }
                                if fate == 3 && index == 1 {
                                    std::panic::resume_unwind(Box::new(()));
                                }
                                batch.push_outcome(echo(word));
                            }
                            Ok(())
                        };
                        let sender = Fake(|_| start.after(MILLI * 20), send);
                        let call = || batcher.call(&call, start.after(span), &sender);
                        if let Ok(outcome) = catch_unwind(AssertUnwindSafe(call))
                            && outcome.is_ok()
                        {
                            assert_eq!(word_of(&outcome), word);
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        let waited = begin.spent();
                        assert!(waited < span + MILLI * 500, "{waited:?} for {span:?}");
                    }
                });
            }
        });
        batcher.assert_idle();
    }
}
