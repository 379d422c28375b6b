//! Changes of weight: downgrade, upgrade and what becomes of it.

use crate::lab::{Lab, on_both, reader, upgradable, writer};
use crate::request::{ALL, Become, Message, Mode, Reply, Says, UPGRADABLE};

fn weight(lab: &mut Lab, attempt: crate::request::Attempt) -> u64 {
    lab.content().holder(attempt).map_or(0, |holder| holder.weight)
}

#[test]
pub(crate) fn downgrade_lets_the_readers_at_the_head_in() {
    on_both(ALL, |lab| {
        lab.take(writer(0));
        lab.wait(reader(1));
        lab.wait(upgradable(2));
        lab.wait(writer(3));
        lab.messages();
        assert_eq!(
            lab.change(writer(0), 1, Become::Upgradable),
            Reply::Changed { token: 0, waiters: 2 }
        );
        assert_eq!(lab.granted(), [(1, 1)], "there is one upgradable reader");
        assert_eq!(
            lab.change(writer(0), 2, Become::Reader),
            Reply::Changed { token: 0, waiters: 1 }
        );
        assert_eq!(lab.granted(), [(2, 1)]);
        assert_eq!(weight(lab, writer(0)), 1);
        assert_eq!(lab.release(writer(0)), Reply::Done(0));
        assert_eq!(lab.content().used, UPGRADABLE + 1);
    });
}

/// Rule 37.
#[test]
pub(crate) fn upgrade_waits_for_the_readers_before_everybody() {
    on_both(ALL, |lab| {
        let (token, _) = lab.take(upgradable(0));
        lab.take(reader(1));
        lab.wait(writer(2));
        assert!(matches!(lab.change(upgradable(0), 1, Become::Writer), Reply::Busy { .. }));
        lab.wait(reader(3));
        assert!(matches!(lab.acquire(reader(4), Mode::Try), Reply::Busy { .. }));
        lab.messages();
        lab.release(reader(1));
        let [
            Message {
                client: 0, says: Says::Upgraded { token: new, change: 1, waiters: 2 }, ..
            },
        ] = lab.messages()[..]
        else {
            panic!("one message")
        };
        assert!(new > token);
        assert_eq!(weight(lab, upgradable(0)), ALL);
        lab.release(upgradable(0));
        assert_eq!(lab.granted(), [(2, 1)]);
    });
}

#[test]
pub(crate) fn upgrade_without_readers_is_immediate_and_has_a_new_token() {
    on_both(ALL, |lab| {
        let (first, _) = lab.take(upgradable(0));
        let Reply::Changed { token, waiters: 0 } = lab.change(upgradable(0), 1, Become::Writer)
        else {
            panic!("nobody reads")
        };
        assert!(token > first);
        // Asked again, by a request or while it believes to wait.
        for to in [Become::Writer, Become::StillWriter] {
            let Reply::Changed { token: again, .. } = lab.change(upgradable(0), 1, to) else {
                panic!("it is the writer")
            };
            assert!(again > first);
        }
        assert_eq!(weight(lab, upgradable(0)), ALL);
    });
}

/// Rule 35.
#[test]
pub(crate) fn late_upgrade_after_its_cancel_does_nothing() {
    on_both(ALL, |lab| {
        lab.take(upgradable(0));
        lab.take(reader(1));
        assert!(matches!(lab.change(upgradable(0), 1, Become::Writer), Reply::Busy { .. }));
        assert_eq!(
            lab.change(upgradable(0), 2, Become::Upgradable),
            Reply::Changed { token: 0, waiters: 0 }
        );
        assert_eq!(lab.change(upgradable(0), 1, Become::Writer), Reply::Stale);
        assert_eq!(lab.change(upgradable(0), 1, Become::StillWriter), Reply::Stale);
        assert_eq!(lab.waiting(), 0);
        lab.release(reader(1));
        assert_eq!(weight(lab, upgradable(0)), UPGRADABLE);
        assert_eq!(lab.granted(), []);
    });
}

