//! Manual pages and completions.

use std::process::Command;

use crate::common::{finish, program, server};

#[test]
fn each_subcommand_has_a_manual_page() {
    let server = server();
    let mut command = program();
    finish(command.args(["generate", "man"]).arg(server.directory()), "").ends(0);
    let page = |name: &str| {
        let path = server.directory().join(format!("{name}.1"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let top = page("leasehold-top");
    for words in
        [".TH leasehold-top 1", ".SH OPTIONS", "\\fB\\-\\-interval\\fR", "\\fB\\-\\-url\\fR"]
    {
        assert!(top.contains(words), "{words}: {top}");
    }
    let main = page("leasehold");
    let subcommands =
        ["ls", "run", "show", "top", "wait", "ask", "release", "forget", "doctor", "generate"];
    for subcommand in subcommands {
        let page = page(&format!("leasehold-{subcommand}"));
        assert!(main.contains(&format!("leasehold\\-{subcommand}(1)")), "{main}");
        for title in [".SH SYNOPSIS", ".SH \"EXAMPLES\"", ".SH \"EXIT STATUS\"", ".SH \"SEE ALSO\""]
        {
            assert!(page.contains(title), "{title}: {page}");
        }
    }
    // What a subcommand does is said in more than one line.
    assert!(page("leasehold-release").contains("The next waiter gets the lock at once."));
    let run = page("leasehold-run");
    let synopsis = "\\fBleasehold run\\fR [OPTIONS] [\\-n | \\-w TIME] NAME \\-\\- CMD [ARG]...";
    assert!(run.contains(synopsis), "{run}");
    assert!(run.contains("\\fBLEASEHOLD_TOKEN\\fR") && run.contains("\\fB76\\fR"), "{run}");
    for what_ends_and_what_does_not in ["daemons", "uninterruptible sleep"] {
        assert!(run.contains(what_ends_and_what_does_not), "{run}");
    }
}

/// The folder need not be there, and no page refers to one that is not written.
#[test]
fn manual_pages_refer_to_pages_that_are_there() {
    let server = server();
    let folder = server.directory().join("share/man/man1");
    let mut command = program();
    finish(command.args(["generate", "man"]).arg(&folder), "").ends(0);
    let pages =
        std::fs::read_dir(&folder).expect("the folder").map(|entry| entry.expect("a page").path());
    let mut references = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page").replace("\\-", "-");
        for (at, _) in text.match_indices("leasehold-") {
            let letters = |letter: char| letter.is_ascii_lowercase() || letter == '-';
            let name: String = text[at..].chars().take_while(|letter| letters(*letter)).collect();
            if text[at + name.len()..].starts_with("(1)") {
                references += 1;
                assert!(folder.join(format!("{name}.1")).exists(), "{name}: {}", page.display());
            }
        }
    }
    assert!(references > 10, "{references}");
}

/// The form of times, and no option that a subcommand refuses.
#[test]
fn help_explains_times_and_hides_what_is_refused() {
    let help = |subcommand: &str| {
        let mut command = program();
        finish(command.args([subcommand, "--help"]), "").ends(0).stdout
    };
    let subcommands = ["ls", "run", "show", "top", "wait", "ask", "release", "forget", "doctor"];
    for subcommand in subcommands {
        let text = help(subcommand);
        let words: Vec<&str> = text.split_whitespace().collect();
        let form = "A TIME or PERIOD is a number and a unit: 500ms, 10s, 5m, 2h or 30d.";
        assert!(words.join(" ").contains(form), "{text}");
        assert_eq!(text.contains("--json\n"), subcommand != "run", "{text}");
    }
}

#[test]
fn help_has_what_the_manual_pages_have() {
    let mut command = program();
    let help = finish(command.args(["run", "--help"]), "").ends(0).stdout;
    assert!(help.contains("Usage: leasehold run [OPTIONS] [-n | -w TIME] NAME -- CMD [ARG]...\n"));
    for part in
        ["\nExamples:\n", "\nExit status:\n", "\nEnvironment:\n", "\nSee also: leasehold-show(1)"]
    {
        assert!(help.contains(part), "{part}: {help}");
    }
}

#[test]
fn completions_of_bash_complete_subcommands_and_options() {
    let mut command = program();
    let script = finish(command.args(["generate", "completion", "bash"]), "").ends(0).stdout;
    let ask = "COMP_WORDS=(leasehold \"$0\"); COMP_CWORD=1; _leasehold leasehold \"$0\" leasehold; \
               echo \"${COMPREPLY[@]}\"";
    let complete = |word: &str| {
        let mut bash = Command::new("bash");
        bash.args(["-c", &format!("{script}\n{ask}"), word]);
        finish(&mut bash, "").ends(0).stdout
    };
    if Command::new("bash").arg("--version").output().is_err() {
        return leasehold_support::skip("there is no bash");
    }
    assert_eq!(complete("do").trim(), "doctor");
    assert_eq!(complete("--ask").trim(), "--ask-password");
    // The job is a command with arguments of its own.
    let job = |words: &[&str]| {
        let ask = "COMP_WORDS=(leasehold --cluster run nightly -- \"$@\"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \
                   _leasehold_job leasehold \"${COMP_WORDS[COMP_CWORD]}\" x; echo \"${COMPREPLY[@]}\"";
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", &format!("{script}\n{ask}"), "bash"]).args(words);
        finish(&mut bash, "").ends(0).stdout
    };
    assert!(job(&["bas"]).split_whitespace().any(|word| word == "bash"));
    assert!(job(&["cat", "/etc/pass"]).split_whitespace().any(|word| word == "/etc/passwd"));
}

#[test]
fn completions_of_other_shells_are_printed() {
    for shell in ["zsh", "fish"] {
        let mut command = program();
        let script = finish(command.args(["generate", "completion", shell]), "").ends(0).stdout;
        assert!(script.contains("doctor"), "{script}");
    }
}
