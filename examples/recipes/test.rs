//! Each recipe is a program that fails if what it shows does not hold.

use std::process::Command;

fn run(program: &str) {
    let output = Command::new(program).output().expect("the program");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{program}: {}\n{stdout}\n{stderr}", output.status);
}

macro_rules! recipes {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            run(env!(concat!("CARGO_BIN_EXE_", stringify!($name))));
        })+

        const RECIPES: &[&str] = &[$(stringify!($name)),+];
    };
}

recipes! {
    worker nightly sqlite postgres helpers blocking local jobs catalogue gpus leader limit takeover pod value
    double handler
}

#[test]
fn every_recipe_is_run() {
    let bins = include_str!("Cargo.toml").split("[[bin]]\nname = \"").skip(1);
    let bins: Vec<_> = bins.filter_map(|bin| bin.split('"').next()).collect();
    assert_eq!(bins, RECIPES);
}
