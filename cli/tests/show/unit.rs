//! The unit files of the guide, by the program that reads them.

use std::process::Command;

use leasehold_support::{Server, skip};

use crate::common::{finish, long, open, program, run, server};

/// The blocks of the guide in this language, each with the name in its first line: `# nightly.service`.
fn blocks(language: &str) -> Vec<(String, String)> {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/command.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let begin = format!("```{language}\n# ");
    let blocks = guide.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap_or(""));
    blocks
        .map(|block| {
            let (name, text) = block.split_once('\n').expect("a name");
            (name.to_owned(), text.to_owned())
        })
        .collect()
}

#[test]
fn unit_files_are_those_that_systemd_reads() {
    let units = blocks("ini");
    let names: Vec<&str> = units.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["nightly.service", "nightly.timer", "worker.service"]);
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return skip("there is no systemd-analyze");
    }
    // Its directory is one of our own.
    let server = Server::start().expect("a server");
    let verify = |change: &dyn Fn(&str) -> String| {
        for (name, text) in &units {
            std::fs::write(server.directory().join(name), change(text)).expect("a file");
        }
        let mut command = Command::new("systemd-analyze");
        command.args(["verify", "--man=no", "--recursive-errors=no"]).args(&names);
        let output = command.current_dir(server.directory()).output().expect("systemd-analyze");
        String::from_utf8_lossy(&output.stderr).into_owned()
            + if output.status.success() { "" } else { "failed" }
    };
    // It looks for the programs.
    let program = env!("CARGO_BIN_EXE_leasehold");
    let installed = |text: &str| {
        let text = text.replace("/usr/local/bin/leasehold", program);
        text.replace("/usr/local/bin/backup", "/bin/true")
            .replace("/usr/local/bin/worker", "/bin/true")
    };
    assert_eq!(verify(&installed), "");
    let planted = verify(&|text| installed(text).replace("Delegate=", "Delegated="));
    assert!(planted.contains("Delegated"), "{planted}");
}

/// The calls of `leasehold run` in the crontab, the unit and the manifest of the guide.
fn scheduled() -> Vec<Vec<String>> {
    let (units, manifests) = (blocks("ini"), blocks("yaml"));
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let guide = include_str!("../../../docs/command.md");
    let cron = guide.lines().find_map(|line| line.strip_prefix("*/10 2-5 * * *  ")).expect("cron");
    let unit = units[0].1.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a unit");
    let mut lines = manifests[0].1.lines();
    let manifest = lines.find_map(|line| line.trim().strip_prefix("command: ")).expect("a job");
    vec![words(cron), words(unit), serde_json::from_str(manifest).expect("words")]
}

/// A machine that comes second has not failed, and sends no mail.
#[test]
fn schedules_of_the_guide_pass_over_a_job_that_another_machine_has() {
    let server = server();
    let client = open(&server);
    for (number, words) in scheduled().into_iter().enumerate() {
        let [_, arguments @ .., job] = &*words else { panic!("{words:?}") };
        assert_eq!(job, "/usr/local/bin/backup");
        let call = |job: &str| {
            let mut command = program();
            command.env("LEASEHOLD_URL", server.url()).args(arguments).arg(job);
            finish(&mut command, "")
        };
        let guard = client.mutex_with("nightly", long()).unwrap().lock().unwrap();
        let second = call("false").ends(0);
        assert_eq!(second.stderr.is_empty(), number == 0, "{second:?}");
        guard.release().unwrap();
        call("false").ends(1);
        run(&server, ["forget", "nightly"]).ends(0);
        call("true").ends(0);
        call("false").ends(0);
        run(&server, ["forget", "nightly"]).ends(0);
    }
}
