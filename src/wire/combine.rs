//! Commands that threads send at the same moment travel together.
//!
//! A caller that finds a place free goes alone. While the places are taken, callers gather in a
//! *car*. Whoever has a place and a car *drives*: it borrows a connection, sends the commands of
//! all in one write, reads the answers in order, and wakes all at once. That is the first in the
//! car, when a place comes free, or a newcomer that finds place and car before. Nobody works for
//! others beyond the one exchange that its own command needs.
//!
//! | a seat is | its caller waits | then it is |
//! | --- | --- | --- |
//! | waiting | for the car to leave | sent; told, if no connection can be made; gone at its limit, which is *not sent* |
//! | sent | for its answer | told; gone at its deadline, which is *unknown* |
//! | told | no longer: it has its outcome | gone |
//!
//! | a car is | where | then it is |
//! | --- | --- | --- |
//! | gathering | in the yard, where only the last may be entered | driven; dissolved, when no seat waits |
//! | driven | with its driver | left: sent, or told; gathering, if its driver had no time for a connection and others have |
//!
//! A car takes nobody with more time than its driver, so that it is never the driver's deadline
//! that ends another's wait; a driver whose time is over hands on to whoever has the most.
//!
//! While any car gathers, all [`FEW`] places are taken or the driver of the first was *invited*:
//! by whoever gave a place back, drove the car before, or dissolved it. Few places, because a
//! larger car saves more than one more connection does. But a driver that waited for a [`TURN`]
//! takes one besides: a connection that died unnoticed must hold up only those on it.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use crate::base::sync::crowd::{self, Condvar};
use crate::base::sync::{Arc, Mutex};
use crate::base::time::{Clock, Moment};
use crate::wire::connection::{Reply, SLACK, is_no_script};
use crate::wire::failure::{Failure, Hindrance};
use crate::wire::script::Call;

/// How many places there are for those that go alone. As many threads never wait for each other.
const ALONE: usize = 4;
/// How many there are for cars: with fewer the server would idle, with more the cars be empty.
const FEW: usize = 3;
/// How many for cars whose turn has come.
const MANY: usize = 8;
/// How long a driver waits for a place until it takes one besides.
const TURN: Duration = Duration::from_millis(5);
/// How many commands travel together…
const SEATS: usize = 32;
/// …and from how many bytes on no other is taken along.
const BYTES: usize = 64 * 1024;

type Outcome = Result<Reply, Failure>;

#[derive(Debug)]
enum Seat {
    Waiting { packed: Vec<u8>, deadline: Moment },
    Sent,
    Told(Outcome),
    Gone,
}

#[derive(Debug)]
struct Seats {
    all: Vec<Seat>,
    bytes: usize,
    driver: usize,
    /// The driver's.
    deadline: Moment,
    /// From when on the driver takes a place besides.
    turn: Moment,
    /// Whether the driver is to look for a place.
    invited: bool,
}

impl Seats {
    /// Takes a seat if there is room and the driver has the time.
    fn enter(&mut self, packed: &mut Vec<u8>, deadline: Moment) -> Option<usize> {
        let full = self.all.len() >= SEATS || self.bytes >= BYTES;
        if full || deadline > self.deadline.after(SLACK) {
            return None;
        }
        self.bytes += packed.len();
        self.all.push(Seat::Waiting { packed: std::mem::take(packed), deadline });
        Some(self.all.len() - 1)
    }

    /// Hands on to the one that can wait longest. Answers whether anybody waits.
    fn elect(&mut self) -> bool {
        let waiting = self.all.iter().enumerate().filter_map(|(number, seat)| match seat {
            Seat::Waiting { deadline, .. } => Some((*deadline, number)),
            _ => None,
        });
        let Some((deadline, driver)) = waiting.max() else { return false };
        (self.deadline, self.driver, self.invited) = (deadline, driver, true);
        true
    }
}

/// Those who travel together.
#[derive(Debug)]
struct Car {
    seats: crowd::Mutex<Seats>,
    /// Where the driver waits for a place.
    invited: Condvar,
    /// Where the others wait.
    told: Condvar,
}

