//! Random bytes for code that reads bytes from outside, on the stable compiler.
//!
//! A target reads one input and returns its *shape*: the name of the variant that was read, say, or the kind of the
//! error. It panics where a rule does not hold. The inputs of the corpus come first. Each later input is a mutation of a
//! known one, and an input with a new shape is known from then on. So shapes stand in for the coverage that only an
//! instrumented build can measure.
//!
//! `tests/corpus/<target>.txt` has one input a line, escaped as in a Rust byte string but for quotes. With `LEASEHOLD_REMAKE=1` a run
//! adds the shortest input of each shape that the file does not have. `LEASEHOLD_FUZZ_SECONDS` is how long each target
//! runs, 1 unless it is set, and `LEASEHOLD_SEED` repeats a run.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

/// The longest input.
const LONGEST: usize = 64 * 1024;
/// The longest input that is kept in a corpus.
const LONGEST_KEPT: usize = 512;
/// The most shapes of one target: one that names more has too fine ones.
const MOST_SHAPES: usize = 4_096;
/// The clock is read once for this many inputs.
const INPUTS_PER_LOOK: u32 = 16;

/// Numbers at the edges of the types that numbers are read into.
const NUMBERS: [&str; 22] = [
    "0",
    "1",
    "-1",
    "+1",
    "4096",
    "16384",
    "65535",
    "65536",
    "100000000",
    "2147483648",
    "4294967295",
    "4294967296",
    "999999999999",
    "9007199254740993",
    "4611686018427387904",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "ffffffffffffffff",
    "1e400",
];
/// Text that a terminal would obey, or that hides what stands beside it.
const TRICKS: [&str; 12] = [
    "\x1b[2J",
    "\x1b]0;x\x07",
    "\r",
    "\n",
    "\0",
    "\x7f",
    "\u{9b}31m",
    "\u{202e}",
    "\u{200b}",
    "\u{2028}",
    "\u{feff}",
    "\u{e0041}",
];

/// Code that reads bytes from outside.
#[derive(Debug)]
pub struct Target {
    name: &'static str,
    words: Vec<&'static str>,
}

/// The inputs that are known, each the shortest of its shape.
type Known = BTreeMap<String, Vec<u8>>;

impl Target {
    /// The target whose corpus has this name.
    pub fn new(name: &'static str) -> Target {
        Target { name, words: [&NUMBERS[..], &TRICKS[..]].concat() }
    }

    /// Adds words that mutations put in, besides numbers and what terminals obey.
    #[must_use]
    pub fn words(mut self, words: &[&'static str]) -> Target {
        self.words.extend(words);
        self
    }

    /// Reads the corpus, and then mutations for as long as the environment says.
    ///
    /// # Panics
    ///
    /// If `read` does. The input is shown.
    pub fn run(&self, mut read: impl FnMut(&[u8]) -> String) {
        let mut read = |input: &[u8]| {
            let _shown = ShownOnPanic { name: self.name, input };
            read(input)
        };
        let corpus = self.corpus();
        assert!(!corpus.is_empty(), "the target {} has no corpus", self.name);
        let mut known = Known::new();
        for input in &corpus {
            let shape = read(input);
            known.entry(shape).or_insert_with(|| input.clone());
        }

        let seed = variable("LEASEHOLD_SEED").unwrap_or_else(|| fastrand::u64(..));
        let seconds = variable("LEASEHOLD_FUZZ_SECONDS").unwrap_or(1);
        let (mut random, mut count) = (Rng::with_seed(seed), corpus.len());
        let mut pool = corpus.clone();
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            for _ in 0..INPUTS_PER_LOOK {
                let input = self.mutated(&pool, &mut random);
                let shape = read(&input);
                count += 1;
                match known.get_mut(&shape) {
                    Some(shortest) if shortest.len() <= input.len() => {}
                    Some(shortest) => *shortest = input,
                    None => {
                        pool.push(input.clone());
                        known.insert(shape, input);
                    }
                }
            }
            assert!(known.len() <= MOST_SHAPES, "the target {} has too many shapes", self.name);
        }
        report(&format!("{}: {count} inputs, {} shapes, seed {seed}", self.name, known.len()));
        if variable("LEASEHOLD_REMAKE") == Some(1) {
            self.keep(&corpus, known, &mut read);
        }
    }

    fn file(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../corpus/{}.txt", self.name))
    }

