//! Ticks and the tokens of the explorer, as milliseconds and microseconds of the server.
//!
//! A tick is a second, a usual heartbeat, so that the minute in `line.lua` is sixty ticks. Tokens
//! are microseconds, and a tick has more of them than any search could use up. For tokens that run
//! ahead of the clock, two neighbours are further apart here: `tokens_per_tick` of them last a
//! tick.
//!
//! The server's clock is as far on as a real one (`Setting::epoch`), since a script writes great
//! numbers in another way than small ones. It is read at whole ticks only, and all spans are whole
//! ticks. What a script makes of them must be so too: anything else is an error in the script, and
//! is not rounded away.

use crate::protocol::{Time, Token};
use crate::scenario::Setting;

const TICK_MILLIS: i64 = 1_000;
const TICK_MICROS: i64 = 1_000 * TICK_MILLIS;

/// A span in milliseconds.
pub(crate) fn millis(ticks: Time) -> i64 {
    i64::from(ticks) * TICK_MILLIS
}

/// A span in microseconds.
pub(crate) fn micros(ticks: Time) -> i64 {
    i64::from(ticks) * TICK_MICROS
}

/// A span that a script was given, or has written.
pub(crate) fn ticks_of_millis(millis: i64) -> Time {
    whole(millis, TICK_MILLIS)
}

/// The server's time at a moment, in microseconds.
pub(crate) fn micros_at(now: Time, setting: &Setting) -> i64 {
    setting.epoch + micros(now)
}

/// The server's time at a moment, in milliseconds, by which keys end.
pub(crate) fn millis_at(now: Time, setting: &Setting) -> i64 {
    setting.epoch / 1_000 + millis(now)
}

pub(crate) fn moment_of_micros(micros: i64, setting: &Setting) -> Time {
    whole(micros - setting.epoch, TICK_MICROS)
}

pub(crate) fn moment_of_millis(millis: i64, setting: &Setting) -> Time {
    whole(millis - setting.epoch / 1_000, TICK_MILLIS)
}

fn whole(number: i64, tick: i64) -> Time {
    assert!(number % tick == 0, "{number}/{tick} of a tick");
    Time::try_from(number / tick).expect("not so many ticks")
}

/// How many microseconds a token is above the one before.
pub(crate) fn step(setting: &Setting) -> i64 {
    TICK_MICROS / setting.tokens_per_tick
}

pub(crate) fn micros_of_token(token: Token, setting: &Setting) -> i64 {
    setting.epoch + token * step(setting)
}

pub(crate) fn token_of_micros(micros: i64, setting: &Setting) -> Token {
    let above = micros - setting.epoch;
    assert!(above % step(setting) == 0, "{micros} µs are no token");
    above / step(setting)
}

/// The place of a waiter, which counts from one; below zero that of one who was passed over.
pub(crate) fn place_of_micros(place: i64, setting: &Setting) -> Time {
    let ordinal = token_of_micros(place.abs(), setting) + 1;
    Time::try_from(ordinal * place.signum()).expect("not so many places")
}
