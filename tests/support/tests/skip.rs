//! A test that cannot run here reports that, past the capture of its output.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use leasehold_support::{Server, or_skip};

const PLAYED: &str = "LEASEHOLD_SKIP_PLAYED";

/// Passes where it has its server; the other test runs it where it has not.
#[test]
fn role_that_needs_a_later_server() {
    let Some(server) = or_skip(Server::builder().since(7, 2).start()) else { return };
    assert!(env::var_os(PLAYED).is_none(), "{} was to be had", server.version());
}

#[test]
fn skipped_test_is_reported_although_it_passes() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("skip");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let (old, list) = (folder.join("old-server"), folder.join("skips"));
    fs::write(&old, "#!/bin/sh\necho 'Redis server v=7.0.15 sha=0'\n").unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).unwrap();
    for _ in 0..2 {
        let output = Command::new(env::current_exe().unwrap())
            .args(["role_that_needs_a_later_server", "--exact"])
            .env(PLAYED, "yes")
            .env("LEASEHOLD_SERVER_BIN", &old)
            .env("LEASEHOLD_SKIPS", &list)
            // Nothing was fetched there, and nothing that fetches is to be found.
            .env("CARGO_TARGET_DIR", &folder)
            .env("PATH", &folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.starts_with("SKIPPED: role_that_needs_a_later_server: "), "{output:?}");
        assert!(text.contains("older than 7.2"), "{text}");
    }
    assert_eq!(
        fs::read_to_string(&list)
            .unwrap()
            .matches("SKIPPED: role_that_needs_a_later_server")
            .count(),
        2
    );
}
