//! What `--help` and the manual pages say beyond the options: synopsis, the form of times, examples, exit statuses,
//! environment, see also.

use std::fmt::Write as _;

use clap::Command;

/// What there is to say about a subcommand; about the program itself, where it has no name.
struct Manual {
    name: &'static str,
    usage: &'static str,
    examples: &'static [(&'static str, &'static str)],
    statuses: &'static [(&'static str, &'static str)],
    environment: &'static [(&'static str, &'static str)],
    see_also: &'static [&'static str],
}

/// A title, and what stands below it: a word, and what it means.
type Section = (&'static str, Vec<(&'static str, &'static str)>);

const URL: (&str, &str) = (
    "LEASEHOLD_URL, REDIS_URL",
    "the URL of the server, if neither --url nor --url-file is given. The first one that is set counts",
);
/// The form of the times of all options.
const TIME: (&str, &str) = (
    "",
    "A TIME or PERIOD is a number and a unit: 500ms, 10s, 5m, 2h or 30d. Without a unit it is in seconds",
);
const DONE: (&str, &str) = ("0", "done");
const USAGE: (&str, &str) = ("64", "wrong arguments or settings");
const UNREACHABLE: (&str, &str) = ("69", "the server cannot be reached");
const INTERNAL: (&str, &str) = ("70", "another error");
const UNKNOWN: (&str, &str) = ("75", "the outcome is not known: look before you try again");
const DENIED: (&str, &str) = ("77", "the server refused the user, the password or a command");

const fn looking(
    name: &'static str,
    usage: &'static str,
    examples: &'static [(&'static str, &'static str)],
    see_also: &'static [&'static str],
) -> Manual {
    let statuses = &[DONE, USAGE, UNREACHABLE, INTERNAL, DENIED];
    Manual { name, usage, examples, statuses, environment: &[URL], see_also }
}

