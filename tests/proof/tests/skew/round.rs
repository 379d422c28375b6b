//! Locks are taken, come to a server whose clock is ahead, and are asked for there.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use leasehold::{LeaseWatch, LockClient};

use crate::arena::Arena;
use crate::hold::{Form, Held, Kind};

/// What clients allow for by default where there are several servers.
const DEFAULT: Duration = Duration::from_millis(500);
/// A round in which the machine was too slow is repeated. So is one at twice the bound, until all is seen.
const ATTEMPTS: u32 = 20;
/// How long nobody waits for a lock that must be free by then.
const SOON: Duration = Duration::from_secs(60);
/// The rest of a long lease for which its holder is waited for.
const REST: Duration = Duration::from_secs(1);

/// One lock of a round.
struct Lock {
    kind: Kind,
    form: Form,
    name: String,
    held: Held,
}

/// What another client saw of a lock.
#[derive(Clone, Copy)]
struct Seen {
    kind: Kind,
    form: Form,
    /// For how long both relied on it; `None` if the other never got it.
    both: Option<Duration>,
    /// Whether the lock had a holder at the other server.
    came: bool,
}

/// All rounds of one way, and the rows that they add to the table.
pub(crate) fn rounds<A: Arena>(arena: &mut A, lease: Duration) {
    let bound = DEFAULT.min(lease / 10);
    println!("| it comes by | lease | ahead | both, in theory | seen |");
    for (word, ahead, is_within) in
        [("0.5", bound / 2, true), ("0.8", bound * 4 / 5, true), ("2", bound * 2, false)]
    {
        // What two clocks of different speeds may differ by covers a part of it too.
        let allowed = bound + lease / 100 + Duration::from_millis(2);
        let theory = ahead.saturating_sub(allowed);
        let most = observe(arena, lease, ahead, is_within);
        // A row for each form, in which the kinds stand side by side.
        for row in most.chunk_by(|one, other| one.1 == other.1) {
            let cell = |&(kind, _, both): &(Kind, Form, Duration)| format!("{kind:?} {both:.0?}");
            let cells: Vec<_> = row.iter().map(cell).collect();
            let (name, form, cells) = (A::NAME, row[0].1, cells.join(", "));
            println!("| {name} | {lease:?} {form} | {word} × {bound:?} | {theory:.0?} | {cells} |");
        }
        for (kind, form, both) in most {
            let is_right =
                expected::<A>(kind, form, is_within).is_none_or(|two| two != both.is_zero());
            assert!(is_right, "{kind:?} {form}, {word} × {bound:?}: both for {both:?}");
        }
    }
}

/// Whether two must be seen to hold it; `None` where that depends on when it is renewed.
fn expected<A: Arena>(kind: Kind, form: Form, is_within: bool) -> Option<bool> {
    if !is_within && form == Form::Renewed && !A::IS_FOLLOWED {
        return None;
    }
    let by_the_clock = !A::SENDS_WHAT_IS_LEFT || matches!(kind, Kind::Semaphore | Kind::Write);
    Some(!is_within && form != Form::Renewed && by_the_clock)
}

/// For how long two held each lock, at the most.
fn observe<A: Arena>(
    arena: &mut A,
    lease: Duration,
    ahead: Duration,
    is_within: bool,
) -> Vec<(Kind, Form, Duration)> {
    let mut most: Vec<(Kind, Form, Duration)> = Vec::new();
    for _ in 0..ATTEMPTS {
        let seen = round(arena, lease, ahead);
        for Seen { kind, form, both, came } in seen {
            let Some(both) = both.or((form == Form::Renewed).then_some(Duration::ZERO)) else {
                panic!("nobody got the {kind:?}, {form}")
            };
            // What had ended before it came says nothing.
            if !came && both.is_zero() {
                continue;
            }
            match most.iter_mut().find(|known| (known.0, known.1) == (kind, form)) {
                Some(known) => known.2 = known.2.max(both),
                None => most.push((kind, form, both)),
            }
        }
        let forms = if is_long(lease) { 2 } else { 3 };
        most.sort_by_key(|&(kind, form, _)| (form, kind));
        let all = most.len() == Kind::ALL.len() * forms;
        let shown = |&(kind, form, both): &(Kind, Form, Duration)| {
            expected::<A>(kind, form, is_within) != Some(true) || both > Duration::ZERO
        };
        if all && most.iter().all(shown) {
            return most;
        }
    }
    assert!(!most.is_empty(), "the machine was too slow, {ATTEMPTS} times");
    most
}