/// Rule 35: the cancel of an upgrade that was granted meanwhile.
#[test]
pub(crate) fn cancel_makes_a_granted_upgrade_upgradable_again() {
    on_both(ALL, |lab| {
        lab.take(upgradable(0));
        lab.change(upgradable(0), 1, Become::Writer);
        assert!(matches!(
            lab.change(upgradable(0), 2, Become::Upgradable),
            Reply::Changed { token: 0, .. }
        ));
        assert_eq!(weight(lab, upgradable(0)), UPGRADABLE);
        lab.take(reader(1));
    });
}

/// Rule 35.
#[test]
pub(crate) fn doubled_downgrade_does_not_lower_a_later_writer() {
    on_both(ALL, |lab| {
        lab.take(writer(0));
        lab.change(writer(0), 1, Become::Upgradable);
        assert!(matches!(
            lab.change(writer(0), 2, Become::Writer),
            Reply::Changed { token: 1.., .. }
        ));
        assert_eq!(lab.change(writer(0), 1, Become::Upgradable), Reply::Stale);
        assert_eq!(weight(lab, writer(0)), ALL);
        // The latest one may be repeated.
        lab.change(writer(0), 3, Become::Reader);
        assert!(matches!(
            lab.change(writer(0), 3, Become::Reader),
            Reply::Changed { token: 0, .. }
        ));
        assert_eq!(weight(lab, writer(0)), 1);
    });
}

/// Rule 37.
#[test]
pub(crate) fn plain_reader_does_not_upgrade() {
    on_both(ALL, |lab| {
        lab.take(reader(0));
        lab.take(reader(1));
        assert_eq!(lab.change(reader(0), 1, Become::Writer), Reply::Stale);
        assert_eq!(lab.waiting(), 0);
    });
}

/// Rule 37: it falls back to what it was.
#[test]
pub(crate) fn dead_upgrade_lets_the_others_in() {
    on_both(ALL, |lab| {
        lab.take(upgradable(0));
        lab.take(reader(1));
        lab.change(upgradable(0), 1, Become::Writer);
        lab.wait(reader(2));
        lab.kill(upgradable(0));
        assert!(matches!(lab.acquire(reader(2), Mode::Beat), Reply::Granted { .. }));
        // Heard of again, it stands before everybody again.
        assert!(matches!(lab.change(upgradable(0), 1, Become::StillWriter), Reply::Busy { .. }));
        lab.wait(reader(3));
        lab.release(reader(1));
        lab.messages();
        lab.release(reader(2));
        assert_eq!(lab.granted(), [(0, 1)]);
    });
}

/// Rule 37: an upgrade does not outlive its holder.
#[test]
pub(crate) fn upgrade_ends_with_the_lease_of_its_holder() {
    on_both(ALL, |lab| {
        lab.take(upgradable(0));
        lab.take(reader(1));
        lab.change(upgradable(0), 1, Become::Writer);
        lab.wait(reader(2));
        lab.end(upgradable(0));
        assert!(matches!(lab.acquire(reader(2), Mode::Beat), Reply::Granted { .. }));
        assert_eq!(lab.waiting(), 0);
        assert_eq!(lab.change(upgradable(0), 1, Become::StillWriter), Reply::NotHeld);
        assert_eq!(lab.content().used, 2);
    });
}

/// Also one that was passed over.
#[test]
pub(crate) fn dead_upgrade_is_forgotten_with_its_holder() {
    on_both(ALL, |lab| {
        lab.take(upgradable(0));
        lab.take(reader(1));
        lab.change(upgradable(0), 1, Become::Writer);
        lab.kill(upgradable(0));
        lab.take(reader(2));
        assert_eq!(lab.waiting(), 1);
        lab.end(upgradable(0));
        lab.take(reader(3));
        assert_eq!(lab.waiting(), 0);
    });
}

#[test]
pub(crate) fn released_upgrade_leaves_nothing_behind() {
    on_both(ALL, |lab| {
        lab.take(upgradable(0));
        lab.take(reader(1));
        lab.change(upgradable(0), 1, Become::Writer);
        assert_eq!(lab.release(upgradable(0)), Reply::Done(0));
        assert_eq!((lab.waiting(), lab.content().used), (0, 1));
        lab.take(upgradable(2));
    });
}
