//! Threads that share batches, before a server that replies at once.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use shuttle::thread::{JoinHandle, spawn};

use crate::base::sync::time::{ModelClock, passed};
use crate::base::sync::{Arc, Mutex, sleep};
use crate::base::time::{Clock as _, Moment};
use crate::tests::schedule::scenario::Group;
use crate::tests::schedule::world::join;
use crate::wire::Value;
use crate::wire::batcher::{Batch, BatchSender, Batcher};
use crate::wire::connection::Reply;
use crate::wire::failure::{Failure, NotSentReason};
use crate::wire::script::Call;

pub(super) const SCENARIOS: Group = &[
    ("batches of a few threads", 0, share),
    ("batches of a crowd that comes and goes", 0, come_and_go),
    ("a batch whose leader panics", 0, leader_panics),
    ("callers that give up beside a batch", 8, give_up),
];

/// More than all readings of the clock, and less than the time after which a leader looks for a place
/// although nobody woke it.
const AT_ONCE: Duration = Duration::from_millis(4);
/// More than enough for a command.
const ENOUGH: Duration = Duration::from_secs(10);
/// The word of a leader that panics.
const PANIC: &str = "panic";

/// A server, and the batcher before it.
struct Stage {
    batcher: Batcher,
    /// How long a caller waits for a connection, how long it has in all, and how long an exchange takes.
    wait: Duration,
    span: Duration,
    takes: Duration,
    sent: Mutex<Vec<String>>,
}

impl Stage {
    /// With so many places for a crowd, and for up to so many callers as the second number says.
    fn new(few: usize, each: usize) -> Stage {
        let batcher = Batcher::with_places(Arc::new(ModelClock), few, each);
        let takes = Duration::ZERO;
        Stage { batcher, wait: ENOUGH, span: ENOUGH, takes, sent: Mutex::default() }
    }

    fn call(&self, word: &str) -> Result<(), Failure> {
        let deadline = ModelClock.now().after(self.span);
        let reply = self.batcher.call(&Call::plain(&[word.as_bytes()]), deadline, self)?;
        assert_eq!(reply.value, Value::SimpleString(word.to_owned()), "the reply of another");
        Ok(())
    }

    fn worker(self: &Arc<Self>, name: &str, times: usize) -> JoinHandle<()> {
        let (stage, name) = (Arc::clone(self), name.to_owned());
        spawn(move || {
            for number in 0..times {
                stage.call(&format!("{name}{number}")).expect("sent, and replied to");
            }
        })
    }

    /// Nobody had to help itself, and nothing is left.
    fn end(&self) {
        assert!(passed() < AT_ONCE, "somebody waited {:?}, and was not woken", passed());
        self.batcher.assert_idle();
    }
}

impl BatchSender for Stage {
    fn limit(&self, start: Moment) -> Moment {
        start.after(self.wait)
    }

    fn shortage(&self, _waited: Duration) -> NotSentReason {
        NotSentReason::DeadlinePassed
    }

    fn send(&self, batch: &mut Batch<'_>) -> Result<(), Failure> {
        let (packed, count, _) = batch.seal();
        let lines: Vec<&str> = std::str::from_utf8(packed).expect("words").split("\r\n").collect();
        let words: Vec<String> = lines.chunks_exact(3).map(|call| call[2].to_owned()).collect();
        assert_eq!(words.len(), count);
        self.sent.lock().extend_from_slice(&words);
        sleep(self.takes);
        if words[0] == PANIC {
            resume_unwind(Box::new(PANIC));
        }
        let now = ModelClock.now();
        for word in words {
            let value = Value::SimpleString(word);
            batch.push_outcome(Ok(Reply { value, sent: now, received: now, clock: None }));
        }
        Ok(())
    }
}

fn share() {
    let stage = Arc::new(Stage::new(1, 1));
    join(["a", "b", "c"].map(|name| stage.worker(name, 2)));
    stage.end();
}

fn come_and_go() {
    let stage = Arc::new(Stage::new(1, 2));
    join([("a", 3), ("b", 1), ("c", 1), ("d", 2)].map(|(name, times)| stage.worker(name, times)));
    stage.end();
}

fn leader_panics() {
    let stage = Arc::new(Stage::new(1, 1));
    let threads = [PANIC, "a", "b"].map(|word| {
        let stage = Arc::clone(&stage);
        spawn(move || match catch_unwind(AssertUnwindSafe(|| stage.call(word))) {
            Err(_) => assert_eq!(word, PANIC),
            Ok(Err(failure)) => assert!(failure.is_unknown(), "{failure}"),
            Ok(Ok(())) => {}
        })
    });
    join(threads);
    stage.end();
}

fn give_up() {
    let millis = Duration::from_millis;
    let stage = Stage { wait: millis(3), span: millis(6), takes: millis(2), ..Stage::new(1, 1) };
    let stage = Arc::new(stage);
    let threads = ["a", "b", "c", "d"].map(|word| {
        let stage = Arc::clone(&stage);
        spawn(move || match stage.call(word) {
            Ok(()) => assert!(stage.sent.lock().iter().any(|sent| sent == word)),
            Err(failure) if failure.is_unknown() => {}
            Err(failure) => {
                let sent = stage.sent.lock();
                assert!(!sent.iter().any(|sent| sent == word), "sent, and yet: {failure}");
            }
        })
    });
    join(threads);
    assert!(passed() < millis(100), "somebody waited {:?}", passed());
    stage.batcher.assert_idle();
}
