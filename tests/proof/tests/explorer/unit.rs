//! Ticks and the tokens of the explorer, as milliseconds and microseconds of the server.
//!
//! A tick is a second, a usual heartbeat, so that the minute in `queue.lua` is sixty ticks. Tokens are
//! microseconds, and a tick has more of them than any search could use up. For tokens that run ahead of the
//! clock, two neighbours are further apart here: `tokens_per_tick` of them last a tick.

use crate::protocol::{Time, Token};
use crate::scenario::Setting;

const TICK_MILLIS: i64 = 1_000;
const TICK_MICROS: i64 = 1_000 * TICK_MILLIS;

pub(crate) fn millis(ticks: Time) -> i64 {
    i64::from(ticks) * TICK_MILLIS
}

pub(crate) fn micros(ticks: Time) -> i64 {
    i64::from(ticks) * TICK_MICROS
}

/// The first tick that is not before this many milliseconds.
pub(crate) fn ticks_of_millis(millis: i64) -> Time {
    ticks(millis.div_euclid(TICK_MILLIS) + i64::from(millis.rem_euclid(TICK_MILLIS) > 0))
}

/// The server reads its clock at whole ticks only.
pub(crate) fn ticks_of_micros(micros: i64) -> Time {
    assert_eq!(micros % TICK_MICROS, 0, "{micros} µs are no whole ticks");
    ticks(micros / TICK_MICROS)
}

fn ticks(number: i64) -> Time {
    Time::try_from(number).expect("not so many ticks")
}

/// How many microseconds a token is above the one before.
pub(crate) fn step(setting: &Setting) -> i64 {
    TICK_MICROS / setting.tokens_per_tick
}

pub(crate) fn micros_of_token(token: Token, setting: &Setting) -> i64 {
    token * step(setting)
}

pub(crate) fn token_of_micros(micros: i64, setting: &Setting) -> Token {
    assert_eq!(micros % step(setting), 0, "{micros} µs are no token");
    micros / step(setting)
}
