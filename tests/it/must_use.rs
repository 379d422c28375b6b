//! What rustc says of a guard that nobody keeps. Its own hint is `let _ = …`, which drops the guard at once: the text says so.

use std::path::Path;

/// The texts of all files below this folder.
fn sources(folder: &Path, texts: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, texts);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            texts.push(std::fs::read_to_string(&path).expect("a text"));
        }
    }
}

#[test]
fn unused_guard_is_said_to_need_a_name() {
    let mut texts = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kind"), &mut texts);
    let lines = texts.iter().flat_map(|text| text.lines());
    let of_guards: Vec<&str> =
        lines.filter(|line| line.contains("must_use = \"if unused")).collect();
    assert!(of_guards.len() >= 7, "{of_guards:#?}");
    for line in of_guards {
        assert!(line.contains("also with `let _ = …`") && line.contains("`_guard`"), "{line}");
    }
}

/// The name of the part that is not `Send` is the advice, so it comes before all others.
#[test]
fn guard_begins_with_an_advice_for_what_is_not_send() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kind/hold.rs");
    let text = std::fs::read_to_string(path).expect("a text");
    let (_, fields) = text.split_once("struct ThreadHeld {").expect("what guards are made of");
    assert!(
        fields.trim_start().starts_with("_advice: PhantomData<*const UseAnOwnedLease"),
        "{fields}"
    );
}