const MANUALS: &[Manual] = &[
    Manual {
        name: "",
        usage: "leasehold [OPTIONS] COMMAND",
        examples: &[
            (
                "leasehold run -n nightly -- ./backup.sh",
                "run a job, unless it is running on any machine",
            ),
            ("leasehold show nightly", "who holds the lock, and who waits for it"),
            ("leasehold doctor", "what is wrong with this server, for locks"),
        ],
        statuses: &[],
        environment: &[URL],
        see_also: &["flock(1)", "redis-cli(1)"],
    },
    Manual {
        name: "run",
        usage: "leasehold run [OPTIONS] [-n | -w TIME] NAME -- CMD [ARG]...\n\
                leasehold run [OPTIONS] [-n | -w TIME] -s NAME -- CMD [ARG]...\n\
                leasehold run [OPTIONS] [-n | -w TIME] --of N [--permits K] NAME -- CMD [ARG]...\n\
                leasehold run [OPTIONS] [-n | -w TIME] --once-per PERIOD NAME -- CMD [ARG]...",
        examples: &[
            ("leasehold run nightly -- ./backup.sh", "wait for the lock, and run the job"),
            ("leasehold run -n nightly -- ./backup.sh", "give up at once if the lock is held"),
            (
                "leasehold run -w 30s -E 99 nightly -- ./backup.sh",
                "give up after 30 s, with status 99",
            ),
            ("leasehold run -s catalog -- ./report.sh", "share the lock with other readers"),
            ("leasehold run --permits 2 --of 8 gpu -- ./train.sh", "take two of eight permits"),
            (
                "leasehold run --once-per 24h nightly -- ./backup.sh",
                "one success a day, on however many machines",
            ),
            (
                "leasehold run -q -n -E 0 --once-per 24h nightly -- ./backup.sh",
                "the same for cron: no mail and no failure where another machine has the job",
            ),
        ],
        statuses: &[
            (
                "that of the job",
                "the job ended by itself; 128 plus the number of the signal that ended it",
            ),
            (
                "1, or that of -E",
                "the lock was not free in time, or the job failed and is not due for another try",
            ),
            ("0, or that of --skipped-status", "the job has already succeeded in this period"),
            USAGE,
            UNREACHABLE,
            INTERNAL,
            ("71", "processes of the job may be left that the system does not show"),
            ("75", "the outcome is not known. The run may be tried again"),
            ("76", "the lock was lost, or the time of --max-hold was over, and the job was ended"),
            DENIED,
            ("126", "the program cannot be run"),
            ("127", "there is no such program"),
            (
                "",
                "With a status of its own, leasehold prints a line that begins with \"leasehold:\" on the standard error. With \
                 -q it does not say that the lock is held or that the job is not due. A job that ends by itself leaves no \
                 such line",
            ),
        ],
        environment: &[
            URL,
            (
                "",
                "The job does not see the variable that was used, unless --keep-url is given. It sees:",
            ),
            ("LEASEHOLD_NAME", "the name of the lock"),
            ("LEASEHOLD_TOKEN", "the fencing token, a number that grows from hold to hold"),
            ("LEASEHOLD_HOLDER", "who holds the lock: host:process"),
            ("LEASEHOLD_LEASE_SECONDS", "how long the lock outlives a machine that dies"),
        ],
        see_also: &[
            "leasehold-show(1)",
            "leasehold-release(1)",
            "flock(1)",
            "timeout(1)",
            "crontab(5)",
        ],
    },
    Manual {
        name: "ls",
        usage: "leasehold ls [OPTIONS] [PATTERN]",
        examples: &[
            ("leasehold ls", "the locks in use"),
            ("leasehold ls 'orders:*' --scan", "also those of other programs"),
            ("leasehold ls --held 1h", "locks held for over an hour; status 1 if there are any"),
        ],
        statuses: &[
            DONE,
            ("1", "with --held: there are such locks"),
            USAGE,
            UNREACHABLE,
            INTERNAL,
            DENIED,
        ],
        environment: &[URL],
        see_also: &["leasehold-top(1)", "leasehold-show(1)"],
    },
    looking(
        "show",
        "leasehold show [OPTIONS] NAME",
        &[(
            "leasehold show nightly",
            "who holds it, who waits, and how the job of this name last ran",
        )],
        &["leasehold-ls(1)", "leasehold-top(1)"],
    ),
    looking(
        "top",
        "leasehold top [OPTIONS] [PATTERN]",
        &[
            ("leasehold top", "the locks in use, the one with the most waiters first"),
            ("leasehold top --once --sort held", "one table, for scripts and mail"),
        ],
        &["leasehold-ls(1)", "leasehold-show(1)"],
    ),
    Manual {
        name: "wait",
        usage: "leasehold wait [OPTIONS] [-n | -w TIME] NAME",
        examples: &[("leasehold wait -w 30s nightly", "wait until nobody holds it, at most 30 s")],
        statuses: &[
            ("0", "nobody holds the lock"),
            ("1, or that of -E", "it is still held"),
            USAGE,
            UNREACHABLE,
            INTERNAL,
            DENIED,
        ],
        environment: &[URL],
        see_also: &["leasehold-run(1)", "leasehold-show(1)"],
    },
    Manual {
        name: "ask",
        usage: "leasehold ask [OPTIONS] NAME",
        examples: &[("leasehold ask nightly", "ask; the holder decides whether it lets go")],
        statuses: &[
            ("0", "the holder's process received the request"),
            ("1", "nobody received it"),
            USAGE,
            UNREACHABLE,
            INTERNAL,
            DENIED,
        ],
        environment: &[URL],
        see_also: &["leasehold-release(1)", "leasehold-run(1)"],
    },
    Manual {
        name: "release",
        usage: "leasehold release --force [OPTIONS] NAME",
        examples: &[
            ("leasehold release --force nightly", "take the lock from its holder"),
            ("leasehold release --force --all gpu", "take all permits"),
        ],
        statuses: &[
            ("0", "the lock was taken from its holder"),
            ("1", "nobody held it"),
            USAGE,
            UNREACHABLE,
            INTERNAL,
            UNKNOWN,
            DENIED,
        ],
        environment: &[URL],
        see_also: &["leasehold-ask(1)", "leasehold-show(1)"],
    },
    Manual {
        name: "forget",
        usage: "leasehold forget [OPTIONS] NAME",
        examples: &[("leasehold forget nightly", "make the job due: the next call runs it")],
        statuses: &[
            ("0", "the record was deleted"),
            ("1", "there was no record"),
            USAGE,
            UNREACHABLE,
            INTERNAL,
            UNKNOWN,
            DENIED,
        ],
        environment: &[URL],
        see_also: &["leasehold-run(1)", "leasehold-show(1)"],
    },
    Manual {
        name: "doctor",
        usage: "leasehold doctor [OPTIONS]",
        examples: &[
            ("leasehold doctor", "check the server that LEASEHOLD_URL names"),
            (
                "leasehold doctor --kind once --accept persistence",
                "check it for run --once-per, and accept that a restart may lose locks",
            ),
        ],
        statuses: &[
            ("0", "no warning and no fault"),
            ("1", "a warning"),
            ("2", "a fault: no lock can be had, or no wait for one"),
            USAGE,
            UNREACHABLE,
            INTERNAL,
            DENIED,
        ],
        environment: &[URL],
        see_also: &["redis-cli(1)"],
    },
    Manual {
        name: "generate",
        usage: "leasehold generate man FOLDER\n\
                leasehold generate completion SHELL",
        examples: &[
            ("leasehold generate man /usr/local/share/man/man1", "write the manual pages"),
            (
                "leasehold generate completion bash > /etc/bash_completion.d/leasehold",
                "make bash complete subcommands and options",
            ),
        ],
        statuses: &[DONE, USAGE, INTERNAL],
        environment: &[],
        see_also: &["leasehold(1)"],
    },
];

