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
//! While any car gathers, all `FEW` places are taken or the driver of the first was *invited*:
//! by whoever gave a place back, drove the car before, or dissolved it. Few places, because a
//! larger car saves more than one more connection does. But a driver that waited for a [`TURN`]
//! takes one besides: a connection that died unnoticed must hold up only those on it.

mod batch;
mod car;
#[cfg(test)]
mod tests;
mod yard;

use std::time::Duration;

use crate::base::sync::{Arc, crowd};
use crate::base::time::{Clock, Moment};
use crate::wire::combine::batch::abandoned;
use crate::wire::combine::car::{Car, Outcome, Seat};
use crate::wire::combine::yard::{Span, Yard};
use crate::wire::connection::is_no_script;
use crate::wire::failure::{Failure, Hindrance, Shortage};
use crate::wire::script::Call;

pub(crate) use batch::Batch;

/// How long a driver waits for a place until it takes one besides.
const TURN: Duration = Duration::from_millis(5);

/// Where the callers of one pool meet.
#[derive(Debug)]
pub(crate) struct Combiner {
    yard: Yard,
    turn: Duration,
}

/// What a driver without a place has to do.
enum Step {
    Drive(Vec<u8>),
    Leave,
    Wait,
}

impl Combiner {
    /// For a pool of so many connections.
    pub(crate) fn new(clock: Arc<dyn Clock>, size: u32) -> Combiner {
        Combiner { yard: Yard::new(clock, size), turn: TURN }
    }

    /// One command and its answer. `limit` tells until when a caller that came then waits for a connection, as
    /// things stand. `carry` takes a batch to the server; a failure that it answers befalls all in the batch that
    /// were told nothing.
    pub(crate) fn call(
        &self,
        call: &Call,
        deadline: Moment,
        limit: &dyn Fn(Moment) -> Moment,
        carry: impl Fn(&mut Batch<'_>) -> Result<(), Failure>,
    ) -> Outcome {
        let span = Span { start: self.yard.clock.now(), deadline, limit };
        match self.call_once(call.pack(), span, &carry) {
            Err(Failure::Refused(error)) if is_no_script(&error) => match call.with_source() {
                Some(whole) => self.call_once(whole.pack(), span, &carry),
                None => Err(Failure::Refused(error)),
            },
            outcome => outcome,
        }
    }

    fn call_once(
        &self,
        mut packed: Vec<u8>,
        span: Span<'_>,
        carry: &impl Fn(&mut Batch<'_>) -> Result<(), Failure>,
    ) -> Outcome {
        let deadline = span.deadline;
        let mut yard = self.yard.state.lock();
        if yard.cars.is_empty() && self.yard.has_place(&yard) {
            yard.taken += 1;
            drop(yard);
            return Batch::new(&self.yard, packed, span, None).run(carry);
        }
        if let Some(car) = yard.cars.back().cloned() {
            let mut seats = car.seats.lock();
            if let Some(number) = seats.enter(&mut packed, deadline) {
                // Who runs already need not wait until the one that was invited has woken up.
                let drives = yard.cars.len() == 1 && deadline >= seats.deadline;
                if drives && self.yard.has_place(&yard) {
                    (seats.driver, seats.deadline) = (number, deadline);
                    let packed = self.yard.depart(&mut yard, &car, &mut seats);
                    drop((seats, yard));
                    let car = Some((&car, number));
                    return Batch::new(&self.yard, packed, span, car).run(carry);
                }
                drop((seats, yard));
                return self.ride(&car, number, span, carry);
            }
        }
        let car = Car::new(packed, deadline, self.yard.clock.now().after(self.turn));
        yard.cars.push_back(Arc::clone(&car));
        drop(yard);
        self.ride(&car, 0, span, carry)
    }

    /// Waits in a car, and drives it if that falls to this caller.
    fn ride(
        &self,
        car: &Arc<Car>,
        number: usize,
        span: Span<'_>,
        carry: &impl Fn(&mut Batch<'_>) -> Result<(), Failure>,
    ) -> Outcome {
        let Span { start, deadline, .. } = span;
        let mut now = self.yard.clock.now();
        let mut limit = span.limit();
        let mut seats = car.seats.lock();
        let mut look = limit.min(seats.turn);
        loop {
            if now >= limit {
                // It waits for something else by now, for which there is another bound.
                limit = span.limit();
                look = look.max(limit.min(seats.turn));
            }
            let drives = seats.driver == number;
            let steps = drives && (seats.invited || now >= look);
            let until = match &mut seats.all[number] {
                Seat::Waiting { .. } if steps => {
                    seats.invited = false;
                    drop(seats);
                    match self.step(car, number, now, limit) {
                        Step::Drive(packed) => {
                            let car = Some((car, number));
                            return Batch::new(&self.yard, packed, span, car).run(carry);
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
            now = self.yard.clock.now();
        }
    }

    /// Looks for a place for a driver, or lets it go if its time is over.
    fn step(&self, car: &Arc<Car>, number: usize, now: Moment, limit: Moment) -> Step {
        let mut yard = self.yard.state.lock();
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
                self.yard.invite(&yard);
            }
            return Step::Leave;
        }
        if yard.taken >= self.yard.places(&seats, now) {
            return Step::Wait;
        }
        Step::Drive(self.yard.depart(&mut yard, car, &mut seats))
    }
}

fn exhausted(waited: Duration) -> Failure {
    Failure::NotSent(Hindrance::Exhausted(Shortage { waited, pool: None }))
}
