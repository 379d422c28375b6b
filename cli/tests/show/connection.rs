//! How the program reaches a server, and what it says where it cannot.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use leasehold_support::{Group, Server};
use leasehold_tls_test::{Authority, Terminator};

use crate::common::{ask, finish, long, open, program, run, server, until};

#[test]
fn wrong_arguments_end_with_64() {
    let server = server();
    let wrong: [&[&str]; 6] = [
        &[],
        &["nothing"],
        &["show"],
        &["wait", "-w", "soon", "a"],
        &["ls", "--cert", "x"],
        &["show", ""],
    ];
    for arguments in wrong {
        let ran = run(&server, arguments).ends(64);
        assert!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{ran:?}");
    }
    assert!(run(&server, ["--help"]).ends(0).stdout.contains("Usage: leasehold"));
    assert!(run(&server, ["--version"]).ends(0).stdout.starts_with("leasehold 0."));
}

#[test]
fn url_comes_from_option_file_input_or_variable() {
    let server = server();
    let client = open(&server);
    let _guard = client.mutex_with("a", long()).unwrap().lock().unwrap();
    let url = server.url();
    let file = server.directory().join("url");
    std::fs::write(&file, format!("{url}\n")).unwrap();
    let file = file.to_str().unwrap();
    let nowhere = "redis://127.0.0.1:1";
    let is_found = |arguments: &[&str], variable: &str, input: &str| {
        let mut command = program();
        command.args(arguments).env("REDIS_URL", variable);
        let ran = finish(&mut command, input).ends(0);
        assert!(ran.stdout.contains("held by"), "{ran:?}");
    };
    is_found(&["show", "a"], &url, "");
    is_found(&["--url", &url, "show", "a"], nowhere, "");
    is_found(&["show", "a", "--url", &url], nowhere, "");
    is_found(&["show", "--url-file", file, "a"], nowhere, "");
    is_found(&["show", "--url-file", "-", "a"], nowhere, &format!("{url}\n"));
    let missing = run(&server, ["ls", "--url-file", "/nowhere"]).ends(64);
    assert!(missing.stderr.contains("/nowhere: "), "{missing:?}");
}

#[test]
fn unreachable_and_denied_have_statuses_of_their_own() {
    let server = Server::builder().tcp().start().unwrap();
    let mut command = program();
    let ran = finish(command.args(["ls", "--url", "redis://127.0.0.1:1"]), "").ends(69);
    assert!(ran.stderr.starts_with("leasehold: "), "{ran:?}");
    ask::<()>(&server, &["ACL", "SETUSER", "locks", "on", ">secret", "~*", "+ping"]);
    let address = server.addr();
    for user in ["locks:secret", "locks:wrong"] {
        let url = format!("redis://{user}@{address}");
        let mut command = program();
        let ran = finish(command.args(["ls", "--url", &url]), "").ends(77);
        assert!(!ran.stderr.contains(user), "{ran:?}");
    }
}

#[test]
fn password_comes_from_a_file() {
    let server = server();
    ask::<()>(&server, &["CONFIG", "SET", "requirepass", "s:/@cret "]);
    let without = run(&server, ["show", "a"]).ends(77);
    assert!(
        without.stderr.ends_with("write it into the URL: unix:///path?pass=password\n"),
        "{without:?}"
    );
    let file = server.directory().join("password");
    std::fs::write(&file, "s:/@cret \n").unwrap();
    let mut command = program();
    command.args(["show", "a", "--url", &server.url(), "--password-file"]).arg(&file);
    assert_eq!(finish(&mut command, "").ends(0).stdout, "\"a\": free\n");
    std::fs::write(&file, "\n").unwrap();
    let ran = finish(&mut command, "").ends(64);
    assert!(ran.stderr.contains("password has no password"), "{ran:?}");
}

#[test]
fn newcomer_is_told_that_no_url_is_set() {
    if std::net::TcpStream::connect("127.0.0.1:6379").is_ok() {
        return leasehold_support::skip("there is a server where newcomers have one");
    }
    let words = "; neither --url nor the variable LEASEHOLD_URL or REDIS_URL says where Redis is";
    let mut command = program();
    let ran = finish(command.arg("ls"), "").ends(69);
    assert!(ran.stderr.trim_end().ends_with(words), "{ran:?}");
    let mut command = program();
    let ran = finish(command.args(["ls", "--url", "redis://127.0.0.1:1"]), "").ends(69);
    assert!(!ran.stderr.contains("--url"), "{ran:?}");
}

