//! What the holders believed, from their records, and whether two believed in one lock at a time.

/// One hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The place of its process.
    pub(crate) player: usize,
    pub(crate) token: u64,
    /// Its validity: from the first moment to the last, in spans between which it was not valid. A death ends none: nobody
    /// may have the lock sooner because its holder is dead.
    pub(crate) spans: Vec<(u64, u64)>,
    /// Whether it was told that the lock is lost.
    pub(crate) is_lost: bool,
    /// Whether it was lost, or is about to be released.
    pub(crate) is_over: bool,
}

impl Hold {
    pub(crate) fn begin(&self) -> u64 {
        self.spans[0].0
    }

    pub(crate) fn end(&self) -> u64 {
        self.spans[self.spans.len() - 1].1
    }
}

/// The holds of a process, by its record. A line that a kill has cut off counts for nothing.
pub(crate) fn read(player: usize, text: &str) -> Vec<Hold> {
    let mut holds: Vec<Hold> = Vec::new();
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |place: usize| words[place].parse::<u64>().expect("a number");
        let (token, at) = (number(1), number(2));
        let last = holds.last_mut().filter(|hold| hold.token == token);
        match (words[0], last) {
            ("V", Some(hold)) => {
                let until = number(3);
                let span = hold.spans.last_mut().expect("it has been valid");
                if at <= span.1 {
                    span.1 = span.1.max(until);
                } else {
                    hold.spans.push((at, until));
                }
            }
            ("V", None) => {
                let (is_lost, is_over) = (false, false);
                let spans = vec![(at, number(3))];
                holds.push(Hold { player, token, spans, is_lost, is_over });
            }
            ("R", Some(hold)) => {
                let span = hold.spans.last_mut().expect("it has been valid");
                span.1 = span.1.min(at).max(span.0);
                hold.is_over = true;
            }
            ("L", Some(hold)) => (hold.is_lost, hold.is_over) = (true, true),
            _ => {}
        }
    }
    holds
}

/// Sorts the holds of one lock by their beginnings, and returns how two of them contradict each other. One that was silent
/// and is valid again has had the lock all the time, so nobody else may have had it in between.
pub(crate) fn overlaps(holds: &mut [Hold]) -> Vec<String> {
    holds.sort_by_key(Hold::begin);
    let mut found = Vec::new();
    let mut latest: Option<&Hold> = None;
    for hold in holds.iter() {
        if let Some(before) = latest {
            if before.end() > hold.begin() {
                found.push(format!("{before:?} and {hold:?}"));
            }
            if before.token >= hold.token {
                found.push(format!("the token of {hold:?} after {before:?}"));
            }
        }
        if latest.is_none_or(|before| before.end() < hold.end()) {
            latest = Some(hold);
        }
    }
    found
}

/// A checker that has never failed proves nothing.
#[test]
fn checker_finds_overlaps() {
    let check = |texts: &[&str]| {
        let mut holds: Vec<Hold> =
            texts.iter().enumerate().flat_map(|(player, text)| read(player, text)).collect();
        (holds.len(), overlaps(&mut holds).len())
    };
    // One after the other; one that is released early, or whose release was cut off.
    assert_eq!(check(&["V 1 10 90\nR 1 20\n", "V 2 21 99\nR 2 30\n"]), (2, 0));
    assert_eq!(check(&["V 1 10 90\nR 1 22\n", "V 2 21 99\nR 2 30\n"]), (2, 1));
    assert_eq!(check(&["V 1 10 90\nR 1 2", "V 2 21 99\n"]), (2, 1));
    // Renewed, and taken at its end or before.
    assert_eq!(check(&["V 1 10 90\nV 1 40 120\n", "V 2 120 200\n"]), (2, 0));
    assert_eq!(check(&["V 1 10 90\nV 1 40 120\n", "V 2 119 200\n"]), (2, 1));
    // Taken while it was silent: lost, or valid again although another had it.
    assert_eq!(check(&["V 1 10 90\nS 1 91\nL 1 200 taken\n", "V 2 95 99\n"]), (2, 0));
    assert_eq!(check(&["V 1 10 90\nS 1 91\nV 1 200 250\n", "V 2 300 400\n"]), (2, 0));
    assert_eq!(check(&["V 1 10 90\nS 1 91\nV 1 200 250\n", "V 2 95 99\n"]), (2, 1));
    assert_eq!(check(&["V 7 10 90\n", "V 6 91 99\n"]), (2, 1));
    let spans = &read(0, "V 1 10 90\nS 1 91\nV 1 200 250\n")[0].spans;
    assert_eq!(*spans, [(10, 90), (200, 250)]);
}
