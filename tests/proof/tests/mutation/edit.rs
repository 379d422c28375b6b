//! The bugs planted in Rust: edits of the library's source, in `edit/*.diff`.
//!
//! An edit begins with `@@` and the path of a file. Its lines are those of a diff: with `-` or a
//! blank before them they stand in the file, once and next to each other, and those with `+` or a
//! blank take their place. A bug is at work where `mutated!("its-name")` is true. It may have
//! several edits, and an edit several bugs.

use std::path::{Path, PathBuf};
use std::{fs, iter};

/// One edit of one file.
pub(crate) struct Edit {
    pub(crate) path: PathBuf,
    pub(crate) from: String,
    pub(crate) to: String,
}

/// All edits.
pub(crate) fn all() -> Vec<Edit> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mutation/edit");
    let files = fs::read_dir(folder).expect("a folder");
    files
        .flat_map(|file| read(&fs::read_to_string(file.expect("a file").path()).expect("a text")))
        .collect()
}

fn read(text: &str) -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(path) = line.strip_prefix("@@ ") {
            edits.push(Edit { path: path.into(), from: String::new(), to: String::new() });
            continue;
        }
        let Edit { from, to, .. } = edits.last_mut().expect("a path comes first");
        let (sign, line) = line.split_at(1);
        for text in match sign {
            "-" => vec![from],
            "+" => vec![to],
            " " => vec![from, to],
            _ => panic!("no line of an edit: {sign}{line}"),
        } {
            text.extend([line, "\n"]);
        }
    }
    edits
}

impl Edit {
    /// The numbers of the lines in a file at which the text to replace begins.
    pub(crate) fn lines(&self, text: &str) -> Vec<usize> {
        let begins = iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
        let found = begins.enumerate().filter(|&(_, at)| text[at..].starts_with(&self.from));
        found.map(|(number, _)| number + 1).collect()
    }

    /// The file's text with the edit.
    pub(crate) fn apply(&self, text: &str) -> String {
        let path = self.path.display();
        let [line] = self.lines(text)[..] else { panic!("not once in {path}:\n{}", self.from) };
        let head: String = text.split_inclusive('\n').take(line - 1).collect();
        format!("{head}{}{}", self.to, &text[head.len() + self.from.len()..])
    }

    /// The bugs that are planted by it.
    pub(crate) fn bugs(&self) -> impl Iterator<Item = &str> {
        self.to.split("mutated!(\"").skip(1).filter_map(|rest| rest.split('"').next())
    }
}

#[test]
fn edit_replaces_whole_unique_lines() {
    let edits = read("@@ a\n one\n-two\n+if mutated!(\"x\") {\n\n@@ b\n-two\n");
    assert_eq!(edits[0].apply("two\none\ntwo\n"), "two\none\nif mutated!(\"x\") {\n");
    assert!(edits[0].bugs().eq(["x"]));
    assert_eq!(edits[1].apply("two a\ntwo\n"), "two a\n");
    assert_eq!(edits[1].lines("two\none\ntwo\n"), [1, 3]);
}
