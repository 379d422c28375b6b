//! Where cars gather, and the places that they wait for.

use std::collections::VecDeque;

use crate::base::sync::{Arc, Mutex};
use crate::base::time::{Clock, Moment};
use crate::wire::combine::car::{Car, Seat, Seats};

/// How many places there are: as many threads never wait for each other. With fewer the server would
/// idle, with more the cars be empty.
const FEW: usize = 4;

/// The cars of one pool, and how many places there are for them.
#[derive(Debug)]
pub(super) struct Yard {
    pub(super) clock: Arc<dyn Clock>,
    few: usize,
    pub(super) all: usize,
    pub(super) state: Mutex<State>,
}

/// Locked before the seats of a car.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Places that are taken.
    pub(super) taken: usize,
    /// In the order in which they came.
    pub(super) cars: VecDeque<Arc<Car>>,
}

/// How long a caller has.
#[derive(Clone, Copy)]
pub(super) struct Span<'a> {
    pub(super) start: Moment,
    pub(super) deadline: Moment,
    /// Until when a caller that came then waits for a connection, as things stand.
    pub(super) limit: &'a dyn Fn(Moment) -> Moment,
}

impl Span<'_> {
    /// Until when it waits for a connection, as things stand.
    pub(super) fn limit(&self) -> Moment {
        self.deadline.min((self.limit)(self.start))
    }
}

impl Yard {
    /// For a pool of so many connections.
    pub(super) fn new(clock: Arc<dyn Clock>, size: u32) -> Yard {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        Yard { clock, few: FEW.min(size), all: size, state: Mutex::default() }
    }

    /// Whether a caller that comes now need not wait.
    pub(super) fn has_place(&self, state: &State) -> bool {
        state.taken < self.few
    }

    /// Gives a car its place. Answers the driver's command.
    pub(super) fn depart(&self, state: &mut State, car: &Arc<Car>, seats: &mut Seats) -> Vec<u8> {
        state.taken += 1;
        state.cars.retain(|other| !Arc::ptr_eq(other, car));
        self.invite(state);
        match &mut seats.all[seats.driver] {
            Seat::Waiting { packed, .. } => std::mem::take(packed),
            _ => Vec::new(),
        }
    }

    /// Has the first driver look for a place, if there is one for it.
    pub(super) fn invite(&self, state: &State) {
        let Some(car) = state.cars.front() else { return };
        let mut seats = car.seats.lock();
        if state.taken < self.places(&seats, self.clock.now()) {
            seats.invited = true;
            drop(seats);
            car.invited.notify_all();
        }
    }

    /// How many places there are for the driver of these seats.
    pub(super) fn places(&self, seats: &Seats, now: Moment) -> usize {
        if now < seats.turn { self.few } else { self.all }
    }
}
