//! The demo ends as it promises, with a server of its own.

use std::process::Command;

#[test]
fn demo_ends_as_promised() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_inventory"));
    let output = demo.env_remove("REDIS_URL").output().expect("the demo");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
}
