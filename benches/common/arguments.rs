//! The arguments of a bench.

/// How long to measure when nothing is said: long enough for steady medians…
const SECONDS: f64 = 4.0;
/// …or, when it is `cargo test` that runs the bench, just to see it run.
const GLANCE: f64 = 0.2;

/// `cargo bench --package leasehold-benches --bench NAME -- [--json] [--seconds S] [ROW…]`, where
/// `--only ROW` is a row too.
#[derive(Debug)]
pub(crate) struct Arguments {
    /// One JSON object a line instead of tables.
    pub(crate) json: bool,
    /// About how long each comparison takes.
    pub(crate) seconds: f64,
    /// Only rows whose names contain one of these; all rows if empty.
    pub(crate) rows: Vec<String>,
}

impl Arguments {
    /// Reads the arguments, or ends the process and says what is wrong with them.
    pub(crate) fn read() -> Arguments {
        Arguments::read_or(SECONDS)
    }

    /// The same where it takes so long unless told otherwise.
    pub(crate) fn read_or(seconds: f64) -> Arguments {
        parse(std::env::args().skip(1), seconds).unwrap_or_else(|problem| {
            eprintln!("{problem}\nusage: [--json] [--seconds S] [[--only] ROW…]");
            std::process::exit(2);
        })
    }

    /// Whether a row is asked for.
    pub(crate) fn wants(&self, row: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|part| row.contains(part.as_str()))
    }

    /// Whether a row is asked for that goes by several words: all those of one ROW are among them.
    pub(crate) fn names(&self, label: &str) -> bool {
        let named = |row: &String| {
            row.split_whitespace().all(|word| label.split_whitespace().any(|own| own == word))
        };
        self.rows.is_empty() || self.rows.iter().any(named)
    }
}

fn parse(mut words: impl Iterator<Item = String>, usual: f64) -> Result<Arguments, String> {
    let (mut json, mut seconds, mut rows, mut bench) = (false, None, Vec::new(), false);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => json = true,
            "--bench" => bench = true,
            "--seconds" => {
                let word = words.next().unwrap_or_default();
                let valid =
                    word.parse().ok().filter(|&number: &f64| number > 0.0 && number.is_finite());
                seconds = Some(valid.ok_or(format!("--seconds {word:?}: a number above 0"))?);
            }
            "--only" => rows.push(words.next().ok_or("--only: which row?")?),
            option if option.starts_with('-') => return Err(format!("{option}: unknown")),
            row => rows.push(row.to_owned()),
        }
    }
    let seconds = seconds.unwrap_or(if bench { usual } else { GLANCE });
    Ok(Arguments { json, seconds, rows })
}
