//! A breadth-first search through all states, each visited once.
//!
//! States are distinguished by a hash of 64 bits; for ten million states the chance that any two
//! share one is about 3 in a million. Of a visited state only the path to it is kept, from which a
//! counter-example is replayed.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::{Duration, Instant};

use crate::fold::fold;
use crate::invariant::Violation;
use crate::scenario::Scenario;
use crate::trace;

/// The result of a search.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) states: usize,
    pub(crate) steps: u64,
    pub(crate) depth: usize,
    pub(crate) took: Duration,
    /// The first violation, and the shortest way to it.
    pub(crate) found: Option<(Violation, Vec<String>)>,
    /// The longest time for which a lock was free while a waiter was in the queue.
    pub(crate) starved: i16,
}

/// A hash that is a number already.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) | u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// The origin of a state: the index of the state before, and the number of the action.
type Step = (u32, u16);

/// Visits every state of a scenario, or those before the first violation.
pub(crate) fn explore(scenario: &Scenario) -> Outcome {
    let begun = Instant::now();
    let start = scenario.start();
    let mut seen: HashSet<u64, BuildHasherDefault<Same>> = HashSet::default();
    seen.insert(fold(&start));
    let mut steps: Vec<Step> = vec![(0, 0)];
    let mut level = vec![(0, start)];
    let (mut depth, mut taken, mut starved, mut found) = (0, 0, 0, None);
    'search: while !level.is_empty() {
        let mut next = Vec::new();
        for (index, world) in level {
            for (action, number) in world.actions(scenario).into_iter().zip(0..) {
                taken += 1;
                match world.step(action, scenario) {
                    Err(violation) => {
                        let way = way_to(&steps, index, number);
                        found = Some((violation, trace::play(scenario, &way)));
                        break 'search;
                    }
                    Ok(after) if seen.insert(fold(&after)) => {
                        starved = starved.max(after.record.starved);
                        next.push((u32::try_from(steps.len()).expect("not so many"), after));
                        steps.push((index, number));
                    }
                    Ok(_) => {}
                }
            }
        }
        level = next;
        depth += 1;
    }
    Outcome { states: steps.len(), steps: taken, depth, took: begun.elapsed(), found, starved }
}

fn way_to(steps: &[Step], mut index: u32, last: u16) -> Vec<u16> {
    let mut way = vec![last];
    while index != 0 {
        let (before, number) = steps[index as usize];
        way.push(number);
        index = before;
    }
    way.reverse();
    way
}
