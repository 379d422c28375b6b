//! A server whose memory is full (rules 16, 41).

use ::redis::Value;

use crate::lab::{on_both, permits, reader, upgradable, writer};
use crate::request::{ALL, Become, Mode, Reply};

#[test]
pub(crate) fn newcomer_is_refused_when_memory_is_full() {
    on_both(2, |lab| {
        lab.take(permits(0, 1));
        lab.fill(true);
        for mode in [Mode::Try, Mode::Join] {
            assert_eq!(lab.acquire(permits(1, 1), mode), Reply::Refused, "{mode:?}");
            assert_eq!(lab.acquire(permits(1, 2), Mode::Join), Reply::Refused, "in the line");
        }
        assert_eq!((lab.waiting(), lab.content().used), (0, 1));
        lab.fill(false);
        lab.take(permits(1, 1));
    });
}

#[test]
pub(crate) fn release_hands_over_when_memory_is_full() {
    on_both(2, |lab| {
        lab.take(permits(0, 2));
        lab.wait(permits(1, 1));
        lab.wait(permits(2, 1));
        lab.messages();
        lab.fill(true);
        assert_eq!(lab.release(permits(0, 2)), Reply::Done(0));
        assert_eq!(lab.granted(), [(1, 1), (2, 1)]);
        assert_eq!(lab.release(permits(1, 1)), Reply::Done(0));
        assert_eq!(lab.content().used, 1);
        lab.fill(false);
    });
}

#[test]
pub(crate) fn leave_that_passes_over_the_dead_works_when_memory_is_full() {
    on_both(2, |lab| {
        lab.take(permits(0, 1));
        lab.wait(permits(1, 2));
        lab.wait(permits(2, 2));
        lab.wait(permits(3, 1));
        lab.kill(permits(1, 2));
        lab.messages();
        lab.fill(true);
        assert_eq!(lab.release(permits(2, 2)), Reply::NotHeld);
        assert_eq!(lab.granted(), [(3, 1)]);
        lab.fill(false);
    });
}

#[test]
pub(crate) fn renewal_works_when_memory_is_full() {
    on_both(2, |lab| {
        lab.take(permits(0, 1));
        let ends = lab.content().holders[0].ends;
        lab.fill(true);
        assert_eq!(lab.renew(permits(0, 1)), Reply::Done(0));
        assert!(lab.content().holders[0].ends > ends);
        lab.fill(false);
    });
}

/// Rule 42.
#[test]
pub(crate) fn transaction_is_whole_when_memory_is_full() {
    const GROWS: &str = "memory 3 SET y 2";
    const FREES: &str = "write 2 DEL z";
    on_both(ALL, |lab| {
        lab.take(reader(0));
        for key in ["y", "z"] {
            lab.ask(&["SET", key, "1"]);
        }
        lab.fill(true);
        let before = lab.content();
        for commands in [[GROWS, FREES], [FREES, GROWS]] {
            let refusal = lab.transact(reader(0), &commands.join(" ")).expect_err("a refusal");
            assert!(refusal.starts_with("OOM ") && refusal.contains("for SET of"), "{refusal}");
            assert_eq!(lab.ask(&["EXISTS", "y", "z"]), Value::Int(2), "{commands:?}");
        }
        let applied = lab.transact(reader(0), &[FREES, "nothing 2 GET z"].join(" "));
        assert_eq!(applied, Ok(Value::Array(vec![Value::Int(1), Value::Nil])));
        assert_eq!(lab.content().holders, before.holders);
        lab.fill(false);
        let applied = lab.transact(reader(0), GROWS);
        assert_eq!(applied, Ok(Value::Array(vec![Value::Okay])));
        assert_eq!(lab.ask(&["GET", "y"]), Value::BulkString(b"2".to_vec()));
    });
}

#[test]
pub(crate) fn beat_is_served_when_memory_is_full() {
    on_both(2, |lab| {
        lab.take(permits(0, 1));
        lab.wait(permits(1, 2));
        lab.wait(permits(2, 1));
        lab.kill(permits(1, 2));
        lab.fill(true);
        assert!(matches!(lab.acquire(permits(2, 1), Mode::Beat), Reply::Granted { .. }));
        lab.fill(false);
    });
}

/// It was granted by a message that was lost.
#[test]
pub(crate) fn repeated_request_is_granted_when_memory_is_full() {
    on_both(2, |lab| {
        lab.take(permits(0, 2));
        lab.fill(true);
        for mode in [Mode::Join, Mode::Beat] {
            assert!(matches!(lab.acquire(permits(0, 2), mode), Reply::Granted { .. }), "{mode:?}");
        }
        lab.fill(false);
    });
}

#[test]
pub(crate) fn changes_work_when_memory_is_full() {
    on_both(ALL, |lab| {
        lab.take(writer(0));
        lab.fill(true);
        assert!(matches!(lab.change(writer(0), 1, Become::Upgradable), Reply::Changed { .. }));
        assert!(matches!(
            lab.change(writer(0), 2, Become::Writer),
            Reply::Changed { token: 1.., .. }
        ));
        assert!(matches!(lab.change(writer(0), 3, Become::Reader), Reply::Changed { .. }));
        lab.fill(false);
        lab.take(upgradable(1));
        lab.take(reader(2));
        lab.fill(true);
        assert!(matches!(lab.change(upgradable(1), 1, Become::Writer), Reply::Busy { .. }));
        lab.messages();
        lab.release(writer(0));
        lab.release(reader(2));
        assert_eq!(lab.granted(), [(1, 1)]);
        lab.fill(false);
    });
}

#[test]
pub(crate) fn resize_and_force_work_when_memory_is_full() {
    on_both(2, |lab| {
        lab.take(permits(0, 2));
        lab.wait(permits(1, 1));
        lab.wait(permits(2, 2));
        lab.messages();
        lab.fill(true);
        assert_eq!(lab.resize(3), Reply::Done(0));
        assert_eq!(lab.granted(), [(1, 1)]);
        assert_eq!(lab.force(permits(0, 2)), Reply::Done(0));
        assert_eq!(lab.granted(), [(2, 1)]);
        lab.fill(false);
    });
}
