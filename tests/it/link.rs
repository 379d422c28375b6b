//! The links of README, guide and CONTRIBUTING lead somewhere: in the files, as the forge shows them, and in the
//! documentation that rustdoc makes of the guide.
//!
//! A page of `docs/` links by reference only. The definition at its end holds on the forge; the one of the same label in
//! `src/guide/links.md` holds in rustdoc, which reads it first. Both must lead to the same place. rustdoc itself
//! checks that the items exist.
//!
//! The checkers take text, so that a planted dead link can show that they find one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Where the files of the package are once the crate is published.
const SOURCE: &str = "https://docs.rs/crate/leasehold/latest/source/";
/// Where rustdoc's pages are then.
const DOCS: &str = "https://docs.rs/leasehold/latest/leasehold/";
/// Items whose pages do not begin with `struct.`.
const TRAITS: [&str; 1] = ["DistributedLock"];
const ENUMS: [&str; 4] = ["Access", "LossCause", "Missed", "RunOutcome"];

/// Files by their paths from the root of the project.
type Files = BTreeMap<String, String>;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All Markdown that people read, and what it may link to.
fn files() -> Files {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<String> =
        ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(str::to_owned).into();
    for folder in ["docs", "docs/how-it-works"] {
        for entry in std::fs::read_dir(root.join(folder)).expect("the guide") {
            let entry = entry.expect("an entry");
            if entry.path().is_file() {
                let name = entry.file_name().into_string().expect("a plain name");
                paths.push(format!("{folder}/{name}"));
            }
        }
    }
    paths.extend(["LICENSE-MIT", "LICENSE-APACHE"].map(str::to_owned));
    paths.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

/// The text outside of code blocks, with blanks for the brackets inside code.
fn prose(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            out.push_str(line);
        }
        out.push('\n');
    }
    let mut clean = String::with_capacity(out.len());
    let mut rest = out.as_str();
    while let Some(start) = rest.find('`') {
        let ticks = rest[start..].chars().take_while(|&letter| letter == '`').count();
        let (before, code) = rest.split_at(start + ticks);
        clean.push_str(before);
        let Some(end) = code.find(&"`".repeat(ticks)) else {
            rest = code;
            continue;
        };
        let inside = |letter| if "[]()".contains(letter) { ' ' } else { letter };
        clean.extend(code[..end].chars().map(inside));
        clean.push_str(&code[end..end + ticks]);
        rest = &code[end + ticks..];
    }
    clean + rest
}

/// What a file links to.
#[derive(Debug, Default)]
struct Links {
    /// `[text](here)`
    inline: Vec<String>,
    /// `[text][label]`, `[label]`
    used: BTreeSet<String>,
    /// `[label]: here`
    defined: BTreeMap<String, String>,
}

impl Links {
    fn of(text: &str) -> Links {
        let mut links = Links::default();
        let mut body = String::new();
        // Brackets in a heading, as in a changelog, are no link.
        for line in prose(text).lines().filter(|line| !line.starts_with('#')) {
            match line.strip_prefix('[').and_then(|line| line.split_once("]: ")) {
                Some((label, target)) if !label.contains(']') => {
                    links.defined.insert(label.to_owned(), target.trim().to_owned());
                }
                // A label may go on in the next line.
                _ => body = body + line.trim() + " ",
            }
        }
        let mut rest = body.as_str();
        while let Some(open) = rest.find('[') {
            rest = &rest[open + 1..];
            let Some(close) = rest.find(']') else { break };
            let (text, after) = (&rest[..close], &rest[close + 1..]);
            rest = after;
            if let Some(after) = after.strip_prefix('(') {
                let (target, after) = after.split_once(')').expect("a link ends");
                links.inline.push(target.to_owned());
                rest = after;
            } else if let Some(after) = after.strip_prefix('[') {
                let (label, after) = after.split_once(']').expect("a label ends");
                links.used.insert(label.to_owned());
                rest = after;
            } else {
                links.used.insert(text.to_owned());
            }
        }
        links
    }

    fn targets(&self) -> impl Iterator<Item = &String> {
        self.inline.iter().chain(self.defined.values())
    }
}

/// The anchors of a text's headings, as forges and rustdoc make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut in_block = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        }
        let title = line.trim_start_matches('#');
        if !in_block && title.len() < line.len() && title.starts_with(' ') {
            let letters = title.trim().chars().filter_map(|letter| match letter {
                ' ' => Some('-'),
                '-' | '_' => Some(letter),
                letter if letter.is_alphanumeric() => Some(letter.to_ascii_lowercase()),
                _ => None,
            });
            found.insert(letters.collect());
        }
    }
    found
}

