//! A car, its seats, and who drives it.

use crate::base::sync::Arc;
use crate::base::sync::crowd::{self, Condvar};
use crate::base::time::Moment;
use crate::wire::connection::{Reply, SLACK};
use crate::wire::failure::Failure;

/// How many commands travel together…
pub(super) const SEATS: usize = 32;
/// …and from how many bytes on no other is taken along.
pub(super) const BYTES: usize = 64 * 1024;

pub(super) type Outcome = Result<Reply, Failure>;

#[derive(Debug)]
pub(super) enum Seat {
    Waiting { packed: Vec<u8>, deadline: Moment },
    Sent,
    Told(Outcome),
    Gone,
}

#[derive(Debug)]
pub(super) struct Seats {
    pub(super) all: Vec<Seat>,
    bytes: usize,
    pub(super) driver: usize,
    /// The driver's.
    pub(super) deadline: Moment,
    /// From when on the driver takes a place besides.
    pub(super) turn: Moment,
    /// Whether the driver is to look for a place.
    pub(super) invited: bool,
}

impl Seats {
    /// Takes a seat if there is room and the driver has the time.
    pub(super) fn enter(&mut self, packed: &mut Vec<u8>, deadline: Moment) -> Option<usize> {
        let full = self.all.len() >= SEATS || self.bytes >= BYTES;
        if full || deadline > self.deadline.after(SLACK) {
            return None;
        }
        self.bytes += packed.len();
        self.all.push(Seat::Waiting { packed: std::mem::take(packed), deadline });
        Some(self.all.len() - 1)
    }

    /// Hands on to the one that can wait longest. Answers whether anybody waits.
    pub(super) fn elect(&mut self) -> bool {
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
pub(super) struct Car {
    pub(super) seats: crowd::Mutex<Seats>,
    /// Where the driver waits for a place.
    pub(super) invited: Condvar,
    /// Where the others wait.
    pub(super) told: Condvar,
}

impl Car {
    pub(super) fn new(packed: Vec<u8>, deadline: Moment, turn: Moment) -> Arc<Car> {
        let mut all = Vec::with_capacity(SEATS);
        let bytes = packed.len();
        all.push(Seat::Waiting { packed, deadline });
        let seats = Seats { all, bytes, driver: 0, deadline, turn, invited: false };
        let seats = crowd::Mutex::new(seats);
        Arc::new(Car { seats, invited: Condvar::new(), told: Condvar::new() })
    }

    /// Wakes everybody. One who drove before may still wait where the driver does.
    pub(super) fn wake(&self) {
        self.told.notify_all();
        self.invited.notify_all();
    }
}
