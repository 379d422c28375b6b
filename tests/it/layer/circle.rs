//! Circles: files of src/ each of which needs the next, and the last the first.
//!
//! A file needs another where it names an item that is defined there, be it through a re-export. A re-export
//! itself needs nothing: a folder's `mod.rs` may show what its children have, and they may use it.

use std::collections::{BTreeMap, BTreeSet};

use super::{code, is_test, occurrences, sources, without_tests};

/// Names from the root of the crate.
type Names = Vec<String>;
/// Which files each file needs.
type Needs = BTreeMap<String, BTreeSet<String>>;

struct Modules {
    /// The file of each module, and its code.
    files: BTreeMap<Names, (String, String)>,
    /// What a re-export, by its module and name, stands for.
    exports: BTreeMap<Names, Names>,
}

impl Modules {
    fn of(sources: &BTreeMap<String, String>) -> Modules {
        let files = sources.iter().filter(|(file, _)| !is_test(file));
        let files = files
            .map(|(file, text)| (module(file), (file.clone(), without_tests(&code(text)))))
            .collect();
        let mut modules = Modules { files, exports: BTreeMap::new() };
        for (module, (_, code)) in &modules.files {
            for (path, name) in paths(code).exports {
                if let (Some(names), Some(name)) = (modules.absolute(module, &path), name) {
                    modules.exports.insert([module.as_slice(), &[name]].concat(), names);
                }
            }
        }
        modules
    }

    /// The same path from the root; `None` if it begins in another crate, or with an item.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Names> {
        let child =
            |name: &String| self.files.contains_key(&[module, std::slice::from_ref(name)].concat());
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([module, &path[1..]].concat()),
            "super" => {
                let up = path.iter().take_while(|name| *name == "super").count();
                Some([&module[..module.len().checked_sub(up)?], &path[up..]].concat())
            }
            _ if child(&path[0]) => Some([module, path].concat()),
            _ => None,
        }
    }

    /// The module where the item of a path is defined.
    fn home(&self, names: Names) -> Names {
        let mut names = names;
        // One that shows itself is a module within a file, which is no module here.
        for _ in 0..self.exports.len() {
            let length = self.depth(&names);
            let shown = names.get(..=length).and_then(|export| self.exports.get(export));
            let Some(shown) = shown else { break };
            names = [shown, &names[length + 1..]].concat();
        }
        names.truncate(self.depth(&names));
        names
    }

    /// How many of these names are those of modules.
    fn depth(&self, names: &[String]) -> usize {
        let is_module = |length: &usize| self.files.contains_key(&names[..*length]);
        (1..=names.len()).take_while(is_module).last().unwrap_or(0)
    }

    fn needs(&self) -> Needs {
        let mut needs = Needs::new();
        // The root lists the crate's modules, and shows what they have.
        for (module, (file, code)) in self.files.iter().filter(|(module, _)| !module.is_empty()) {
            let homes = paths(code).uses.into_iter().filter_map(|path| {
                let home = self.home(self.absolute(module, &path)?);
                (home != *module && !home.is_empty()).then(|| self.files[&home].0.clone())
            });
            needs.insert(file.clone(), homes.collect());
        }
        needs
    }
}

fn module(file: &str) -> Names {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    if path == "lib" { Names::new() } else { path.split('/').map(str::to_owned).collect() }
}

#[derive(Default)]
struct Paths {
    uses: Vec<Names>,
    /// Each with the name that it shows, if that is one.
    exports: Vec<(Names, Option<String>)>,
}

/// The paths in the imports of a code, and all others of more than one name.
fn paths(code: &str) -> Paths {
    let mut found = Paths::default();
    let mut rest = String::new();
    let mut end = 0;
    for at in occurrences(code, "use") {
        let statement = &code[at..];
        let Some(length) = statement.find(';').filter(|_| statement.starts_with("use ")) else {
            continue;
        };
        rest.push_str(&code[end..at]);
        end = at + length;
        let before = code[..at].trim_end();
        let is_export = before.ends_with("pub")
            || before
                .rsplit_once("pub(")
                .is_some_and(|(_, scope)| scope.find(')') == scope.len().checked_sub(1));
        for path in branches(&statement[4..length]) {
            let (path, alias) = path.split_once(" as ").unwrap_or((&path, ""));
            let names: Names = path.split("::").map(|name| name.trim().to_owned()).collect();
            if is_export {
                let alias = (!alias.is_empty()).then(|| alias.trim().to_owned());
                let name = alias.or_else(|| names.last().cloned());
                found.exports.push((names, name));
            } else {
                found.uses.push(names);
            }
        }
    }
    rest.push_str(&code[end..]);
    found.uses.extend(inline(&rest));
    found
}