/// A path from the root, for one that a file has.
fn resolved(from: &str, path: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The links of a file that lead nowhere on the forge.
fn dead(file: &str, files: &Files) -> Vec<String> {
    let links = Links::of(&files[file]);
    let mut found = Vec::new();
    for label in &links.used {
        if !links.defined.contains_key(label) {
            found.push(format!("{file}: [{label}] has no definition at the end of the file"));
        }
    }
    for label in links.defined.keys() {
        if !links.used.contains(label) {
            found.push(format!("{file}: nothing uses the definition of [{label}]"));
        }
    }
    for target in links.targets().filter(|target| !target.contains("://")) {
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let path = if path.is_empty() { file.to_owned() } else { resolved(file, path) };
        match files.get(&path) {
            None => found.push(format!("{file}: {target} leads to no file")),
            Some(text) if !anchor.is_empty() && !anchors(text).contains(anchor) => {
                found.push(format!("{file}: {target} leads to no heading"));
            }
            Some(_) => {}
        }
    }
    found
}

/// Where a definition of the guide must lead on the forge, for where it leads in rustdoc.
fn twin(item: &str) -> String {
    if let Some(path) = item.strip_prefix(SOURCE) {
        return path.strip_prefix("docs/").map_or(format!("../{path}"), str::to_owned);
    }
    let (path, anchor) = item.split_once('#').unwrap_or((item, ""));
    let anchor = if anchor.is_empty() { String::new() } else { format!("#{anchor}") };
    let Some(path) = path.strip_prefix("crate::") else {
        return if anchor.is_empty() { DOCS.to_owned() } else { format!("../README.md{anchor}") };
    };
    if let Some(page) = path.strip_prefix("guide::") {
        return format!("{page}.md{anchor}");
    }
    let (folder, path) = match path.strip_prefix("testing::") {
        Some(path) => ("testing/", path),
        None => ("", path),
    };
    let (kind, member) = match path.split("::").next() {
        Some(name) if TRAITS.contains(&name) => ("trait", "tymethod"),
        Some(name) if ENUMS.contains(&name) => ("enum", "variant"),
        _ => ("struct", "method"),
    };
    match path.split_once("::") {
        Some((name, method)) => format!("{DOCS}{folder}{kind}.{name}.html#{member}.{method}"),
        None => format!("{DOCS}{folder}{kind}.{path}.html"),
    }
}

/// The links of a page of the guide that lead elsewhere, or nowhere, in rustdoc.
fn elsewhere(file: &str, text: &str, rustdoc: &BTreeMap<String, String>) -> Vec<String> {
    let links = Links::of(text);
    let mut found = Vec::new();
    for target in links.inline.iter().filter(|target| !target.contains("://")) {
        if !target.starts_with('#') {
            found.push(format!("{file}: ({target}) is dead in rustdoc; make it a reference"));
        }
    }
    for (label, target) in &links.defined {
        match rustdoc.get(label) {
            None => found.push(format!("{file}: src/guide/links.md does not define [{label}]")),
            Some(item) if twin(item) != *target => {
                found.push(format!("{file}: [{label}] should lead to {}", twin(item)));
            }
            Some(_) => {}
        }
    }
    found
}

/// The definitions that rustdoc reads, of all pages.
fn rustdoc() -> BTreeMap<String, String> {
    let texts = ["src/guide/links.md", "src/guide/testing.md"].map(read);
    texts.iter().flat_map(|text| Links::of(text).defined).collect()
}

/// What rustdoc renders too. The chapters with drawings are for the forge alone.
fn pages(files: &Files) -> impl Iterator<Item = (&String, &String)> {
    files.iter().filter(|(path, _)| path.starts_with("docs/") && path.matches('/').count() == 1)
}

/// The links in the documentation of items that lead to no heading: of the guide, or of the crate's page.
fn without_heading(text: &str, files: &Files) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("(crate") {
        let Some((target, _)) = text[at + 1..].split_once(')') else { continue };
        let Some((path, anchor)) = target.split_once('#') else { continue };
        let page = match path.strip_prefix("crate::guide::") {
            Some(page) => files.get(&format!("docs/{page}.md")),
            None if path == "crate" => files.get("src/lib.rs"),
            None => continue,
        };
        if !page.is_some_and(|page| anchors(page).contains(anchor)) {
            found.push(target.to_owned());
        }
    }
    found
}

#[track_caller]
fn none(found: Vec<String>) {
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let files = files();
    let markdown = files.keys().filter(|file| file.ends_with(".md"));
    none(markdown.flat_map(|file| dead(file, &files)).collect());
}

#[test]
fn guide_links_lead_to_the_same_place_in_rustdoc() {
    let (files, rustdoc) = (files(), rustdoc());
    none(pages(&files).flat_map(|(file, text)| elsewhere(file, text, &rustdoc)).collect());
    let used: BTreeSet<String> =
        pages(&files).flat_map(|(_, text)| Links::of(text).defined.into_keys()).collect();
    let unused = |label: &&String| !used.contains(*label);
    none(rustdoc.keys().filter(unused).cloned().collect());
}