/// Nobody waits for the end of such a lease.
fn is_long(lease: Duration) -> bool {
    lease > Duration::from_secs(10)
}

fn round<A: Arena>(arena: &mut A, lease: Duration, ahead: Duration) -> Vec<Seen> {
    let prefix = arena.prepare(ahead);
    let holder = arena.holder();
    // A grant may come when its lease is over: the machine stood still, and this round says nothing.
    let take = |form: Form| -> Option<Vec<Lock>> {
        let take = |kind: Kind| {
            let name = format!("{prefix}{kind:?}-{form:?}");
            let held = kind.take(&holder, &name, form.options(lease));
            let held = held.map_err(|error| assert!(error.is_timeout(), "{error}")).ok()?;
            Some(Lock { kind, form, name, held: held.expect("it is free") })
        };
        Kind::ALL.into_iter().map(take).collect()
    };
    let Some(mut locks) = take(Form::RenewedOnce) else { return Vec::new() };
    let before: Vec<Duration> = locks.iter().map(|lock| lock.held.watch.remaining()).collect();
    // A renewal is due after a third of the lease.
    sleep(lease / 3 - lease / 20);
    let begin = Instant::now();
    while locks.iter().zip(&before).any(|(lock, &before)| {
        let left = lock.held.watch.remaining();
        left + lease / 6 < before && !left.is_zero()
    }) {
        assert!(begin.elapsed() < SOON, "no renewal");
        sleep(Duration::from_millis(1));
    }
    let forms: &[Form] =
        if is_long(lease) { &[Form::Fixed] } else { &[Form::Fixed, Form::Renewed] };
    for &form in forms {
        let Some(more) = take(form) else { return Vec::new() };
        locks.extend(more);
    }
    if !arena.bring() {
        return Vec::new();
    }

    // Of a long lease a part is skipped: the server's clock is put forward, and so would be the holder's.
    let skipped = if is_long(lease) {
        let least = locks.iter().map(|lock| lock.held.watch.remaining()).min();
        least.unwrap_or_default().saturating_sub(REST)
    } else {
        Duration::ZERO
    };
    let rival = arena.rival();
    let cut_off = locks.iter().filter(|lock| lock.form != Form::Renewed).count();
    let waited_for = AtomicUsize::new(cut_off);
    let (rival, waited_for) = (&rival, &waited_for);
    thread::scope(|scope| {
        let asking: Vec<_> = locks
            .iter()
            .map(|lock| {
                let Lock { kind, form, ref name, ref held } = *lock;
                let (name, watch) = (name.clone(), held.watch.clone());
                scope.spawn(move || {
                    let ask = Asking { rival, kind, form, name, watch, lease, skipped };
                    ask.until_it_is_had(waited_for)
                })
            })
            .collect();
        arena.put_forward(ahead + skipped);
        asking.into_iter().map(|asking| asking.join().expect("it asked")).collect()
    })
}

/// A client that asks for a lock at the other server.
struct Asking<'a> {
    rival: &'a LockClient,
    kind: Kind,
    form: Form,
    name: String,
    watch: LeaseWatch,
    lease: Duration,
    skipped: Duration,
}

impl Asking<'_> {
    /// A lock that is renewed is asked for until the others were had.
    fn until_it_is_had(self, waited_for: &AtomicUsize) -> Seen {
        let Asking { rival, kind, form, name, watch, lease, skipped } = self;
        let (begin, mut came) = (Instant::now(), false);
        let is_awaited = form != Form::Renewed;
        loop {
            let outcome = kind.take(rival, &name, Form::Fixed.options(lease));
            // Read after the grant: a slow machine makes it less.
            let left = watch.remaining();
            if let Ok(Some(_held)) = outcome {
                waited_for.fetch_sub(usize::from(is_awaited), Ordering::SeqCst);
                return Seen { kind, form, both: Some(left.saturating_sub(skipped)), came };
            }
            came |= outcome.is_ok() && !left.is_zero();
            let is_over = !is_awaited && waited_for.load(Ordering::SeqCst) == 0;
            if is_over || begin.elapsed() > SOON {
                return Seen { kind, form, both: None, came };
            }
            sleep(Duration::from_millis(1));
        }
    }
}
