//! The drawings of `docs/how-it-works` are what `src/bin/drawing` makes of what clients and a
//! server do.

#[path = "../src/bin/drawing/make/mod.rs"]
mod make;

use std::collections::BTreeSet;

use make::Result;

const REMAKE: &str = "`cargo run --package leasehold-proof --bin drawing` makes the drawings of docs/how-it-works anew";

#[test]
fn drawings_match_the_program() -> Result<()> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(make::folder())? {
        let name = entry?.file_name().into_string().map_err(|_| "a plain name")?;
        found.extend(name.ends_with(".svg").then_some(name));
    }
    let mut made = BTreeSet::new();
    for drawing in make::all()? {
        let path = make::folder().join(drawing.file);
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        if kept != drawing.svg {
            let mut lines = kept.lines().zip(drawing.svg.lines());
            let differs = lines.find(|(kept, made)| kept != made);
            panic!("{} differs: {differs:#?}; {REMAKE}", drawing.file);
        }
        made.insert(drawing.file.to_owned());
    }
    assert_eq!(found, made, "{REMAKE}");
    Ok(())
}

#[test]
fn each_drawing_is_shown_with_a_description() -> Result<()> {
    let mut text = String::new();
    for entry in std::fs::read_dir(make::folder())? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "md") {
            text.push_str(&std::fs::read_to_string(path)?);
        }
    }
    for file in make::files() {
        let shown = text.split("![").skip(1).any(|image| {
            let Some((description, rest)) = image.split_once("](") else { return false };
            description.len() > 20 && rest.starts_with(&format!("{file})"))
        });
        assert!(shown, "no chapter shows {file} with a text for those who cannot see it");
    }
    Ok(())
}