#[test]
fn links_of_items_lead_to_headings_of_the_guide() {
    fn walk(folder: &Path, texts: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, texts);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                texts.push(std::fs::read_to_string(&path).expect("a text"));
            }
        }
    }
    let mut files = files();
    let root = read("src/lib.rs");
    let docs: Vec<&str> = root.lines().filter_map(|line| line.strip_prefix("//! ")).collect();
    files.insert("src/lib.rs".to_owned(), docs.join("\n"));
    let mut texts = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut texts);
    none(texts.iter().flat_map(|text| without_heading(text, &files)).collect());
    for link in ["(crate#nowhere)", "(crate::guide::limits#nowhere)", "(crate::guide::none#limits)"]
    {
        assert_eq!(without_heading(link, &files).len(), 1, "{link}");
    }
}

#[test]
fn every_page_is_a_module_and_is_listed() {
    let (files, modules, root) = (files(), read("src/guide.rs"), read("src/lib.rs"));
    let index = Links::of(&files["docs/README.md"]).defined;
    for (file, _) in pages(&files) {
        let page = file.trim_start_matches("docs/").trim_end_matches(".md");
        let named = [format!("page!({page});"), format!("pub mod {page} {{}}")];
        let is_module = named.iter().any(|text| modules.contains(text));
        assert!(page == "README" || is_module, "{file} is no module of src/guide.rs");
        assert!(page == "README" || index.contains_key(page), "docs/README.md lacks {file}");
        let listed = root.contains(&format!("(guide::{page})"));
        assert!(page == "README" || listed, "the list in src/lib.rs lacks {file}");
    }
}

#[test]
fn files_that_readme_links_to_are_packaged() {
    let manifest = read("Cargo.toml");
    for target in Links::of(&read("README.md")).targets().filter(|it| !it.contains("://")) {
        let top = target.split(['/', '#']).next().expect("a path");
        let entries = [format!("\"/{top}\""), format!("\"/{}*\"", &top[..top.len().min(8)])];
        let is_included = entries.iter().any(|entry| manifest.contains(entry));
        assert!(is_included, "Cargo.toml does not include {top}");
    }
}

#[test]
fn promise_reads_the_same_everywhere() {
    let words = |text: &str, mark: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(mark));
        lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
    };
    let (readme, crate_docs) =
        (words(&read("README.md"), "> "), words(&read("src/lib.rs"), "//! > "));
    assert!(readme.len() > 80, "README.md has no promise");
    assert_eq!(readme, crate_docs);
}

#[test]
fn planted_dead_links_are_found() {
    let finds = |text: &str| {
        let other = "# One heading\n```sh\n# no heading\n```\n";
        let files: Files = [("docs/a.md", text), ("docs/b.md", other), ("README.md", "")]
            .map(|(path, text)| (path.to_owned(), text.to_owned()))
            .into();
        dead("docs/a.md", &files)
    };
    for text in [
        "[x](c.md)",
        "[x](b.md#another-heading)",
        "[x](b.md#no-heading)",
        "[x](../docs.md)",
        "[x](#nowhere)",
        "[x]",
        "[x][y]",
        "[y]: b.md",
        "[x][y]\n\n[y]: c.md",
    ] {
        assert_eq!(finds(text).len(), 1, "{text}: {:?}", finds(text));
    }
    for text in [
        "[x](b.md)",
        "[x](b.md#one-heading)",
        "[x](../README.md)",
        "# X\n[x](#x)",
        "[a\nb][y]\n\n[y]: b.md",
        "[`y`] `[z]`\n\n[`y`]: b.md",
        "[y] and [y]: text\n\n[y]: b.md",
        "```text\n[x]\n```\n",
        "[x](https://example.org)",
    ] {
        assert!(finds(text).is_empty(), "{text}: {:?}", finds(text));
    }
}

#[test]
fn planted_links_that_differ_in_rustdoc_are_found() {
    let rustdoc: BTreeMap<String, String> = [
        ("b", "crate::guide::b"),
        ("b#c", "crate::guide::b#c"),
        ("`Guard::check`", "crate::Guard::check"),
        ("`LossCause::Taken`", "crate::LossCause::Taken"),
    ]
    .map(|(label, item)| (label.to_owned(), item.to_owned()))
    .into();
    let finds = |text: &str| elsewhere("docs/a.md", text, &rustdoc).len();
    assert_eq!(finds("[x](b.md)"), 1);
    assert_eq!(finds("[x][d]\n\n[d]: d.md"), 1);
    assert_eq!(finds("[x][b]\n\n[b]: c.md"), 1);
    assert_eq!(finds("[x][b#c]\n\n[b#c]: b.md"), 1);
    assert_eq!(finds(&format!("[`Guard::check`]\n\n[`Guard::check`]: {DOCS}struct.Guard.html")), 1);
    let check = format!("[`Guard::check`]: {DOCS}struct.Guard.html#method.check");
    assert_eq!(finds(&format!("[x][`Guard::check`]\n\n{check}")), 0);
    let taken = format!("[`LossCause::Taken`]: {DOCS}enum.LossCause.html#variant.Taken");
    assert_eq!(finds(&format!("[`LossCause::Taken`]\n\n{taken}")), 0);
    assert_eq!(finds("[x][b] [y][b#c] [z](#a)\n\n[b]: b.md\n[b#c]: b.md#c"), 0);
}
