//! What Redis keeps of a weighted lock.

use std::collections::BTreeSet;

use ::redis::{Value, from_redis_value};

use crate::request::{ALL, Attempt, FENCE, KEYS, LINE, LOCK, SIGNS, UPGRADABLE};

/// A holder in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) attempt: Attempt,
    pub(crate) weight: u64,
    /// In µs.
    pub(crate) ends: u64,
    pub(crate) slots: Vec<u32>,
    /// The number of its last change.
    pub(crate) change: u64,
}

/// A waiter in Redis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Waiter {
    pub(crate) attempt: Attempt,
    /// Below zero: it was passed over.
    pub(crate) place: f64,
    /// In µs.
    pub(crate) dies: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Content {
    pub(crate) declared: Option<u64>,
    pub(crate) limit: u64,
    pub(crate) used: u64,
    /// By their leases' ends.
    pub(crate) holders: Vec<Holder>,
    /// By their places.
    pub(crate) line: Vec<Waiter>,
    /// When each key ends, in ms from now; -1: never, -2: it is not there.
    pub(crate) left: [i64; 4],
    pub(crate) token: u64,
}

const BAND: f64 = 4_294_967_296.0;
const LEASES: f64 = 1_099_511_627_776.0;

impl Content {
    /// Asks by commands. What cannot be is a panic.
    pub(crate) fn read(mut ask: impl FnMut(&[&str]) -> Value) -> Content {
        let mut scores = |key| -> Vec<(String, f64)> {
            let value = ask(&["ZRANGE", key, "0", "-1", "WITHSCORES"]);
            from_redis_value(value).expect("members")
        };
        let (lock, line, signs) = (scores(LOCK), scores(LINE), scores(SIGNS));
        let token: Option<String> = from_redis_value(ask(&["GET", FENCE])).expect("a token");
        let left = KEYS.map(|key| match ask(&["PTTL", key]) {
            Value::Int(left) => left,
            other => panic!("{other:?}"),
        });
        let mut content = Content {
            left,
            token: token.map_or(0, |token| token.parse().expect("a token")),
            ..Content::default()
        };
        for (member, score) in &lock {
            match member.as_str() {
                "declared" => content.declared = Some(*score as u64),
                "limit" => content.limit = *score as u64,
                "used" => content.used = *score as u64,
                _ if *score >= LEASES => {
                    let attempt = Attempt::read(member);
                    let weight = attempt.weight.number();
                    let (slots, change) = (Vec::new(), 0);
                    content.holders.push(Holder {
                        attempt,
                        weight,
                        ends: *score as u64,
                        slots,
                        change,
                    });
                }
                _ => {}
            }
        }
        for (member, score) in lock.iter().filter(|(_, score)| (BAND..LEASES).contains(score)) {
            let Some((what, attempt)) = member.split_once('/') else { continue };
            let holder = content.holders.iter_mut().find(|holder| holder.attempt.text() == attempt);
            let holder = holder.unwrap_or_else(|| panic!("{member} belongs to nobody"));
            let value = (*score - BAND) as u64;
            if what == "c" {
                holder.weight = [1, UPGRADABLE, ALL][(value % 4) as usize];
                holder.change = value / 4;
            } else {
                holder.slots.push(u32::try_from(value).expect("a slot"));
            }
        }
        let sign = |member: &String| signs.iter().find(|(other, _)| other == member);
        content.line = line
            .iter()
            .map(|(member, place)| Waiter {
                attempt: Attempt::read(member),
                place: *place,
                dies: sign(member).map_or(0, |(_, dies)| *dies as u64),
            })
            .collect();
        content
    }

    pub(crate) fn holder(&self, attempt: Attempt) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.attempt == attempt)
    }

    pub(crate) fn waiter(&self, attempt: Attempt) -> Option<&Waiter> {
        self.line.iter().find(|waiter| waiter.attempt == attempt)
    }

    /// What must hold of it whatever happened.
    pub(crate) fn check(&self) -> Result<(), String> {
        let sum: u64 = self.holders.iter().map(|holder| holder.weight).sum();
        if sum != self.used {
            return Err(format!("the sum is {}, and the weights add up to {sum}", self.used));
        }
        let mut slots = BTreeSet::new();
        for holder in &self.holders {
            let expected = if self.declared == Some(ALL) { 0 } else { holder.weight };
            if holder.slots.len() as u64 != expected {
                return Err(format!("{:?} has the slots {:?}", holder.attempt, holder.slots));
            }
            if let Some(slot) = holder.slots.iter().find(|slot| !slots.insert(**slot)) {
                return Err(format!("slot {slot} is given twice"));
            }
        }
        for (key, left) in KEYS.iter().zip(self.left) {
            if left == -1 {
                return Err(format!("{key} never ends"));
            }
        }
        Ok(())
    }

    /// What must hold besides, as long as no key was touched by another.
    pub(crate) fn check_ends(&self, now: u64) -> Result<(), String> {
        for holder in self.holders.iter().filter(|holder| holder.ends > now) {
            let left = (holder.ends - now) / 1_000;
            for (key, ends) in KEYS.iter().zip(self.left).take(2) {
                // The server's clock goes on between two commands.
                if ends + 1_000 < left as i64 {
                    return Err(format!("{key} ends in {ends} ms, and a lease in {left} ms"));
                }
            }
        }
        Ok(())
    }
}
