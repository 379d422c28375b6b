//! The processes of a round, each of this tree or of the older one, which contend for one lock.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use leasehold_support::{Child, Server};
use redis::Connection;

use crate::belief::{self, Hold};
use crate::holder::NAME;

/// How long something may take that is sure to happen.
pub(crate) const SOON: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(1);

/// Whose process it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    Older,
    /// With a tail of so many milliseconds.
    Newer(u64),
}

pub(crate) struct Player {
    pub(crate) child: Child,
    record: PathBuf,
}

/// One lock, and those who contend for it.
pub(crate) struct Round<'a> {
    pub(crate) name: String,
    pub(crate) server: &'a Server,
    older: &'a Path,
    connection: Connection,
    pub(crate) players: Vec<Player>,
    pub(crate) ages: Vec<Age>,
}

impl<'a> Round<'a> {
    pub(crate) fn start(server: &'a Server, older: &'a Path, name: &str, ages: &[Age]) -> Self {
        let connection = server.connection();
        let (players, name) = (Vec::new(), name.to_owned());
        let mut round = Round { name, server, older, connection, players, ages: Vec::new() };
        ages.iter().for_each(|&age| round.join(age));
        round
    }

    /// Another process.
    pub(crate) fn join(&mut self, age: Age) {
        let file = format!("record-{}-{}", self.name, self.players.len());
        let record = self.server.directory().join(file);
        let builder = Child::role("contends")
            .env("LEASEHOLD_URL", self.server.url())
            .env("LEASEHOLD_RECORD", &record)
            .env(NAME, &self.name);
        let builder = match age {
            Age::Older => builder.program(self.older),
            Age::Newer(tail) => builder.test(crate::TEST).env(crate::TAIL, tail.to_string()),
        };
        let mut child = builder.start().expect("a process");
        child.expect_line("ready", SOON);
        self.players.push(Player { child, record });
        self.ages.push(age);
    }

    /// The value of the owner, if it is of this player.
    pub(crate) fn owned_by(&mut self, player: usize) -> Option<String> {
        let value: Option<String> =
            redis::cmd("GET").arg(&self.name).query(&mut self.connection).ok()?;
        value.filter(|value| self.is_of(player, value))
    }

    fn is_of(&self, player: usize, value: &str) -> bool {
        value.contains(&format!(":{}:", self.players[player].child.pid()))
    }

    fn waits(&mut self, player: usize) -> bool {
        let line: Vec<String> = redis::cmd("ZRANGE")
            .arg(format!("{{{}}}:queue", self.name))
            .arg(0)
            .arg(-1)
            .query(&mut self.connection)
            .unwrap_or_default();
        line.iter().any(|value| self.is_of(player, value))
    }

    /// How long the key of the lock lives, in ms.
    pub(crate) fn time_to_live(&mut self) -> Option<u64> {
        let left: i64 = redis::cmd("PTTL").arg(&self.name).query(&mut self.connection).ok()?;
        u64::try_from(left).ok()
    }

    /// Waits until this is so.
    pub(crate) fn until<T>(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        let begin = Instant::now();
        loop {
            if let Some(found) = is_so(self) {
                return found;
            }
            assert!(begin.elapsed() < SOON, "{}: {what}, and that did not happen", self.name);
            sleep(POLL);
        }
    }

    pub(crate) fn until_owned_by(&mut self, player: usize) {
        self.until("another is to have it", |round| round.owned_by(player));
    }

    /// Stops a process while it has the lock, relies on it, and does not release it.
    pub(crate) fn stop_owner(&mut self, player: usize) {
        self.until("it is stopped while it has the lock", |round| {
            let owner = round.owned_by(player)?;
            round.players[player].child.stop();
            let is_at_work = round.holds(player).last().is_some_and(|hold| !hold.is_over);
            if is_at_work && round.owned_by(player) == Some(owner) {
                return Some(());
            }
            round.players[player].child.cont();
            None
        });
    }

    /// Stops a process while it waits for the lock, and another has that.
    pub(crate) fn stop_waiter(&mut self, player: usize, owner: usize) {
        self.until("it is stopped while it waits", |round| {
            round.owned_by(owner).filter(|_| round.waits(player))?;
            round.players[player].child.stop();
            if round.owned_by(owner).is_some() && round.waits(player) {
                return Some(());
            }
            round.players[player].child.cont();
            None
        });
    }

    /// The holds of a player so far.
    pub(crate) fn holds(&self, player: usize) -> Vec<Hold> {
        let text = fs::read_to_string(&self.players[player].record).unwrap_or_default();
        belief::read(player, &text)
    }

    pub(crate) fn holds_of_all(&self) -> Vec<Hold> {
        (0..self.players.len()).flat_map(|player| self.holds(player)).collect()
    }
}
