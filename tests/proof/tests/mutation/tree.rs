//! The copy of the workspace in which the bugs are planted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Makes a folder a copy of the workspace, but for the texts of these files, and with a mark in its version. Files that are equal already are not
/// written, so that cargo builds only the others.
pub(crate) fn plant(texts: BTreeMap<PathBuf, String>, mark: &str, folder: &Path) {
    let mut files: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    let root = crate::root();
    for path in paths(&root) {
        files.insert(path.clone(), fs::read(root.join(path)).expect("a file"));
    }
    files.extend(texts.into_iter().map(|(path, text)| (path, text.into_bytes())));
    // Cargo tells packages apart by their places in the workspace, and not by that of the workspace: with the same version it
    // would take what it built of the original.
    let manifest = files.get_mut(Path::new("Cargo.toml")).expect("the workspace");
    let text = str::from_utf8(manifest).expect("a text");
    let (before, after) = text.split_once("\nversion = \"").expect("a version");
    let (version, after) = after.split_once('"').expect("its end");
    *manifest = format!("{before}\nversion = \"{version}+{mark}\"{after}").into_bytes();
    for path in paths(folder).difference(&files.keys().cloned().collect()) {
        fs::remove_file(folder.join(path)).expect("a file of an earlier copy");
        // And the folders that are empty now: to cargo each below `examples` is a package.
        for folder_of_it in path.ancestors().skip(1).take_while(|it| *it != Path::new("")) {
            _ = fs::remove_dir(folder.join(folder_of_it));
        }
    }
    for (path, text) in files {
        let path = folder.join(path);
        if fs::read(&path).is_ok_and(|before| before == text) {
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