/// The password is read from the terminal, which does not show it.
#[test]
fn password_is_asked_for_and_not_shown() {
    let server = server();
    let client = open(&server);
    let _guard = client.mutex_with("a", long()).unwrap().lock().unwrap();
    ask::<()>(&server, &["CONFIG", "SET", "requirepass", "s:/@cret"]);
    let (mut pty, pts) = pty_process::blocking::open().expect("a terminal");
    let command = pty_process::blocking::Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["show", "a", "--ask-password"])
        .env("REDIS_URL", server.url())
        .env_remove("LEASEHOLD_URL");
    let mut child = command.spawn(pts).expect("the program");
    let mut seen = Vec::new();
    let mut answered = false;
    let mut bytes = [0; 4096];
    // The terminal hangs up when the program ends.
    while let Ok(count @ 1..) = pty.read(&mut bytes) {
        seen.extend_from_slice(&bytes[..count]);
        if !answered && seen.ends_with(b"Password: ") {
            answered = true;
            // The prompt is there a moment before the terminal shows nothing more.
            until("a terminal that shows nothing", || {
                let modes = rustix::termios::tcgetattr(&pty).expect("a terminal").local_modes;
                !modes.contains(rustix::termios::LocalModes::ECHO)
            });
            pty.write_all(b"s:/@cret\n").unwrap();
        }
    }
    let text = String::from_utf8(seen).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    assert!(text.contains("held by") && !text.contains("cret"), "{text}");
}

#[test]
fn locks_behind_sentinels_are_shown() {
    let group = Group::start(1, Duration::from_secs(5)).expect("a group");
    let sentinels = group.sentinel_urls();
    let master = format!("redis://{}", Group::MASTER);
    let client = leasehold::LockClient::builder(&master)
        .sentinels(&sentinels)
        .connect_now(true)
        .build()
        .expect("a client");
    let _guard = client.mutex_with("a", long()).unwrap().lock().unwrap();
    let mut command = program();
    command.args(["show", "a", "--url", &master]);
    sentinels.iter().for_each(|url| _ = command.args(["--sentinel", url]));
    let ran = finish(&mut command, "").ends(0);
    assert!(ran.stdout.contains("held by"), "{ran:?}");
}

#[test]
fn locks_are_shown_over_tls_with_a_client_certificate() {
    let server = server();
    let client = open(&server);
    let _guard = client.mutex_with("a", long()).unwrap().lock().unwrap();
    let authority = Authority::new("ours");
    let before = authority.sign("127.0.0.1");
    let terminator = Terminator::start(server.socket(), &before, Some(authority.pem())).unwrap();
    let ours = authority.sign("client");
    let file = |name: &str, text: &str| {
        let path = server.directory().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let mut command = program();
    command.args(["show", "a", "--url", &format!("rediss://{}", terminator.address())]);
    command.arg("--ca").arg(file("ca", authority.pem()));
    let refused = finish(&mut command, "");
    assert_ne!(refused.status, 0, "{refused:?}");
    // Another authority than the server's.
    let mut other = program();
    other.args(["show", "a", "--url", &format!("rediss://{}", terminator.address())]);
    other.arg("--ca").arg(file("other", Authority::new("other").pem()));
    let unknown = finish(&mut other, "").ends(69);
    assert!(
        unknown.stderr.contains("--ca") && !unknown.stderr.contains("ca_certificate"),
        "{unknown:?}"
    );
    command.arg("--cert").arg(file("cert", &ours.pem)).arg("--key").arg(file("key", &ours.key));
    let ran = finish(&mut command, "").ends(0);
    assert!(ran.stdout.contains("held by"), "{ran:?}");
}

/// It is no server that cannot be reached, which a script would try again.
#[test]
fn file_that_is_no_certificate_is_a_usage_error() {
    let server = server();
    let file = server.directory().join("ca");
    std::fs::write(&file, "secret\n").unwrap();
    let mut command = program();
    command.args(["ls", "--url", "rediss://127.0.0.1:1", "--ca"]).arg(&file);
    let ran = finish(&mut command, "").ends(64);
    assert!(ran.stderr.starts_with("leasehold: --ca "), "{ran:?}");
    assert!(ran.stderr.ends_with("ca: there is no PEM text in it\n"), "{ran:?}");
}
