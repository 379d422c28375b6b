//! What several servers say, once.

use std::collections::HashSet;
use std::time::Duration;

use crate::base::sync::Mutex;
use crate::base::time::Moment;

/// What is said again within this time is an echo, and may be taken for one for twice as long: until then
/// whoever was told to ask again, or that somebody waits, has not forgotten.
const ECHO: Duration = Duration::from_secs(1);

/// What was said in the last while.
#[derive(Debug, Default)]
pub(crate) struct Echoes(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    lately: HashSet<Vec<u8>>,
    before: HashSet<Vec<u8>>,
    /// When `lately` becomes `before`.
    over: Moment,
}

impl Echoes {
    /// Whether nobody has said this yet.
    pub(crate) fn is_first(&self, payload: &[u8], now: Moment) -> bool {
        let said = &mut *self.0.lock();
        if said.over <= now {
            said.before = std::mem::take(&mut said.lately);
            said.over = said.over.after(ECHO);
            if said.over <= now {
                said.before.clear();
                said.over = now.after(ECHO);
            }
        }
        !said.before.contains(payload) && said.lately.insert(payload.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_again_soon_is_an_echo() {
        let (echoes, begin) = (Echoes::default(), Moment::PAST.after(Duration::from_secs(100)));
        let at = |seconds: f64| begin.after(Duration::from_secs_f64(seconds));
        assert!(echoes.is_first(b"a", at(0.0)));
        assert!(echoes.is_first(b"b", at(0.9)));
        assert!(!echoes.is_first(b"a", at(0.9)));
        assert!(!echoes.is_first(b"b", at(1.8)));
        assert!(echoes.is_first(b"a", at(2.0)), "over twice as long as an echo is expected");
        assert!(echoes.is_first(b"b", at(3.1)));
        assert!(!echoes.is_first(b"a", at(3.2)));
        assert!(echoes.is_first(b"a", at(4.1)));
        assert!(echoes.is_first(b"a", at(9.0)));
    }
}
