//! What the command weighs, beside flock(1).

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_support::Server;

use crate::flock::Tool;

const TURNS: usize = 100;

/// The median time of a program, from its start to its end.
fn median(mut command: Command) -> Duration {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut times: Vec<Duration> = (0..TURNS)
        .map(|_| {
            let begin = Instant::now();
            assert!(command.status().expect("the program").success());
            begin.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[TURNS / 2]
}

#[test]
#[ignore = "prints figures, which mean something for an optimised build"]
#[expect(clippy::print_stdout, reason = "the figures are for people")]
fn weight() {
    let program = Path::new(env!("CARGO_BIN_EXE_leasehold"));
    let bytes = std::fs::metadata(program).expect("the program").len();
    println!("size: {:.1} MB", bytes as f64 / 1e6);
    let server = Server::start().expect("a server");
    let mut version = Command::new(program);
    version.arg("--version");
    println!("leasehold --version: {:?}", median(version));
    println!("true: {:?}", median(Command::new("true")));
    let ours = Tool::Leasehold(server.url());
    println!("leasehold run -n x -- true: {:?}", median(ours.command(&["-n"], &["true"])));
    if Command::new("flock").arg("--version").output().is_ok() {
        let file = server.directory().join("lock").display().to_string();
        println!("flock -n x true: {:?}", median(Tool::Flock(file).command(&["-n"], &["true"])));
    }
}
