//! The server's clock, seen from a client's, as `src/wire/server_clock.rs` has it.

use crate::protocol::{Time, Token};
use crate::scenario::Setting;

/// The server's time in the latest reply (rule 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reading {
    pub(crate) server: Time,
    pub(crate) sent: Time,
    pub(crate) received: Time,
}

impl Reading {
    /// The server's time that is surely reached at a local moment. The allowance is never nothing,
    /// although it may be less than a tick.
    pub(crate) fn reached_at(&self, moment: Time, setting: &Setting) -> Token {
        let ahead = moment - self.received;
        setting.micros(self.server + ahead - setting.allowance) - 1
    }

    /// The local moment of which the server's time is surely not before (rule 10).
    pub(crate) fn not_before(&self, server: Time, local: Time, setting: &Setting) -> Option<Time> {
        if local - self.received > 2 * setting.heartbeat {
            return None;
        }
        let apart = (server - self.server).abs();
        let start = if server >= self.server {
            self.sent + (apart - setting.allowance).max(0)
        } else {
            self.sent - apart - setting.allowance
        };
        (start <= local).then_some(start)
    }
}
