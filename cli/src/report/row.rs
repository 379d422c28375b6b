//! A lock as a row of a table.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::{Holder, Inspection, ListedLock};

use crate::kind::{Kind, word_of};
use crate::name::{Abridged, Shown};

/// A process: its host and its number there.
pub(crate) type Process = (String, u32);

/// A lock in use, as plain data: what is not known is `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) holder: String,
    pub(crate) held: Option<Duration>,
    /// Whether anybody holds it: only then a missing `ttl` means that it has no end.
    pub(crate) is_held: bool,
    pub(crate) ttl: Option<Duration>,
    /// Whether its lease is over, and the lock is free to the next client that asks.
    pub(crate) is_overdue: bool,
    pub(crate) token: Option<u64>,
    pub(crate) waiting: Option<usize>,
    pub(crate) longest: Option<Duration>,
    /// Whom those who wait, wait for in the end.
    pub(crate) blocker: String,
    /// The process whose lease ends first.
    pub(crate) process: Option<Process>,
    pub(crate) waiters: Vec<Process>,
    /// All that is known, for people.
    pub(crate) detail: String,
}

/// The rows of these locks, with the blocker of each.
pub(crate) fn rows(locks: &[ListedLock]) -> Vec<Row> {
    let mut rows: Vec<Row> = locks.iter().map(row).collect();
    name_blockers(&mut rows);
    rows
}

fn row(lock: &ListedLock) -> Row {
    let seen = lock.inspection();
    // For a lock that several hold: the holder that is to go first. A lease without an end goes last.
    let first = seen.holders().iter().min_by_key(|it| it.ttl().unwrap_or(Duration::MAX));
    let is_plain = Kind::of(lock) == Some(Kind::Mutex) && first.is_some_and(is_foreign);
    Row {
        name: Shown(lock.name()).to_string(),
        kind: if is_plain { "plain" } else { word_of(lock) },
        holder: first.map_or_else(String::new, |first| holders(first, seen)),
        held: seen.holders().iter().filter_map(Holder::since).max(),
        is_held: first.is_some(),
        ttl: first.and_then(Holder::ttl),
        is_overdue: first.is_some_and(|first| first.overdue().is_some()),
        token: first.and_then(Holder::token).map(|token| token.get()),
        waiting: seen.waiting().or_else(|| Some(seen.waiters().len()).filter(|&it| it > 0)),
        longest: seen.waiters().iter().filter_map(|waiter| waiter.since()).max(),
        blocker: String::new(),
        process: first.and_then(|first| process(first.host(), first.pid())),
        waiters: seen.waiters().iter().filter_map(|it| process(it.host(), it.pid())).collect(),
        detail: seen.to_string(),
    }
}

/// Whether another program wrote the owner's value.
pub(crate) fn is_foreign(holder: &Holder) -> bool {
    holder.host().is_none() && holder.pid().is_none()
}

fn process(host: Option<&str>, pid: Option<u32>) -> Option<Process> {
    Some((host?.to_owned(), pid?))
}

fn holders(first: &Holder, seen: &Inspection) -> String {
    let others = match seen.holders().len() {
        0 | 1 => String::new(),
        count => format!(" +{}", count - 1),
    };
    let name = match (first.pid(), first.host()) {
        (Some(pid), Some(host)) => format!("{pid}@{host}"),
        _ => first.to_string(),
    };
    let says = seen.word().map_or_else(String::new, |word| format!(" \"{}\"", Abridged(word)));
    match first.label() {
        Some(label) => format!("{label} {name}{others}{says}"),
        None => format!("{name}{others}{says}"),
    }
}

/// Follows each lock that is waited for from its holder to the lock that this process waits for itself, and so
/// on to the one that keeps all of them waiting.
///
/// A process is all that is known, and not its threads: one may wait while another works. So the chain is a hint.
fn name_blockers(rows: &mut [Row]) {
    let mut waits_at: HashMap<&Process, usize> = HashMap::new();
    for (at, row) in rows.iter().enumerate() {
        // A thread that waits for another thread of its process says nothing about that process.
        for waiter in row.waiters.iter().filter(|&waiter| row.process.as_ref() != Some(waiter)) {
            waits_at.entry(waiter).or_insert(at);
        }
    }
    let next = |at: usize| rows[at].process.as_ref().and_then(|process| waits_at.get(process));
    let blocker = |start: usize| {
        let mut path = vec![start];
        loop {
            let at = path[path.len() - 1];
            // A process that waits at its own lock waits for a thread of its own.
            let Some(&next) = next(at).filter(|&&next| next != at) else { break };
            if let Some(begin) = path.iter().position(|&seen| seen == next) {
                return circle(path[begin..].iter().map(|&at| rows[at].holder.as_str()));
            }
            path.push(next);
        }
        let end = path[path.len() - 1];
        match end == start {
            true => rows[end].holder.clone(),
            false => format!("{} (has {})", rows[end].holder, rows[end].name),
        }
    };
    let is_waited_for = |row: &Row| row.waiting.is_some_and(|it| it > 0);
    let blockers: Vec<String> = rows
        .iter()
        .enumerate()
        .map(|(at, row)| if is_waited_for(row) { blocker(at) } else { String::new() })
        .collect();
    for (row, blocker) in rows.iter_mut().zip(blockers) {
        row.blocker = blocker;
    }
}

/// Processes each of which waits for the next one, and the last one for the first.
fn circle<'a>(holders: impl Iterator<Item = &'a str> + Clone) -> String {
    let first = holders.clone().take(1);
    let all: Vec<&str> = holders.chain(first).collect();
    format!("a circle: {}", all.join(" waits for "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(name: &str, pid: u32, waiters: &[u32]) -> Row {
        let process = |pid| ("h".to_owned(), pid);
        Row {
            name: name.to_owned(),
            holder: pid.to_string(),
            process: Some(process(pid)),
            waiters: waiters.iter().map(|&pid| process(pid)).collect(),
            waiting: Some(waiters.len()),
            ..Row::default()
        }
    }

    fn blockers(mut rows: Vec<Row>) -> Vec<String> {
        name_blockers(&mut rows);
        rows.into_iter().map(|row| row.blocker).collect()
    }

    #[test]
    fn blocker_is_the_end_of_the_chain() {
        let rows =
            vec![held("a", 1, &[9]), held("b", 2, &[1]), held("c", 3, &[2]), held("d", 4, &[])];
        assert_eq!(blockers(rows), ["3 (has c)", "3 (has c)", "3", ""]);
    }

    #[test]
    fn processes_that_wait_for_each_other_are_a_circle() {
        let rows = vec![held("a", 1, &[2]), held("b", 2, &[1]), held("c", 3, &[])];
        let circles =
            ["a circle: 1 waits for 2 waits for 1", "a circle: 2 waits for 1 waits for 2"];
        assert_eq!(blockers(rows), [circles[0], circles[1], ""]);
    }

    #[test]
    fn circle_is_named_to_those_who_wait_for_it() {
        let rows = vec![held("a", 1, &[9]), held("b", 2, &[1, 3]), held("c", 3, &[2])];
        let circle = "a circle: 2 waits for 3 waits for 2";
        assert_eq!(blockers(rows), [circle, circle, "a circle: 3 waits for 2 waits for 3"]);
    }

    #[test]
    fn threads_of_one_process_are_no_chain() {
        assert_eq!(blockers(vec![held("a", 1, &[1]), held("b", 1, &[1])]), ["1", "1"]);
    }
}