impl Manual {
    fn of(name: &str) -> Option<&'static Manual> {
        MANUALS.iter().find(|manual| manual.name == name)
    }

    fn sections(&self) -> Vec<Section> {
        let list = |title, entries: &[(&'static str, &'static str)]| (title, entries.to_vec());
        // The only one without a connection, whose options have times.
        let times: &[(&str, &str)] = if self.name == "generate" { &[] } else { &[TIME] };
        let all = [
            list("TIMES", times),
            list("EXAMPLES", self.examples),
            list("EXIT STATUS", self.statuses),
            list("ENVIRONMENT", self.environment),
        ];
        all.into_iter().filter(|(_, entries)| !entries.is_empty()).collect()
    }

    /// The sections below the options of `--help`.
    fn help(&self) -> String {
        let mut text = String::new();
        for (title, entries) in self.sections() {
            let mut letters = title.chars();
            let first: String = letters.by_ref().take(1).collect();
            let _ = writeln!(text, "{first}{}:", letters.as_str().to_lowercase());
            for (word, meaning) in entries {
                let _ = match word {
                    "" => writeln!(text, "  {meaning}"),
                    word => writeln!(text, "  {word}\n          {meaning}"),
                };
            }
            text.push('\n');
        }
        let _ = write!(text, "See also: {}", self.see_also.join(", "));
        text
    }

    /// The same sections of a manual page.
    fn roff(&self) -> String {
        let mut text = String::new();
        for (title, entries) in self.sections() {
            let _ = writeln!(text, ".SH \"{title}\"");
            for (word, meaning) in entries {
                let _ = match word {
                    "" => writeln!(text, ".PP\n{}", escaped(meaning)),
                    word => writeln!(text, ".TP\n\\fB{}\\fR\n{}", escaped(word), escaped(meaning)),
                };
            }
        }
        let _ = writeln!(text, ".SH \"SEE ALSO\"\n{}", escaped(&self.see_also.join(", ")));
        text
    }
}

/// Adds the synopsis and the sections to each command.
pub(super) fn equip(mut command: Command) -> Command {
    for manual in MANUALS {
        let add =
            |command: Command| command.override_usage(manual.usage).after_long_help(manual.help());
        command = match manual.name {
            "" => add(command),
            name => command.mut_subcommand(name, add),
        };
    }
    command
}

/// The sections of a command that its manual page has after the options.
pub(super) fn sections(name: &str) -> Option<String> {
    Manual::of(name).map(Manual::roff)
}

/// Text for roff: hyphens stay what they are when they are copied, and no line begins with a command.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn each_command_has_a_manual_and_no_other() {
        let command = super::super::Arguments::command();
        let mut names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        names.push("");
        let mut known: Vec<&str> = MANUALS.iter().map(|manual| manual.name).collect();
        names.sort_unstable();
        known.sort_unstable();
        assert_eq!(names, known);
    }

    #[test]
    fn text_is_no_command_of_roff() {
        assert_eq!(escaped(".SH -n \\"), "\\&.SH \\-n \\e");
    }
}
