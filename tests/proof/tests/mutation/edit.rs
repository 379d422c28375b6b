//! The bugs planted in Rust: edits of the library's source, in `edit/*.txt`.
//!
//! ```text
//! @ function
//! - a piece of it
//! + what takes its place, where $ stands for the piece
//! ```
//!
//! The function may be in any file of `src`, so that code can move. If several have its name, and the piece, its type is
//! named too, `Type::function`. Outside of functions the place is the path of a file below `src`. More pieces of the same
//! place may follow. A bug is at work where `mutated!("its-name")` is true. It may have several edits, and an edit several
//! bugs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::script::{Block, blocks};
use crate::source::{Site, Source, find};

/// All edits, with the place of each.
///
/// # Errors
///
/// Says which do not fit.
pub(crate) fn all(sources: &[Source]) -> Result<Vec<(Site, Block)>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mutation/edit");
    let files = fs::read_dir(folder).expect("a folder");
    let texts = files.map(|file| fs::read_to_string(file.expect("a file").path()).expect("a text"));
    fit(texts.flat_map(|text| blocks(&text)), sources)
}

fn fit(
    edits: impl Iterator<Item = Block>,
    sources: &[Source],
) -> Result<Vec<(Site, Block)>, String> {
    let (mut fitting, mut wrong) = (Vec::new(), Vec::new());
    for edit in edits {
        match find(sources, &edit.head, &edit.from) {
            Ok(site) => fitting.push((site, edit)),
            Err(why) => {
                let bugs: Vec<&str> = bugs(&edit).collect();
                wrong.push(format!("{}: {why}\nto put there:\n{}", bugs.join(", "), edit.to));
            }
        }
    }
    fitting.sort_by(|(one, _), (other, _)| one.cmp(other));
    for pair in fitting.windows(2) {
        let [(one, a), (other, b)] = pair else { continue };
        if one.path == other.path && other.begin < one.end {
            wrong.push(format!("in {} these overlap:\n{}\n{}", one.path.display(), a.from, b.from));
        }
    }
    if wrong.is_empty() { Ok(fitting) } else { Err(wrong.join("\n\n")) }
}

/// The texts of the files that have edits, with all of them.
pub(crate) fn planted(edits: &[(Site, Block)], sources: &[Source]) -> BTreeMap<PathBuf, String> {
    let mut texts: BTreeMap<PathBuf, String> =
        sources.iter().map(|source| (source.path.clone(), source.text.clone())).collect();
    // From the end, so that the places of the others stay.
    for (site, edit) in edits.iter().rev() {
        let text = texts.get_mut(&site.path).expect("a file with edits");
        let put = edit.to.replace('$', &text[site.begin..site.end]);
        text.replace_range(site.begin..site.end, &put);
    }
    texts
}

/// The bugs that are planted by an edit.
pub(crate) fn bugs(edit: &Block) -> impl Iterator<Item = &str> {
    edit.to.split("mutated!(\"").skip(1).filter_map(|rest| rest.split('"').next())
}

#[test]
fn edits_replace_pieces_and_say_where_they_do_not_fit() {
    let text = "fn one() { a(); b }\nfn two() { a(); a() }\n";
    let sources = [Source::new("src/one.rs".into(), text.to_owned())];
    let fit = |edits: &str| fit(blocks(edits).into_iter(), &sources);
    let edits =
        "# Text.\n@ one\n- b\n+ $ || mutated!(\"x\")\n- a();\n\n@ two\n- a()\n-  }\n+ c }\n";
    let edits = fit(edits).unwrap();
    assert_eq!(
        planted(&edits, &sources)[Path::new("src/one.rs")],
        "fn one() {  b || mutated!(\"x\") }\nfn two() { a(); c }\n"
    );
    assert!(edits.iter().flat_map(|(_, edit)| bugs(edit)).eq(["x"]));
    assert_eq!(
        fit("@ two\n- a()\n+ mutated!(\"y\")\n").err().as_deref(),
        Some(
            "y: `two` has this 2 times, src/one.rs:2, src/one.rs:2:\na()\nto put there:\nmutated!(\"y\")"
        )
    );
    assert_eq!(fit("@ one\n- a();\n- b\n").err().as_deref(), None, "lines of one piece");
    assert_eq!(
        fit("@ one\n- a(); b\n+ 1\n- b\n+ 2\n").err().as_deref(),
        Some("in src/one.rs these overlap:\na(); b\nb")
    );
}