impl Car {
    fn new(packed: Vec<u8>, deadline: Moment, turn: Moment) -> Arc<Car> {
        let mut all = Vec::with_capacity(SEATS);
        let bytes = packed.len();
        all.push(Seat::Waiting { packed, deadline });
        let seats = Seats { all, bytes, driver: 0, deadline, turn, invited: false };
        let seats = crowd::Mutex::new(seats);
        Arc::new(Car { seats, invited: Condvar::new(), told: Condvar::new() })
    }

    /// Wakes everybody. One who drove before may still wait where the driver does.
    fn wake(&self) {
        self.told.notify_all();
        self.invited.notify_all();
    }
}

/// Locked before the seats of a car.
#[derive(Debug, Default)]
struct Yard {
    /// Places that are taken.
    taken: usize,
    /// In the order in which they came.
    cars: VecDeque<Arc<Car>>,
}

/// Where the callers of one pool meet.
#[derive(Debug)]
pub(crate) struct Combiner {
    clock: Arc<dyn Clock>,
    alone: usize,
    few: usize,
    many: usize,
    turn: Duration,
    max_wait: Duration,
    yard: Mutex<Yard>,
}

/// What a driver without a place has to do.
enum Step {
    Drive(Vec<u8>),
    Leave,
    Wait,
}

impl Combiner {
    /// For a pool of so many connections, for which a caller waits no longer than `max_wait`.
    pub(crate) fn new(clock: Arc<dyn Clock>, size: u32, max_wait: Duration) -> Combiner {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        Combiner {
            clock,
            alone: ALONE.min(size),
            few: FEW.min(size),
            many: MANY.min(size),
            turn: TURN,
            max_wait,
            yard: Mutex::default(),
        }
    }

