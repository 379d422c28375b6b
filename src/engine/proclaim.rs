//! The word of a leader.

use crate::base::error::{Error, Result};
use crate::engine::holding::Holding;
use crate::engine::ownership::taken_by_wrong_type;
use crate::protocol::request::ProclaimRequest;

/// The longest word, in bytes. Each look of each observer carries it.
const LONGEST_WORD: usize = 4_096;

impl Holding {
    /// Says a word, if this hold still leads.
    pub(crate) fn proclaim(&self, word: &[u8], number: u64) -> Result<()> {
        self.proclaim_inner(word, number).map_err(|error| error.of(self.name()))
    }

    fn proclaim_inner(&self, word: &[u8], number: u64) -> Result<()> {
        if word.len() > LONGEST_WORD {
            let wrong = format_args!("{} bytes are too many", word.len());
            return Err(Error::config("value", wrong, format_args!("at most {LONGEST_WORD}")));
        }
        self.make_valid()?;
        let value = &self.hold.lease.value;
        let request = ProclaimRequest {
            owner: &value.bytes,
            ttl: value.key_ttl(),
            term: self.hold.token().get(),
            number,
            word,
        };
        let target = self.slot.target();
        let outcome = self
            .context()
            .ask(|it, deadline| it.server()?.proclaim(target, &request, deadline))
            .or_else(taken_by_wrong_type);
        match outcome {
            Ok(ownership) => self.check_ownership(ownership),
            Err(failure) if failure.is_unknown() => {
                Err(Error::from(failure).with_consequence("saying it again is safe"))
            }
            Err(failure) => Err(failure.into()),
        }
    }
}
