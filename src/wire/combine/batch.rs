//! What one driver takes to the server, and brings back to those in its car.

use std::io;

use crate::base::sync::Arc;
use crate::base::time::Moment;
use crate::wire::combine::car::{Car, Outcome, Seat};
use crate::wire::combine::yard::{Span, Yard};
use crate::wire::connection::Connection;
use crate::wire::failure::Failure;

/// What one driver takes to the server: its own command first, then those of its car.
pub(crate) struct Batch<'a> {
    yard: &'a Yard,
    /// The car and the driver's seat. A caller that goes alone has none.
    car: Option<(&'a Arc<Car>, usize)>,
    packed: Vec<u8>,
    span: Span<'a>,
    /// When the last reply must be there.
    deadline: Moment,
    boarded: bool,
    own: Option<Outcome>,
    /// The other seats that were sent, and their outcomes as far as they came.
    others: Vec<usize>,
    outcomes: Vec<Outcome>,
    failure: Option<Failure>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        yard: &'a Yard,
        packed: Vec<u8>,
        span: Span<'a>,
        car: Option<(&'a Arc<Car>, usize)>,
    ) -> Batch<'a> {
        Batch {
            yard,
            car,
            packed,
            span,
            deadline: span.deadline,
            boarded: false,
            own: None,
            others: Vec::new(),
            outcomes: Vec::new(),
            failure: None,
        }
    }

    pub(super) fn run(mut self, carry: &impl Fn(&mut Batch<'_>) -> Result<(), Failure>) -> Outcome {
        self.failure = carry(&mut self).err();
        self.own.take().unwrap_or_else(|| Err(self.failure.clone().unwrap_or_else(abandoned)))
    }

    /// Since when a connection is waited for, and until when that makes sense at all.
    pub(crate) fn span(&self) -> (Moment, Moment) {
        (self.span.start, self.span.deadline)
    }

    /// Takes along who waits, now that there is a connection. Answers what is to be sent, how many
    /// commands that is, and when the last answer must be there.
    pub(super) fn board(&mut self) -> (&[u8], usize, Moment) {
        self.boarded = true;
        if let Some((car, own)) = self.car {
            let now = self.yard.clock.now();
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

    /// Takes all of it to the server and back. A failure befalls all in it that were told nothing.
    pub(crate) fn exchange(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        let (packed, count, deadline) = self.board();
        connection.send(packed, count, deadline)?;
        connection.receive_each(deadline, |outcome| self.tell(outcome))
    }

    /// The outcome of the next command, in the order in which they are sent.
    pub(super) fn tell(&mut self, outcome: Outcome) {
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
        let mut yard = self.yard.state.lock();
        let mut seats = car.seats.lock();
        seats.all[own] = Seat::Gone;
        // Others may have the time that the driver had not. What else fails would fail for them.
        let had_time = self.yard.clock.now() < self.span.limit();
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
        let mut yard = self.yard.state.lock();
        yard.taken -= 1;
        self.yard.invite(&yard);
    }
}

/// The driver did not come back: its thread panicked.
pub(super) fn abandoned() -> Failure {
    Failure::Unknown(io::Error::other("the thread that had sent the command panicked").into())
}
