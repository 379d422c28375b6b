//! A read-write lock: read and written, upgraded and downgraded.

use leasehold::{ReadGuard, Result, UpgradableReadGuard, WriteGuard};
use leasehold_support::history::now;

use crate::worker::{Hold, Worker, after};

enum Held {
    Read(ReadGuard),
    Upgradable(UpgradableReadGuard),
    Write(WriteGuard),
}

pub(crate) fn turn(worker: &mut Worker<'_>, object: &str) {
    let options = worker.options();
    let lock = worker.client.locks().rw_lock_with(object, options).expect("valid settings");
    let wait = worker.wait();
    let nothing = format_args!("");
    let mut held = match worker.rng.u8(..5) {
        0..=2 => worker
            .acquire("read", object, nothing, || lock.try_read_for(wait), |_| String::new())
            .map(Held::Read),
        3 => worker
            .acquire(
                "upgradable",
                object,
                nothing,
                || lock.try_upgradable_read_for(wait),
                |_| String::new(),
            )
            .map(Held::Upgradable),
        _ => worker
            .acquire("write", object, nothing, || lock.try_write_for(wait), |_| String::new())
            .map(Held::Write),
    };
    while let Some(it) = held {
        held = match it {
            Held::Read(guard) => leave(worker, object, guard),
            Held::Upgradable(guard) => {
                worker.stay(object, &guard);
                if worker.rng.u8(..4) > 0 {
                    upgrade(worker, object, guard)
                } else {
                    leave(worker, object, guard)
                }
            }
            Held::Write(guard) => {
                worker.change(object, guard.fencing_token().get());
                worker.stay(object, &guard);
                if worker.rng.bool() && guard.is_valid() {
                    downgrade(worker, object, guard)
                } else {
                    leave(worker, object, guard)
                }
            }
        };
    }
}

fn leave(worker: &mut Worker<'_>, object: &str, hold: impl Hold) -> Option<Held> {
    worker.stay(object, &hold);
    worker.release("release", object, hold);
    None
}

/// The end of a change: it is one lease, so what is valid now was valid all the time.
fn changed(worker: &Worker<'_>, op: &str, object: &str, invoked: u64, hold: &impl Hold, to: &str) {
    let (at, remaining) = (now(), hold.remaining());
    let until = if remaining.is_zero() { invoked } else { after(at, remaining) };
    let token = hold.token();
    worker.line(at, "ok", op, object, format_args!(" token={token} until={until}{to}"));
}

fn upgrade(worker: &mut Worker<'_>, object: &str, guard: UpgradableReadGuard) -> Option<Held> {
    let (way, wait) = (worker.rng.u8(..3), worker.wait());
    let invoked = now();
    worker.leaving("upgrade", object, format_args!(""), &guard);
    let upgraded = match way {
        0 => UpgradableReadGuard::upgrade(guard).map(Ok),
        _ => UpgradableReadGuard::try_upgrade_for(guard, wait),
    };
    match upgraded {
        Ok(Ok(guard)) => {
            changed(worker, "upgrade", object, invoked, &guard, "");
            Some(Held::Write(guard))
        }
        Ok(Err(guard)) => {
            worker.line(now(), "no", "upgrade", object, format_args!(""));
            Some(Held::Upgradable(guard))
        }
        Err(_) => over(worker, "upgrade", object),
    }
}

/// It is a reader before Redis knows.
fn downgrade(worker: &mut Worker<'_>, object: &str, guard: WriteGuard) -> Option<Held> {
    let to_read = worker.rng.bool();
    let invoked = now();
    worker.leaving("downgrade", object, format_args!(""), &guard);
    let downgraded: Result<Held> = if to_read {
        WriteGuard::downgrade(guard).map(Held::Read)
    } else {
        WriteGuard::downgrade_to_upgradable(guard).map(Held::Upgradable)
    };
    match &downgraded {
        Ok(Held::Read(guard)) => changed(worker, "downgrade", object, invoked, guard, " to=read"),
        Ok(Held::Upgradable(guard)) => {
            changed(worker, "downgrade", object, invoked, guard, " to=upgradable");
        }
        Ok(Held::Write(_)) => unreachable!("it was lowered"),
        Err(_) => return over(worker, "downgrade", object),
    }
    downgraded.ok()
}

/// Somewhere within the call the hold was released.
fn over(worker: &Worker<'_>, op: &str, object: &str) -> Option<Held> {
    worker.line(now(), "unknown", op, object, format_args!(""));
    None
}
