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
    for subcommand in ["ls", "show", "top", "wait", "ask", "release", "doctor"] {
        page(&format!("leasehold-{subcommand}"));
        assert!(main.contains(&format!("leasehold\\-{subcommand}(1)")), "{main}");
    }
    assert!(!main.contains("generate"), "it is for those who install the program");
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
}

#[test]
fn completions_of_other_shells_are_printed() {
    for shell in ["zsh", "fish"] {
        let mut command = program();
        let script = finish(command.args(["generate", "completion", shell]), "").ends(0).stdout;
        assert!(script.contains("doctor"), "{script}");
    }
}