/// The paths of an import, which may have braces in braces.
fn branches(tree: &str) -> Vec<String> {
    let Some(open) = tree.find('{') else { return vec![tree.trim().to_owned()] };
    let (stem, body) = (&tree[..open], &tree[open + 1..]);
    let mut found = Vec::new();
    let (mut depth, mut begin) = (0_usize, 0);
    for (at, letter) in body.char_indices() {
        let ends = depth == 0 && (letter == ',' || letter == '}');
        if ends && !body[begin..at].trim().is_empty() {
            let inner = branches(&body[begin..at]);
            found.extend(inner.iter().map(|branch| format!("{}{branch}", stem.trim_start())));
        }
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            _ => {}
        }
        if ends {
            begin = at + 1;
        }
    }
    found
}

/// The paths of more than one name outside of imports.
fn inline(code: &str) -> Vec<Names> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let is_path = |letter: char| is_word(letter) || letter == ':';
    code.split(|letter: char| !(is_path(letter) || letter == '$'))
        .filter(|path| path.contains("::") && path.starts_with(is_word))
        .map(|path| path.split("::").map(str::to_owned).collect())
        .collect()
}

/// The files of a circle, if there is one.
fn circle(needs: &Needs) -> Option<Vec<String>> {
    fn visit(
        file: &String,
        needs: &Needs,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        if let Some(begin) = way.iter().position(|other| other == file) {
            return Some(way[begin..].to_vec());
        }
        if done.contains(file) {
            return None;
        }
        way.push(file.clone());
        let found = needs.get(file)?.iter().find_map(|other| visit(other, needs, way, done));
        way.pop();
        done.insert(file.clone());
        found
    }
    let mut done = BTreeSet::new();
    needs.keys().find_map(|file| visit(file, needs, &mut Vec::new(), &mut done))
}

#[test]
fn files_import_each_other_in_no_circle() {
    if let Some(files) = circle(&Modules::of(&sources()).needs()) {
        panic!("a circle: {}", files.join(" needs "));
    }
}

#[test]
fn planted_circle_is_found() {
    let finds = |files: &[(&str, &str)]| {
        let sources = files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned()));
        circle(&Modules::of(&sources.collect()).needs()).is_some()
    };
    let root = ("lib.rs", "pub use a::b::B;");
    let top = ("a/mod.rs", "mod b;\nmod c;\npub(crate) use b::B;\npub(crate) use self::c::{C, D};");
    for back in [
        "use crate::a::b::B;",
        "use crate::a::{b::{self, B}, c};",
        "use super::b::B;",
        "use crate::a::B;",
        "use crate::B as Other;",
        "fn f() -> crate::a::b::B { g() }",
        "fn f() { super::b::g(1); }",
    ] {
        assert!(finds(&[root, top, ("a/b.rs", "use crate::a::C;"), ("a/c.rs", back)]), "{back}");
    }
    for free in [
        "// use crate::a::b::B;\nconst X: &str = \"crate::a::B\";",
        "#[cfg(test)]\nmod tests { use crate::a::b::B; }",
        "use other::a::b::B; fn f() { std::mem::take(b::x); }",
        "use crate::a::D;",
    ] {
        assert!(!finds(&[root, top, ("a/b.rs", "use crate::a::C;"), ("a/c.rs", free)]), "{free}");
    }
    // A child needs its parent, and the parent an item of it.
    let child = ("a/b.rs", "use super::A;");
    assert!(finds(&[("a/mod.rs", "mod b;\nuse b::B;\nstruct A(B);"), child]));
    assert!(finds(&[("a/mod.rs", "mod b;\nstruct A(b::B);"), child]));
    assert!(!finds(&[("a/mod.rs", "mod b;\npub(crate) use b::B;\nstruct A;"), child]));
}
