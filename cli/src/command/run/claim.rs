//! What a run holds, so that the guardian can give it back when the wrapper is dead.

use std::time::Duration;

use leasehold::LockClient;

use super::clock::Moment;
use super::report::News;
use crate::connection::ConnectionArguments;
use crate::failure::Failure;
use crate::kind::Kind;

/// How long the guardian tries. Others may have the lock when its lease ends, in any case.
const LONGEST: Duration = Duration::from_secs(5);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// This many bytes of an owner's value go with each message.
const PART: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) kind: Kind,
    /// The owner's value in Redis.
    pub(crate) owner: Vec<u8>,
}

impl Claim {
    /// The messages that tell of it.
    pub(crate) fn news(&self) -> impl Iterator<Item = News> {
        let length = u64::try_from(self.owner.len()).unwrap_or(0);
        let parts = self.owner.chunks(PART).map(|chunk| {
            let mut part = [0; PART];
            part[..chunk.len()].copy_from_slice(chunk);
            News::Owner(part)
        });
        std::iter::once(News::Claim { kind: self.kind, length }).chain(parts)
    }

    /// Gives it back, as far as that is possible until then.
    pub(crate) fn release(
        &self,
        connection: &ConnectionArguments,
        url: &str,
        name: &[u8],
        valid_until: Moment,
    ) {
        let end = Moment::now().after(LONGEST).min(valid_until);
        loop {
            let left = end.since(Moment::now());
            if left.is_zero() || self.try_release(connection, url, name, left).is_ok() {
                return;
            }
            std::thread::sleep(PAUSE.min(left));
        }
    }

    fn try_release(
        &self,
        connection: &ConnectionArguments,
        url: &str,
        name: &[u8],
        left: Duration,
    ) -> Result<bool, Failure> {
        let timeout = connection.timeout().min(left);
        let builder = connection.builder_for(url)?.announce(false);
        let client = builder.connect_timeout(timeout).command_timeout(timeout).build()?;
        Ok(self.release_by(&client, name)?)
    }

    fn release_by(&self, client: &LockClient, name: &[u8]) -> leasehold::Result<bool> {
        match self.kind {
            Kind::Mutex => client.mutex(name)?.release_for(&self.owner),
            Kind::Reentrant => client.reentrant(name)?.release_for(&self.owner),
            Kind::Semaphore => client.semaphore(name, 1)?.release_for(&self.owner),
            Kind::ReadWrite => client.rw_lock(name)?.release_for(&self.owner),
            Kind::Election => client.election(name)?.release_for(&self.owner),
        }
    }
}

/// A claim, as far as its messages have come.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    begun: Option<(Kind, u64)>,
    owner: Vec<u8>,
}

impl Claims {
    pub(crate) fn hear(&mut self, news: &News) {
        match news {
            News::Claim { kind, length } => {
                (self.begun, self.owner) = (Some((*kind, *length)), Vec::new())
            }
            News::Owner(part) => self.owner.extend(part),
            _ => {}
        }
    }

    /// The claim, if it is there as a whole.
    pub(crate) fn whole(&self) -> Option<Claim> {
        let (kind, length) = self.begun?;
        let owner = self.owner.get(..usize::try_from(length).ok()?)?.to_vec();
        Some(Claim { kind, owner })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_arrives_whole_or_not_at_all() {
        for length in [0, 1, PART - 1, PART, PART + 1, 100] {
            let owner = (0..length).map(|byte| u8::try_from(byte).expect("small")).collect();
            let claim = Claim { kind: Kind::ReadWrite, owner };
            let news: Vec<News> = claim.news().collect();
            let mut heard = Claims::default();
            for (place, one) in news.iter().enumerate() {
                assert!(place == 0 || length > 0);
                heard.hear(&News::Awake);
                heard.hear(one);
                let expected = (place + 1 == news.len()).then(|| claim.clone());
                assert_eq!(heard.whole(), expected, "{length}");
            }
        }
        assert_eq!(Claims::default().whole(), None);
    }
}