    fn corpus(&self) -> Vec<Vec<u8>> {
        let file = self.file();
        let text =
            fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        text.lines().map(|line| unescaped(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }

    /// Adds the inputs whose shapes no line of the corpus has.
    fn keep(&self, corpus: &[Vec<u8>], mut known: Known, read: &mut impl FnMut(&[u8]) -> String) {
        for input in corpus {
            known.remove(&read(input));
        }
        let new = known.into_values().filter(|input| input.len() <= LONGEST_KEPT);
        let lines = corpus.iter().cloned().chain(new).map(|input| escaped(&input) + "\n");
        fs::write(self.file(), lines.collect::<String>()).expect("the corpus can be written");
    }

    /// One of the known inputs, changed in one to five places.
    fn mutated(&self, pool: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
        let mut input = pool[random.usize(..pool.len())].clone();
        for _ in 0..random.u32(1..=5) {
            self.mutate(&mut input, pool, random);
            input.truncate(LONGEST);
        }
        input
    }

    fn mutate(&self, input: &mut Vec<u8>, pool: &[Vec<u8>], random: &mut Rng) {
        let (at, end) = part(input, random);
        match random.u32(..12) {
            0 => input.insert(at, random.u8(..)),
            1 if at < input.len() => input[at] = random.u8(..),
            2 if at < input.len() => input[at] ^= 1 << random.u32(..8),
            3 => drop(input.drain(at..end)),
            4 => input.truncate(at),
            // A part twice, and rarely so often that it becomes long.
            5 => {
                let times = if random.u32(..32) == 0 { 1_usize << random.u32(1..12) } else { 1 };
                let room = LONGEST.saturating_sub(input.len());
                let times = times.min(room / (end - at).max(1));
                let copies = input[at..end].repeat(times);
                input.splice(at..at, copies);
            }
            6 | 7 => {
                // In place of a number, where one begins or goes on here.
                let digits = input[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                let number = NUMBERS[random.usize(..NUMBERS.len())];
                input.splice(at..at + digits, number.bytes());
            }
            8 | 9 => {
                let word = self.words[random.usize(..self.words.len())];
                let replaced = if random.bool() { at..at } else { at..end };
                input.splice(replaced, word.bytes());
            }
            10 => {
                let other = &pool[random.usize(..pool.len())];
                let (from, to) = part(other, random);
                input.splice(at..end, other[from..to].iter().copied());
            }
            _ => input[at..end].reverse(),
        }
    }
}

/// A part of an input, mostly a short one.
fn part(input: &[u8], random: &mut Rng) -> (usize, usize) {
    let at = random.usize(..=input.len());
    let most = if random.bool() { 8 } else { input.len() };
    (at, at + random.usize(..=most.min(input.len() - at)))
}

/// Shows an input if reading it panics.
struct ShownOnPanic<'a> {
    name: &'a str,
    input: &'a [u8],
}

impl Drop for ShownOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            report(&format!("{}: the input was\n{}", self.name, self.input.escape_ascii()));
        }
    }
}

#[allow(
    clippy::print_stdout,
    reason = "the harness shows it if the test fails, or with --nocapture"
)]
fn report(text: &str) {
    println!("{text}");
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// A line of a corpus.
fn escaped(bytes: &[u8]) -> String {
    let shown = |&byte: &u8| match byte {
        // Not escaped, so that text stays readable.
        b'"' | b'\'' => char::from(byte).to_string(),
        _ => byte.escape_ascii().to_string(),
    };
    bytes.iter().map(shown).collect()
}

/// The bytes of a line of a corpus.
fn unescaped(line: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = line.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'\\' {
            bytes.push(first);
            continue;
        }
        let (&mark, after) = rest.split_first()?;
        rest = after;
        bytes.push(match mark {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                rest = &rest[2..];
                u8::from_str_radix(digits, 16).ok()?
            }
            b'\\' => b'\\',
            _ => return None,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_a_corpus_is_any_bytes() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        assert_eq!(unescaped(&escaped(&all)), Some(all));
        assert_eq!(unescaped("\\q"), None);
    }

    #[test]
    fn target_finds_what_only_steps_of_new_shapes_lead_to() {
        let (target, mut random) = (Target::new("fuzz"), Rng::with_seed(7));
        let (mut known, mut shapes, mut is_found) = (vec![b"x".to_vec()], vec![0], false);
        for _ in 0..200_000 {
            let input = target.mutated(&known, &mut random);
            let shape =
                b"<\x1b[2J>".iter().zip(&input).take_while(|(one, other)| one == other).count();
            is_found |= shape == 6;
            if !shapes.contains(&shape) {
                shapes.push(shape);
                known.push(input);
            }
        }
        assert!(is_found, "{shapes:?}");
    }

    #[test]
    fn mutations_stay_within_the_longest_input() {
        let target = Target::new("fuzz");
        let mut random = Rng::with_seed(1);
        let pool = [vec![b'1'; LONGEST], b"a".to_vec(), Vec::new()];
        for _ in 0..2_000 {
            assert!(target.mutated(&pool, &mut random).len() <= LONGEST);
        }
    }
}
