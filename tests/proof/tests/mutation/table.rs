//! The bugs, what each breaks, and the test that catches it: `bug.txt`.

use std::sync::LazyLock;

/// One planted bug.
#[derive(Clone, Copy)]
pub(crate) struct Mutation {
    pub(crate) name: &'static str,
    pub(crate) breaks: &'static str,
    /// `<program of tests/, or leasehold for src/>::<modules>::<test>`
    pub(crate) checker: &'static str,
}

/// Bugs that recorded histories show, too. They need Go, and so are no part of a sample.
pub(crate) static HISTORIES: LazyLock<Vec<Mutation>> =
    LazyLock::new(|| all().filter(is_of_histories).collect());

/// All of them.
pub(crate) static MUTATIONS: LazyLock<Vec<Mutation>> =
    LazyLock::new(|| all().filter(|it| !is_of_histories(it)).collect());

fn is_of_histories(mutation: &Mutation) -> bool {
    mutation.checker.starts_with("history::")
}

fn all() -> impl Iterator<Item = Mutation> {
    let lines = include_str!("bug.txt").lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        let parts: Vec<&str> = line.split(" | ").collect();
        let [name, breaks, checker] = parts[..] else { panic!("no row of a bug: {line}") };
        Mutation { name, breaks, checker }
    })
}
