//! How often the tests of this program sleep. A sleep is no event: the list of them only becomes shorter.

use std::fmt::Write as _;

use super::{code, files};

/// A file and the number of its sleeps, a line each.
const LIST: &str = include_str!("sleep.txt");

fn sleeps(text: &str) -> usize {
    let code = code(text);
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let calls = code.match_indices("sleep(").filter(|(at, _)| !code[..*at].ends_with(is_word));
    calls.count()
}

#[test]
fn tests_sleep_no_more_than_the_list_says() {
    let mut list = String::new();
    for (file, text) in files("tests/it", "rs") {
        let count = sleeps(&text);
        if count > 0 {
            writeln!(list, "{file} {count}").expect("a string takes any text");
        }
    }
    let known: Vec<&str> = LIST.lines().collect();
    let changed: Vec<&str> = list.lines().filter(|line| !known.contains(line)).collect();
    assert!(
        list == LIST,
        "{changed:?}; where a test must sleep, as the real time is its point, tests/it/layer/sleep.txt says so:\n{list}"
    );
}

#[test]
fn planted_sleep_is_counted() {
    let text = "use std::thread::sleep;\n// sleep\nfn f() { thread::sleep(x); sleep(y); \"sleep\"; asleep(); }";
    assert_eq!(sleeps(text), 2);
}
