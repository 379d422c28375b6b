//! The copy of the workspace in which the bugs are planted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::edit::Edit;

/// Makes a folder a copy of the workspace with these edits.
pub(crate) fn plant(edits: &[Edit], folder: &Path) {
    let mut files = read();
    for edit in edits {
        let text = files.get_mut(&edit.path).expect("a file with edits");
        *text = edit.apply(str::from_utf8(text).expect("a text")).into_bytes();
    }
    write(&files, folder);
}

/// The files of the workspace.
pub(crate) fn read() -> BTreeMap<PathBuf, Vec<u8>> {
    let root = crate::root();
    let text = |path: &PathBuf| fs::read(root.join(path)).expect("a file");
    paths(&root).into_iter().map(|path| (path.clone(), text(&path))).collect()
}

/// Makes a folder have these files and no others. Those that are equal already are not written, so that cargo builds
/// only the others.
pub(crate) fn write(files: &BTreeMap<PathBuf, Vec<u8>>, folder: &Path) {
    for path in paths(folder).difference(&files.keys().cloned().collect()) {
        fs::remove_file(folder.join(path)).expect("a file of an earlier copy");
        // And the folders that are empty now: to cargo each below `examples` is a package.
        for folder_of_it in path.ancestors().skip(1).take_while(|it| *it != Path::new("")) {
            _ = fs::remove_dir(folder.join(folder_of_it));
        }
    }
    for (path, text) in files {
        let path = folder.join(path);
        if fs::read(&path).is_ok_and(|before| before == *text) {
            continue;
        }
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
}

/// The files below a folder, without what cargo built and what git keeps.
fn paths(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).into_iter().flatten() {
            let entry = entry.expect("an entry");
            let path = folder.join(entry.file_name());
            if !entry.path().is_dir() {
                found.insert(path);
            } else if !is_left_out(&entry.path()) {
                folders.push(path);
            }
        }
    }
    found
}

/// Also without its tag, as in a target folder that was copied in part: the copy lies in there, and would grow by itself
/// each time.
fn is_left_out(folder: &Path) -> bool {
    folder.ends_with(".git") || folder.ends_with("target") || folder.join("CACHEDIR.TAG").exists()
}
