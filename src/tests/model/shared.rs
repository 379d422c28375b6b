//! The read-write lock of the clients, whose guards are of three types.

use crate::base::error::Result;
use crate::base::option::LockOptions;
use crate::base::share::Access;
use crate::client::LockClient;
use crate::kind::{ReadGuard, RwLock, UpgradableReadGuard, WriteGuard};
use crate::tests::model::reference::Act;
use crate::tests::model::setting::{Expected, ms};

/// Its name.
pub(super) const KEY: &str = "read-write";

/// A guard.
enum Taken {
    Read(ReadGuard),
    Upgradable(UpgradableReadGuard),
    Write(WriteGuard),
}

/// Does the same with each type of guard.
macro_rules! each {
    ($taken:expr, $guard:ident => $what:expr) => {
        match $taken {
            Taken::Read($guard) => $what,
            Taken::Upgradable($guard) => $what,
            Taken::Write($guard) => $what,
        }
    };
}

/// What one client has of it.
struct Place {
    lock: RwLock,
    guards: Vec<Taken>,
    /// Its entry was taken away since it was granted.
    dispossessed: bool,
}

/// The lock of all clients.
pub(super) struct Shared {
    places: Vec<Place>,
    /// The greatest token of a writer, and of anybody.
    tokens: [u64; 2],
}

impl Shared {
    pub(super) fn new<'a>(clients: impl Iterator<Item = (&'a LockClient, LockOptions)>) -> Shared {
        let place = |(client, options): (&LockClient, _)| {
            let lock = client.rw_lock_with(KEY, options).unwrap();
            Place { lock, guards: Vec::new(), dispossessed: false }
        };
        Shared { places: clients.map(place).collect(), tokens: [0; 2] }
    }

    pub(super) fn act(&mut self, client: usize, act: Act) -> Expected {
        let Place { guards, lock, .. } = &mut self.places[client];
        let outcome = match act {
            Act::Enter(access) => {
                let taken = match access {
                    Access::Read => lock.try_read().map(|it| it.map(Taken::Read)),
                    Access::UpgradableRead => {
                        lock.try_upgradable_read().map(|it| it.map(Taken::Upgradable))
                    }
                    Access::Write => lock.try_write().map(|it| it.map(Taken::Write)),
                };
                taken.map(|taken| self.took(client, None, taken, access))
            }
            Act::Release => match guards.pop() {
                Some(taken) => each!(taken, it => it.release()).map(|()| Expected::Done),
                None => Ok(Expected::Any),
            },
            Act::Drop => {
                drop(guards.pop());
                Ok(Expected::Any)
            }
            Act::Extend(span) => match guards.last() {
                Some(taken) => each!(taken, it => it.extend(ms(span))).map(|()| Expected::Done),
                None => Ok(Expected::Any),
            },
            Act::Check => match guards.last() {
                Some(taken) => each!(taken, it => it.check()).map(|()| Expected::Done),
                None => Ok(Expected::Any),
            },
            Act::Upgrade => self.upgrade(client),
            Act::Downgrade(to) => self.downgrade(client, to),
            Act::Force => self.force(client).map(Expected::Was),
        };
        outcome.unwrap_or_else(|error| {
            if error.is_lost() {
                return Expected::Lost;
            }
            if error.is_config() {
                return Expected::Refused;
            }
            if error.is_unknown_outcome() {
                return Expected::Unknown;
            }
            assert!(error.is_unreachable(), "{error:?}");
            Expected::Any
        })
    }

    /// Notes what a client got, in this place among its guards or in the last one.
    fn took(
        &mut self,
        client: usize,
        at: Option<usize>,
        taken: Option<Taken>,
        access: Access,
    ) -> Expected {
        let Some(taken) = taken else { return Expected::Busy };
        let place = &mut self.places[client];
        let token = each!(&taken, it => it.fencing_token()).get();
        let [written, last] = &mut self.tokens;
        // One hold has one token, which an upgrade replaces.
        if place.guards.is_empty() {
            place.dispossessed &= at.is_some();
            let least = if access == Access::Write { *last } else { *written };
            assert!(token > least || place.dispossessed, "{token} of a {access} after {least}");
        }
        *last = token.max(*last);
        if access == Access::Write {
            *written = token.max(*written);
        }
        place.guards.insert(at.unwrap_or(place.guards.len()), taken);
        Expected::Granted
    }

    fn upgrade(&mut self, client: usize) -> Result<Expected> {
        let guards = &mut self.places[client].guards;
        let upgradable = |it: &Taken| matches!(it, Taken::Upgradable(_));
        let Some(at) = guards.iter().rposition(upgradable) else { return Ok(Expected::Any) };
        let Taken::Upgradable(guard) = guards.remove(at) else { unreachable!() };
        Ok(match UpgradableReadGuard::try_upgrade_for(guard, ms(0))? {
            Ok(guard) => self.took(client, Some(at), Some(Taken::Write(guard)), Access::Write),
            Err(guard) => {
                guards.insert(at, Taken::Upgradable(guard));
                Expected::Busy
            }
        })
    }

    fn downgrade(&mut self, client: usize, to: Access) -> Result<Expected> {
        let guards = &mut self.places[client].guards;
        let writes = |it: &Taken| matches!(it, Taken::Write(_));
        let Some(at) = guards.iter().rposition(writes) else { return Ok(Expected::Any) };
        let Taken::Write(guard) = guards.remove(at) else { unreachable!() };
        let taken = match to {
            Access::Read => Taken::Read(WriteGuard::downgrade(guard)?),
            _ => Taken::Upgradable(WriteGuard::downgrade_to_upgradable(guard)?),
        };
        guards.insert(at, taken);
        Ok(Expected::Done)
    }

    fn force(&mut self, client: usize) -> Result<bool> {
        self.dispossess();
        let lock = &self.places[client].lock;
        lock.holders()?.iter().try_fold(false, |was, it| Ok(lock.force_release(it)? || was))
    }

    /// The key is about to be taken away.
    pub(super) fn dispossess(&mut self) {
        self.places.iter_mut().for_each(|place| place.dispossessed = true);
    }

    /// Drops all guards.
    pub(super) fn clear(&mut self) {
        self.places.iter_mut().for_each(|place| place.guards.clear());
    }

    /// Whether a client has a hold that is valid, and how many guards.
    pub(super) fn hold(&self, client: usize) -> (bool, usize) {
        let guards = &self.places[client].guards;
        (guards.last().is_some_and(|taken| each!(taken, it => it.is_valid())), guards.len())
    }

    /// No writer is valid beside anybody, and no upgradable reader beside another, in several clients.
    pub(super) fn check(&self) {
        let greatest = |(client, place): (usize, &Place)| {
            let valid = place.guards.iter().filter(|taken| each!(taken, it => it.is_valid()));
            let access = valid.map(|taken| match taken {
                Taken::Read(_) => Access::Read,
                Taken::Upgradable(_) => Access::UpgradableRead,
                Taken::Write(_) => Access::Write,
            });
            Some((client, access.max()?)).filter(|_| !place.dispossessed)
        };
        let held: Vec<_> = self.places.iter().enumerate().filter_map(greatest).collect();
        let alone = held.iter().filter(|(_, access)| *access == Access::Write).count();
        let greater = held.iter().filter(|(_, access)| *access > Access::Read).count();
        assert!(alone == 0 || held.len() == 1, "clients {held:?} hold {KEY} at a time");
        assert!(greater < 2, "clients {held:?} hold {KEY} at a time");
    }
}
