//! Short names for what differs from run to run: clients, attempts, tokens.

use redis::Value;

use super::Result;

/// Tokens that are at most so far apart follow from each other; a clock's are further apart.
const NEAR: u64 = 100;

/// The names of one story.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// The identity of a client, and its letter.
    clients: Vec<(String, &'static str)>,
    /// The owner's values of attempts, in the order in which they were seen.
    attempts: Vec<(&'static str, String)>,
    /// The first of the tokens that follow from each other.
    tokens: Vec<u64>,
    highest: u64,
    /// The places in the queue, without their signs, in the order in which they were taken.
    places: Vec<u64>,
}

impl Names {
    /// Learns the identity of a client from an owner's value of it.
    pub(crate) fn learn(&mut self, letter: &'static str, owner: &[u8]) {
        if let Some((client, _)) = parts(owner)
            && !self.clients.iter().any(|(known, _)| *known == client)
        {
            self.clients.push((client, letter));
        }
    }

    fn letter(&self, id: &str) -> Result<&'static str> {
        let found = self.clients.iter().find(|(client, _)| client == id);
        found
            .map(|&(_, letter)| letter)
            .ok_or_else(|| format!("who is {id}, beside {:?}?", self.clients).into())
    }

    /// An attempt, by its owner's value.
    pub(crate) fn attempt(&mut self, owner: &[u8]) -> Result<String> {
        let (client, number) = parts(owner).ok_or("a foreign owner")?;
        let letter = self.letter(&client)?;
        self.numbered(letter, &number)
    }

    /// An attempt of a client, by its number.
    pub(crate) fn numbered(&mut self, letter: &'static str, number: &str) -> Result<String> {
        let known = |attempts: &[(&'static str, String)]| {
            let mut own = attempts.iter().filter(|(client, _)| *client == letter);
            own.position(|(_, known)| known == number)
        };
        if known(&self.attempts).is_none() {
            self.attempts.push((letter, number.to_owned()));
        }
        let place = known(&self.attempts).ok_or("an attempt")? + 1;
        Ok(format!("{letter}{place}"))
    }

    /// A place in the queue; one below zero has a minus sign. One that is new must be above all before.
    pub(crate) fn place(&mut self, place: i64) -> Result<String> {
        let taken = place.unsigned_abs();
        if !self.places.contains(&taken) {
            if self.places.last().is_some_and(|&last| taken < last) {
                return Err(format!("the place {taken} is not above {:?}", self.places).into());
            }
            self.places.push(taken);
        }
        let number = self.places.iter().take_while(|&&known| known != taken).count() + 1;
        Ok(format!("{}p{number}", if place < 0 { "−" } else { "" }))
    }

    /// A token. One that is new must be above all before.
    pub(crate) fn token(&mut self, token: u64) -> Result<String> {
        if let Some((place, first)) =
            (1..).zip(&self.tokens).find(|&(_, &first)| first <= token && token - first < NEAR)
        {
            self.highest = self.highest.max(token);
            let after = token - first;
            return Ok(if after == 0 {
                format!("t{place}")
            } else {
                format!("t{place} + {after}")
            });
        }
        if token <= self.highest {
            return Err(format!("the token {token} is not above {}", self.highest).into());
        }
        self.tokens.push(token);
        self.highest = token;
        Ok(format!("t{}", self.tokens.len()))
    }
}

/// The client and the number in an owner's value.
fn parts(owner: &[u8]) -> Option<(String, String)> {
    let text = std::str::from_utf8(owner).ok()?;
    let mut parts = text.split(':').skip(1).map(str::to_owned);
    Some((parts.next()?, parts.next()?))
}

/// A time in seconds, rounded up: what is left of it was whole a moment ago.
pub(crate) fn seconds(millis: i64) -> String {
    format!("{} s", (millis + 999).div_euclid(1000))
}

/// The bytes of a string.
pub(crate) fn bytes(value: &Value) -> Result<&[u8]> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        Value::SimpleString(text) => Ok(text.as_bytes()),
        other => Err(format!("no string: {other:?}").into()),
    }
}

/// A whole number.
pub(crate) fn number(value: &Value) -> Result<i64> {
    match value {
        Value::Int(number) => Ok(*number),
        other => Err(format!("no number: {other:?}").into()),
    }
}