    /// One command and its answer. `carry` takes a batch to the server; a failure that it answers
    /// befalls all in the batch that were told nothing.
    pub(crate) fn call(
        &self,
        call: &Call,
        deadline: Moment,
        carry: impl Fn(&mut Batch<'_>) -> Result<(), Failure>,
    ) -> Outcome {
        match self.call_once(call.pack(), deadline, &carry) {
            Err(Failure::Refused(error)) if is_no_script(&error) => match call.with_source() {
                Some(whole) => self.call_once(whole.pack(), deadline, &carry),
                None => Err(Failure::Refused(error)),
            },
            outcome => outcome,
        }
    }

    fn call_once(
        &self,
        mut packed: Vec<u8>,
        deadline: Moment,
        carry: &impl Fn(&mut Batch<'_>) -> Result<(), Failure>,
    ) -> Outcome {
        let mut yard = self.yard.lock();
        if yard.cars.is_empty() && yard.taken < self.alone {
            yard.taken += 1;
            drop(yard);
            return Batch::new(self, packed, deadline, deadline, None).run(carry);
        }
        if let Some(car) = yard.cars.back().cloned() {
            let mut seats = car.seats.lock();
            if let Some(number) = seats.enter(&mut packed, deadline) {
                // Who runs already need not wait until the one that was invited has woken up.
                let drives = yard.cars.len() == 1 && deadline >= seats.deadline;
                if drives && yard.taken < self.few {
                    (seats.driver, seats.deadline) = (number, deadline);
                    let packed = self.depart(&mut yard, &car, &mut seats);
                    drop((seats, yard));
                    let car = Some((&car, number));
                    return Batch::new(self, packed, deadline, deadline, car).run(carry);
                }
                drop((seats, yard));
                return self.ride(&car, number, deadline, carry);
            }
        }
        let car = Car::new(packed, deadline, self.clock.now().after(self.turn));
        yard.cars.push_back(Arc::clone(&car));
        drop(yard);
        self.ride(&car, 0, deadline, carry)
    }

    /// Waits in a car, and drives it if that falls to this caller.
    fn ride(
        &self,
        car: &Arc<Car>,
        number: usize,
        deadline: Moment,
        carry: &impl Fn(&mut Batch<'_>) -> Result<(), Failure>,
    ) -> Outcome {
        let start = self.clock.now();
        let limit = deadline.min(start.after(self.max_wait));
        let mut now = start;
        let mut seats = car.seats.lock();
        let mut look = limit.min(seats.turn);
        loop {
            let drives = seats.driver == number;
            let steps = drives && (seats.invited || now >= look);
            let until = match &mut seats.all[number] {
                Seat::Waiting { .. } if steps => {
                    seats.invited = false;
                    drop(seats);
                    match self.step(car, number, now, limit) {
                        Step::Drive(packed) => {
                            let car = Some((car, number));
                            return Batch::new(self, packed, deadline, limit, car).run(carry);
                        }
                        Step::Leave => return Err(exhausted(now.since(start))),
                        Step::Wait => {}
                    }
                    if now >= look {
                        look = limit;
                    }
                    // What came in between had nobody to wake.
                    seats = car.seats.lock();
                    continue;
                }
                Seat::Waiting { .. } if drives => look,
                seat @ Seat::Waiting { .. } if now >= limit => {
                    *seat = Seat::Gone;
                    return Err(exhausted(now.since(start)));
                }
                Seat::Waiting { .. } => limit,
                seat @ Seat::Sent if now >= deadline => {
                    *seat = Seat::Gone;
                    return Err(Failure::silent());
                }
                Seat::Sent => deadline,
                seat @ (Seat::Told(_) | Seat::Gone) => {
                    let told = std::mem::replace(seat, Seat::Gone);
                    return if let Seat::Told(outcome) = told { outcome } else { Err(abandoned()) };
                }
            };
            let woken = if drives { &car.invited } else { &car.told };
            seats = crowd::wait_for(woken, seats, until.since(now));
            now = self.clock.now();
        }
    }

    /// Looks for a place for a driver, or lets it go if its time is over.
    fn step(&self, car: &Arc<Car>, number: usize, now: Moment, limit: Moment) -> Step {
        let mut yard = self.yard.lock();
        let mut seats = car.seats.lock();
        let gathers = yard.cars.iter().any(|other| Arc::ptr_eq(other, car));
        if !gathers || seats.driver != number {
            return Step::Wait;
        }
        if now >= limit {
            seats.all[number] = Seat::Gone;
            if seats.elect() {
                drop(seats);
                car.wake();
            } else {
                drop(seats);
                yard.cars.retain(|other| !Arc::ptr_eq(other, car));
                self.invite(&yard);
            }
            return Step::Leave;
        }
        if yard.taken >= self.places(&seats, now) {
            return Step::Wait;
        }
        Step::Drive(self.depart(&mut yard, car, &mut seats))
    }

    /// Gives a car its place. Answers the driver's command.
    fn depart(&self, yard: &mut Yard, car: &Arc<Car>, seats: &mut Seats) -> Vec<u8> {
        yard.taken += 1;
        yard.cars.retain(|other| !Arc::ptr_eq(other, car));
        self.invite(yard);
        match &mut seats.all[seats.driver] {
            Seat::Waiting { packed, .. } => std::mem::take(packed),
            _ => Vec::new(),
        }
    }

    /// Has the first driver look for a place, if there is one for it.
    fn invite(&self, yard: &Yard) {
        let Some(car) = yard.cars.front() else { return };
        let mut seats = car.seats.lock();
        if yard.taken < self.places(&seats, self.clock.now()) {
            seats.invited = true;
            drop(seats);
            car.invited.notify_all();
        }
    }

    fn places(&self, seats: &Seats, now: Moment) -> usize {
        if now < seats.turn { self.few } else { self.many }
    }
}

/// What one driver takes to the server: its own command first, then those of its car.
pub(crate) struct Batch<'a> {
    combiner: &'a Combiner,
    /// The car and the driver's seat. A caller that goes alone has none.
    car: Option<(&'a Arc<Car>, usize)>,
    packed: Vec<u8>,
    deadline: Moment,
    limit: Moment,
    boarded: bool,
    own: Option<Outcome>,
    /// The other seats that were sent, and their outcomes as far as they came.
    others: Vec<usize>,
    outcomes: Vec<Outcome>,
    failure: Option<Failure>,
}

impl<'a> Batch<'a> {
    fn new(
        combiner: &'a Combiner,
        packed: Vec<u8>,
        deadline: Moment,
        limit: Moment,
        car: Option<(&'a Arc<Car>, usize)>,
    ) -> Batch<'a> {
        Batch {
            combiner,
            car,
            packed,
            deadline,
            limit,
            boarded: false,
            own: None,
            others: Vec::new(),
            outcomes: Vec::new(),
            failure: None,
        }
    }

    fn run(mut self, carry: &impl Fn(&mut Batch<'_>) -> Result<(), Failure>) -> Outcome {
        self.failure = carry(&mut self).err();
        self.own.take().unwrap_or_else(|| Err(self.failure.clone().unwrap_or_else(abandoned)))
    }

    /// Until when a connection may be waited for.
    pub(crate) fn limit(&self) -> Moment {
        self.limit
    }

    /// Takes along who waits, now that there is a connection. Answers what is to be sent, how many
    /// commands that is, and when the last answer must be there.
    pub(crate) fn board(&mut self) -> (&[u8], usize, Moment) {
        self.boarded = true;
        if let Some((car, own)) = self.car {
            let now = self.combiner.clock.now();
            let mut seats = car.seats.lock();
            seats.all[own] = Seat::Sent;
            for (number, seat) in seats.all.iter_mut().enumerate() {
                // What is overdue goes by itself.
                if let Seat::Waiting { packed, deadline } = seat
                    && *deadline > now
                {
                    self.packed.extend_from_slice(packed);
                    self.deadline = self.deadline.max(*deadline);
                    self.others.push(number);
                    *seat = Seat::Sent;
                }
            }
        }
        (&self.packed, 1 + self.others.len(), self.deadline)
    }

    /// The outcome of the next command, in the order in which they are sent.
    pub(crate) fn tell(&mut self, outcome: Outcome) {
        match self.own {
            None => self.own = Some(outcome),
            Some(_) => self.outcomes.push(outcome),
        }
    }

    /// Hands everybody in the car the outcome.
    fn arrive(&mut self, car: &Arc<Car>) {
        let mut seats = car.seats.lock();
        let mut outcomes = self.outcomes.drain(..);
        for &number in &self.others {
            let missing = || Err(self.failure.clone().unwrap_or_else(abandoned));
            let outcome = outcomes.next().unwrap_or_else(missing);
            if let seat @ Seat::Sent = &mut seats.all[number] {
                *seat = Seat::Told(outcome);
            }
        }
    }

    /// Leaves the car without having got a connection.
    fn strand(&mut self, car: &Arc<Car>, own: usize) {
        let mut yard = self.combiner.yard.lock();
        let mut seats = car.seats.lock();
        seats.all[own] = Seat::Gone;
        // Others may have the time that the driver had not. What else fails would fail for them.
        let had_time = self.combiner.clock.now() < self.limit;
        if !had_time && self.failure.is_some() && seats.elect() {
            yard.cars.push_front(Arc::clone(car));
            return;
        }
        for seat in &mut seats.all {
            if let Seat::Waiting { .. } = seat {
                *seat = Seat::Told(Err(self.failure.clone().unwrap_or_else(abandoned)));
            }
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if let Some((car, own)) = self.car {
            if self.boarded {
                self.arrive(car);
            } else {
                self.strand(car, own);
            }
            car.wake();
        }
        let mut yard = self.combiner.yard.lock();
        yard.taken -= 1;
        self.combiner.invite(&yard);
    }
}

fn exhausted(waited: Duration) -> Failure {
    Failure::NotSent(Hindrance::Exhausted(waited))
}

/// The driver did not come back: its thread panicked.
fn abandoned() -> Failure {
    Failure::Unknown(io::Error::other("the thread that had sent the command panicked").into())
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::{Scope, ScopedJoinHandle, scope, sleep};

    use redis::Value;

    use super::*;
    use crate::base::sync::{AtomicBool, AtomicU64, Ordering};
    use crate::base::time::BootClock;
    use crate::wire::script::Script;

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(50);
    const MILLI: Duration = Duration::from_millis(1);

    fn now() -> Moment {
        BootClock.now()
    }

    /// A combiner of one place, and a server whose every exchange is let through by the test.
    struct Stage {
        combiner: Combiner,
        gate: Mutex<Receiver<Result<(), Failure>>>,
        /// The commands of each batch.
        seen: Mutex<Vec<Vec<String>>>,
        connects: AtomicBool,
        start: Moment,
    }

    fn stage() -> (Stage, Sender<Result<(), Failure>>) {
        let (sender, gate) = channel();
        let mut combiner = Combiner::new(Arc::new(BootClock), 1, LONG);
        combiner.turn = LONG;
        let (gate, seen) = (Mutex::new(gate), Mutex::default());
        let connects = AtomicBool::new(true);
        (Stage { combiner, gate, seen, connects, start: now() }, sender)
    }

    /// The words of packed commands of one word each.
    fn words(packed: &[u8]) -> Vec<String> {
        let lines: Vec<&str> = std::str::from_utf8(packed).unwrap().split("\r\n").collect();
        lines.chunks_exact(3).map(|command| command[2].to_owned()).collect()
    }

    fn echo(word: &str) -> Outcome {
        Ok(Reply { value: Value::SimpleString(word.to_owned()), sent: now(), received: now() })
    }

    fn word_of(outcome: &Outcome) -> &str {
        match outcome {
            Ok(Reply { value: Value::SimpleString(word), .. }) => word,
            other => panic!("{other:?}"),
        }
    }

    impl Stage {
        /// The deadline is counted from the start of the test, where it is far.
        fn call(&self, word: &str, span: Duration) -> Outcome {
            let call = Call::plain(&[word.as_bytes()]);
            let from = if span < LONG { now() } else { self.start };
            self.combiner.call(&call, from.after(span), |batch| self.carry(batch))
        }

        fn carry(&self, batch: &mut Batch<'_>) -> Result<(), Failure> {
            if !self.connects.load(Ordering::Relaxed) {
                self.gate.lock().recv_timeout(LONG).unwrap()?;
            }
            let (packed, count, _) = batch.board();
            let commands = words(packed);
            assert_eq!(commands.len(), count);
            self.seen.lock().push(commands.clone());
            if self.connects.load(Ordering::Relaxed) {
                self.gate.lock().recv_timeout(LONG).unwrap()?;
            }
            for word in &commands {
                batch.tell(echo(word));
            }
            Ok(())
        }

        fn spawn<'scope>(
            &'scope self,
            scope: &'scope Scope<'scope, '_>,
            word: impl Into<String>,
            span: Duration,
        ) -> ScopedJoinHandle<'scope, Outcome> {
            let word = word.into();
            scope.spawn(move || self.call(&word, span))
        }

        /// Commands that wait, car by car.
        fn waiting(&self) -> Vec<usize> {
            let waits = |seat: &&Seat| matches!(seat, Seat::Waiting { .. });
            let yard = self.combiner.yard.lock();
            yard.cars.iter().map(|car| car.seats.lock().all.iter().filter(waits).count()).collect()
        }

        fn await_waiting(&self, wanted: &[usize]) {
            let end = now().after(LONG);
            while self.waiting() != wanted {
                assert!(now() < end, "{:?}", self.waiting());
                sleep(MILLI / 10);
            }
        }

        fn await_seen(&self, batches: usize) {
            let end = now().after(LONG);
            while self.seen.lock().len() < batches {
                assert!(now() < end);
                sleep(MILLI / 10);
            }
        }

        /// One is under way, and so many wait, in order.
        fn with_waiting<'scope>(
            &'scope self,
            scope: &'scope Scope<'scope, '_>,
            count: usize,
        ) -> Vec<ScopedJoinHandle<'scope, Outcome>> {
            let mut handles = vec![self.spawn(scope, "w0", LONG)];
            self.await_seen(1);
            for number in 1..=count {
                handles.push(self.spawn(scope, format!("w{number}"), LONG));
                let (full, rest) = (number / SEATS, number % SEATS);
                let cars = [vec![SEATS; full], vec![rest; usize::from(rest > 0)]].concat();
                self.await_waiting(&cars);
            }
            handles
        }

        fn assert_idle(&self) {
            let yard = self.combiner.yard.lock();
            assert_eq!((yard.taken, yard.cars.len()), (0, 0));
        }
    }

    fn broken() -> Failure {
        Failure::Unknown(io::Error::from(io::ErrorKind::ConnectionReset).into())
    }

    fn unreachable() -> Failure {
        let error = io::Error::from(io::ErrorKind::ConnectionRefused);
        Failure::NotSent(Hindrance::Connect(error.into()))
    }

    #[test]
    fn who_waits_travels_together_in_order_and_each_has_its_own_answer() {
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
    fn a_batch_is_bounded_and_the_rest_goes_next() {
        let (stage, gate) = stage();
        scope(|scope| {
            let handles = stage.with_waiting(scope, SEATS + 3);
            for _ in 0..3 {
                gate.send(Ok(())).unwrap();
            }
            for (number, handle) in handles.into_iter().enumerate() {
                assert_eq!(word_of(&handle.join().unwrap()), format!("w{number}"));
            }
        });
        let sizes: Vec<usize> = stage.seen.lock().iter().map(Vec::len).collect();
        assert_eq!(sizes, [1, SEATS, 3]);
        stage.assert_idle();
    }

    #[test]
    fn long_commands_do_not_wait_for_each_other() {
        let mut packed = vec![0; BYTES];
        let car = Car::new(packed.clone(), now(), now());
        assert_eq!(car.seats.lock().enter(&mut packed, now()), None);
        assert_eq!(packed.len(), BYTES);
    }

    #[test]
    fn what_waits_for_too_long_is_withdrawn_and_never_sent() {
        let (stage, gate) = stage();
        scope(|scope| {
            let handles = stage.with_waiting(scope, 1);
            let start = now();
            // The first of these is a rider, the second must be a driver.
            for span in [SHORT, LONG * 2] {
                let handle = stage.spawn(scope, "late", span);
                if span > LONG {
                    stage.await_waiting(&[1, 1]);
                    gate.send(Ok(())).unwrap();
                    gate.send(Ok(())).unwrap();
                    gate.send(Ok(())).unwrap();
                    assert_eq!(word_of(&handle.join().unwrap()), "late");
                } else {
                    let outcome = handle.join().unwrap();
                    assert!(matches!(outcome, Err(Failure::NotSent(Hindrance::Exhausted(_)))));
                    assert!(now().since(start) < SHORT * 10);
                }
            }
            for handle in handles {
                handle.join().unwrap().unwrap();
            }
        });
        assert_eq!(*stage.seen.lock(), [["w0"], ["w1"], ["late"]]);
        stage.assert_idle();
    }

    #[test]
    fn a_driver_that_leaves_hands_on_and_the_last_dissolves_the_car() {
        let (mut stage, gate) = stage();
        stage.combiner.max_wait = SHORT * 4;
        let stage = stage;
        scope(|scope| {
            let first = stage.spawn(scope, "w0", LONG);
            stage.await_seen(1);
            let driver = stage.spawn(scope, "driver", LONG);
            stage.await_waiting(&[1]);
            sleep(SHORT * 2);
            let rider = stage.spawn(scope, "rider", LONG);
            let outcome = driver.join().unwrap();
            assert!(matches!(outcome, Err(Failure::NotSent(Hindrance::Exhausted(_)))));
            gate.send(Ok(())).unwrap();
            gate.send(Ok(())).unwrap();
            match rider.join().unwrap() {
                // On a slow machine it has left too.
                Err(Failure::NotSent(Hindrance::Exhausted(_))) => {
                    stage.gate.lock().recv_timeout(LONG).unwrap().unwrap();
                }
                outcome => assert_eq!(word_of(&outcome), "rider"),
            }
            first.join().unwrap().unwrap();
            let seen = stage.seen.lock().len();
            let last = stage.spawn(scope, "w1", LONG);
            stage.await_seen(seen + 1);
            stage.spawn(scope, "alone", LONG).join().unwrap().unwrap_err();
            gate.send(Ok(())).unwrap();
            last.join().unwrap().unwrap();
        });
        stage.assert_idle();
    }

    #[test]
    fn at_its_deadline_a_caller_knows_that_it_does_not_know() {
        let (stage, gate) = stage();
        scope(|scope| {
            let first = stage.spawn(scope, "w0", LONG);
            stage.await_seen(1);
            let driver = stage.spawn(scope, "w1", LONG);
            stage.await_waiting(&[1]);
            let start = now();
            let rider = stage.spawn(scope, "rider", SHORT * 4);
            stage.await_waiting(&[2]);
            gate.send(Ok(())).unwrap();
            stage.await_seen(2);
            assert!(matches!(rider.join().unwrap(), Err(failure) if failure.is_unknown()));
            let waited = now().since(start);
            assert!((SHORT * 4..SHORT * 20).contains(&waited), "{waited:?}");
            gate.send(Ok(())).unwrap();
            assert_eq!(word_of(&driver.join().unwrap()), "w1");
            first.join().unwrap().unwrap();
        });
        stage.assert_idle();
    }

    #[test]
    fn a_broken_connection_is_unknown_to_all_on_it_and_to_nobody_else() {
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
    fn without_a_connection_all_in_the_car_were_not_sent() {
        let (stage, gate) = stage();
        scope(|scope| {
            let mut handles = stage.with_waiting(scope, 3);
            stage.connects.store(false, Ordering::Relaxed);
            gate.send(Ok(())).unwrap();
            gate.send(Err(unreachable())).unwrap();
            handles.remove(0).join().unwrap().unwrap();
            for handle in handles {
                let outcome = handle.join().unwrap();
                assert!(matches!(outcome, Err(Failure::NotSent(Hindrance::Connect(_)))));
            }
        });
        assert_eq!(*stage.seen.lock(), [["w0"]]);
        stage.assert_idle();
    }

    #[test]
    fn others_may_have_the_time_that_their_driver_had_not() {
        let (stage, _gate) = stage();
        let end = now().after(LONG);
        let car = Car::new(Vec::new(), end, end);
        for later in [MILLI, MILLI * 2] {
            car.seats.lock().enter(&mut Vec::new(), end.after(later)).unwrap();
        }
        stage.combiner.yard.lock().taken = 1;
        let batch = Batch::new(&stage.combiner, Vec::new(), end, Moment::PAST, Some((&car, 0)));
        batch.run(&|_| Err(exhausted(MILLI))).unwrap_err();
        let yard = stage.combiner.yard.lock();
        assert_eq!((yard.taken, yard.cars.len()), (0, 1));
        let seats = car.seats.lock();
        assert_eq!((seats.driver, seats.deadline), (2, end.after(MILLI * 2)));
        assert!(seats.invited && matches!(seats.all[0], Seat::Gone));
    }

    #[test]
    fn a_panic_leaves_nobody_waiting() {
        let (stage, gate) = stage();
        scope(|scope| {
            let first = stage.spawn(scope, "w0", LONG);
            stage.await_seen(1);
            let driver = scope.spawn(|| {
                let call = Call::plain(&[b"w1"]);
                let carry = |batch: &mut Batch<'_>| {
                    batch.board();
                    batch.tell(echo("w1"));
                    batch.tell(echo("w2"));
                    panic!("the driver's");
                };
                let deadline = now().after(LONG);
                catch_unwind(AssertUnwindSafe(|| stage.combiner.call(&call, deadline, carry)))
            });
            stage.await_waiting(&[1]);
            let told = stage.spawn(scope, "w2", LONG);
            stage.await_waiting(&[2]);
            let forgotten = stage.spawn(scope, "w3", LONG);
            stage.await_waiting(&[3]);
            gate.send(Ok(())).unwrap();
            first.join().unwrap().unwrap();
            assert!(driver.join().unwrap().is_err());
            assert_eq!(word_of(&told.join().unwrap()), "w2");
            assert!(matches!(forgotten.join().unwrap(), Err(failure) if failure.is_unknown()));
        });
        stage.assert_idle();
    }

    #[test]
    fn who_waited_for_a_turn_takes_a_place_besides() {
        let (mut stage, gate) = stage();
        (stage.combiner.turn, stage.combiner.many) = (SHORT, 2);
        let stage = stage;
        let elsewhere = |word: &str| {
            let call = Call::plain(&[word.as_bytes()]);
            let word = word.to_owned();
            stage.combiner.call(&call, now().after(LONG), |batch| {
                batch.board();
                batch.tell(echo(&word));
                Ok(())
            })
        };
        scope(|scope| {
            let stuck = stage.spawn(scope, "stuck", LONG);
            stage.await_seen(1);
            let start = now();
            assert_eq!(word_of(&elsewhere("besides")), "besides");
            let waited = now().since(start);
            assert!((SHORT..SHORT * 20).contains(&waited), "{waited:?}");
            gate.send(Ok(())).unwrap();
            stuck.join().unwrap().unwrap();
        });
        stage.assert_idle();
    }

    #[test]
    fn who_finds_place_and_car_drives_at_once() {
        let (stage, _gate) = stage();
        // As if a place had been given back, and the driver invited not yet woken up.
        let car = Car::new(Call::plain(&[b"asleep"]).pack(), now().after(LONG), now());
        stage.combiner.yard.lock().cars.push_back(Arc::clone(&car));
        let call = Call::plain(&[b"awake"]);
        let outcome = stage.combiner.call(&call, now().after(LONG), |batch| {
            let words = words(batch.board().0);
            assert_eq!(words, ["awake", "asleep"]);
            for word in words {
                batch.tell(echo(&word));
            }
            Ok(())
        });
        assert_eq!(word_of(&outcome), "awake");
        let seat = std::mem::replace(&mut car.seats.lock().all[0], Seat::Gone);
        assert!(matches!(seat, Seat::Told(outcome) if word_of(&outcome) == "asleep"));
        stage.assert_idle();
    }

    #[test]
    fn a_script_that_the_server_does_not_know_is_sent_whole() {
        static SCRIPT: Script = Script::new("return 1");
        let (stage, _gate) = stage();
        let calls = AtomicU64::new(0);
        let outcome = stage.combiner.call(&SCRIPT.call(&[], &[]), now().after(LONG), |batch| {
            let whole = batch.board().0.windows(4).any(|part| part == b"EVAL\r"[..4].as_ref())
                && calls.fetch_add(1, Ordering::Relaxed) == 1;
            batch.tell(if whole {
                echo("done")
            } else {
                let kind = redis::ErrorKind::Server(redis::ServerErrorKind::NoScript);
                Err(Failure::Refused((kind, "no script").into()))
            });
            Ok(())
        });
        assert_eq!(word_of(&outcome), "done");
        stage.assert_idle();
    }

    /// Everything at once: every answer is the caller's own, every wait ends in time, and nothing
    /// is left behind.
    #[test]
    fn nobody_is_forgotten_and_nobody_has_anothers_answer() {
        for (size, seed) in [(1, 11), (2, 12), (3, 13), (8, 14)] {
            let mut combiner = Combiner::new(Arc::new(BootClock), size, MILLI * 20);
            combiner.turn = MILLI * 3;
            let combiner = combiner;
            let answered = AtomicU64::new(0);
            scope(|scope| {
                for thread in 0..16_u64 {
                    let (combiner, answered) = (&combiner, &answered);
                    scope.spawn(move || {
                        let mut random = fastrand::Rng::with_seed(seed * 100 + thread);
                        for number in 0..150 {
                            let word = format!("t{thread}n{number}");
                            let call = Call::plain(&[word.as_bytes()]);
                            let span = MILLI * random.u32(1..40);
                            let (pause, fate) = (random.u64(0..300), random.u32(0..100));
                            let start = now();
                            let carry = |batch: &mut Batch<'_>| {
                                if fate == 0 {
                                    return Err(unreachable());
                                }
                                if fate == 1 {
                                    sleep(batch.limit().since(now()));
                                    return Err(exhausted(MILLI));
                                }
                                let words = words(batch.board().0);
                                assert!((1..=SEATS).contains(&words.len()));
                                assert_eq!(words[0], word);
                                sleep(Duration::from_micros(pause));
                                for (index, word) in words.iter().enumerate() {
                                    if fate == 2 && index == 1 {
                                        return Err(broken());
                                    }
                                    if fate == 3 && index == 1 {
                                        std::panic::resume_unwind(Box::new(()));
                                    }
                                    batch.tell(echo(word));
                                }
                                Ok(())
                            };
                            let call = || combiner.call(&call, start.after(span), carry);
                            if let Ok(outcome) = catch_unwind(AssertUnwindSafe(call))
                                && outcome.is_ok()
                            {
                                assert_eq!(word_of(&outcome), word);
                                answered.fetch_add(1, Ordering::Relaxed);
                            }
                            let waited = now().since(start);
                            assert!(waited < span + MILLI * 500, "{waited:?} for {span:?}");
                        }
                    });
                }
            });
            assert!(answered.load(Ordering::Relaxed) > 500);
            let yard = combiner.yard.lock();
            assert_eq!((yard.taken, yard.cars.len()), (0, 0));
        }
    }
}
