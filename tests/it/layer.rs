//! The layers of src/, and a few other rules that a compiler does not know.
//!
//! The checkers take text, so that a planted violation can show that they find one.

mod circle;
mod sleep;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// From the lowest to the highest: each imports itself and those before it.
/// On top are the tests of them all, and the guide, which has no code.
const LAYERS: [&str; 11] = [
    "base", "observe", "wire", "protocol", "topology", "engine", "kind", "client", "testing",
    "tests", "guide",
];

/// Besides `wire`, whose business it is, and the server in memory, whose replies are those of a real one,
/// exactly these files name `redis`: the protocol makes its errors, the client hands its addresses on, and
/// the root shows the crate to users.
const REDIS: [&str; 18] = [
    "client/servers.rs",
    "lib.rs",
    "protocol/reply.rs",
    "protocol/durability.rs",
    "tests/outside/reply.rs",
    "topology/cluster/address.rs",
    "topology/quorum/tally.rs",
    "topology/quorum/tests.rs",
    "topology/sentinel/finding.rs",
    "topology/sentinel/follower.rs",
    "topology/sentinel/master_report.rs",
    "topology/sentinel/locate_error.rs",
    "topology/sentinel/mod.rs",
    "topology/sentinel/panel.rs",
    "topology/sentinel/query.rs",
    "topology/multi_node/node.rs",
    "topology/multi_node/quarantine.rs",
    "topology/multi_node/scatter.rs",
];

/// What r2d2 makes necessary is in one file. Its tests hold up r2d2's thread.
const R2D2: [&str; 2] = ["wire/pool/adapter.rs", "wire/pool/adapter/tests.rs"];
/// What talks to servers.
const WIRE: &str = "wire/";
/// The server in memory.
const MEMORY: &str = "topology/memory/";
/// Its commands and scripts, which other crates include as they are.
const ALONE: &str = "topology/memory/redis/";
/// Has an interpreter for each thread of the machine, also under a model checker, where many threads are one.
const LUA: &str = "topology/memory/redis/lua.rs";

/// The one file through which synchronisation comes.
const SYNC: &str = "base/sync.rs";
/// What takes its place under a model checker, and what drives that.
const CHECKER: [&str; 2] = ["base/model/", "tests/schedule/"];

/// What must come from there.
const SYNC_PATHS: [&str; 6] =
    ["std::sync", "std::thread", "core::sync", "parking_lot", "crossbeam_channel", "crossbeam"];

/// Every file of this folder with this ending, by its path there.
fn files(folder: &str, ending: &str) -> BTreeMap<String, String> {
    fn walk(root: &Path, folder: &Path, ending: &str, found: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(root, &path, ending, found);
            } else if path.extension().is_some_and(|its| its == ending) {
                let name = path.strip_prefix(root).expect("under the root").display().to_string();
                found.insert(name, std::fs::read_to_string(&path).expect("a text"));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut found = BTreeMap::new();
    walk(&root, &root, ending, &mut found);
    found
}

fn sources() -> BTreeMap<String, String> {
    files("src", "rs")
}

/// The code alone: comments and the contents of literals become blanks, lines stay where they are.
fn code(text: &str) -> String {
    let bytes: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let blank = |letter: char| if letter == '\n' { '\n' } else { ' ' };
    while at < bytes.len() {
        let rest = &bytes[at..];
        let end = if rest.starts_with(&['/', '/']) {
            at + rest.iter().position(|&letter| letter == '\n').unwrap_or(rest.len())
        } else if rest.starts_with(&['/', '*']) {
            block_comment(&bytes, at)
        } else if let Some(end) = literal(&bytes, at) {
            end
        } else {
            out.push(bytes[at]);
            at += 1;
            continue;
        };
        out.extend(bytes[at..end].iter().map(|&letter| blank(letter)));
        at = end;
    }
    out
}

fn block_comment(text: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < text.len() {
        if text[at..].starts_with(&['/', '*']) {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with(&['*', '/']) {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Where the literal ends that begins here, if one does.
fn literal(text: &[char], at: usize) -> Option<usize> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let after_word = at > 0 && is_word(text[at - 1]);
    match text[at] {
        '"' => Some(quoted(text, at)),
        'r' if !after_word => {
            let hashes = text[at + 1..].iter().take_while(|&&letter| letter == '#').count();
            if text.get(at + 1 + hashes) != Some(&'"') {
                return None;
            }
            let close: Vec<char> = std::iter::once('"').chain(vec!['#'; hashes]).collect();
            let body = at + 2 + hashes;
            let length = text[body..].windows(close.len()).position(|part| part == close)?;
            Some(body + length + close.len())
        }
        // A letter, and not a lifetime.
        '\'' if text.get(at + 1) == Some(&'\\') => {
            let close = text[at + 3..].iter().position(|&letter| letter == '\'')?;
            Some(at + 4 + close)
        }
        '\'' if text.get(at + 2) == Some(&'\'') => Some(at + 3),
        _ => None,
    }
}

fn quoted(text: &[char], at: usize) -> usize {
    let mut end = at + 1;
    while end < text.len() && text[end] != '"' {
        end += if text[end] == '\\' { 2 } else { 1 };
    }
    (end + 1).min(text.len())
}

/// The code without what is compiled for tests only.
fn without_tests(code: &str) -> String {
    let mut out = String::new();
    let mut rest = code;
    while let Some(start) = rest.find("#[cfg(test)]") {
        out.push_str(&rest[..start]);
        let item = &rest[start..];
        let open = item.find('{').unwrap_or(item.len());
        // `#[cfg(test)] mod tests;` has no braces.
        let end = match item.find(';') {
            Some(end) if end < open => end + 1,
            _ => {
                let mut depth = 0_usize;
                let close = item.char_indices().find(|&(_, letter)| {
                    match letter {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        _ => {}
                    }
                    letter == '}' && depth == 0
                });
                close.map_or(item.len(), |(at, _)| at + 1)
            }
        };
        rest = &item[end..];
    }
    out + rest
}

/// Where a path is named, as a whole word.
fn occurrences<'a>(code: &'a str, path: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.match_indices(path).map(|(at, _)| at).filter(move |&at| {
        let before = code[..at].chars().next_back();
        let after = code[at + path.len()..].chars().next();
        !before.is_some_and(|letter| is_word(letter) || letter == ':')
            && !after.is_some_and(is_word)
    })
}

/// The first names after `crate::`, those in braces included.
fn crate_paths(code: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        let word = |letter: &char| letter.is_alphanumeric() || *letter == '_';
        text.trim_start().chars().take_while(word).collect()
    };
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with('$') && code[at + 7..].starts_with('{') {
            continue;
        }
        let rest = &code[at + 7..];
        if !rest.trim_start().starts_with('{') {
            found.push(name(rest));
            continue;
        }
        let mut depth = 0;
        let mut begin = true;
        for (offset, letter) in rest.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => begin = true,
                _ => {}
            }
            if depth == 0 {
                break;
            }
            if depth == 1 && begin && (letter.is_alphabetic() || letter == '_') {
                found.push(name(&rest[offset..]));
                begin = false;
            }
        }
    }
    found
}

/// Where the root's re-exports come from: `pub use base::error::{Error, Result};`
fn exports(root: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for statement in code(root).split(';') {
        let Some(path) = statement.trim().strip_prefix("pub use ") else { continue };
        let layer = path.split("::").next().unwrap_or_default().trim().to_owned();
        let names = path.rsplit("::").next().unwrap_or_default();
        let names = names.trim_matches(|letter: char| "{} \n".contains(letter));
        for name in names.split(',') {
            found.insert(name.trim().to_owned(), layer.clone());
        }
    }
    found
}

/// Whether a file is compiled for tests only.
fn is_test(file: &str) -> bool {
    file.ends_with("/tests.rs") || file.contains("/tests/")
}

fn layer_of(file: &str) -> Option<usize> {
    let folder = file.split(['/', '.']).next()?;
    LAYERS.iter().position(|layer| *layer == folder)
}

/// What a file imports from a layer above its own. Tests may: they need a kind of lock, say.
fn upward(file: &str, text: &str, exports: &BTreeMap<String, String>) -> Vec<String> {
    let Some(own) = layer_of(file) else { return Vec::new() };
    let mut found = Vec::new();
    if is_test(file) {
        return found;
    }
    for name in crate_paths(&without_tests(&code(text))) {
        let layer = exports.get(&name).unwrap_or(&name);
        match LAYERS.iter().position(|known| known == layer) {
            Some(above) if above > own => found.push(format!("{file} uses crate::{name}")),
            Some(_) => {}
            None if name == "redis" => {}
            None => found.push(format!("{file} uses crate::{name}, which is in no layer")),
        }
    }
    found
}

/// Paths that lead out of the folder that stands alone.
fn outward(file: &str, text: &str) -> Vec<String> {
    let inner = file.strip_prefix(ALONE).unwrap_or(file);
    let depth = inner.matches('/').count() + usize::from(!inner.ends_with("mod.rs"));
    let out = "super::".repeat(depth + 1);
    let code = without_tests(&code(text));
    code.contains(&out).then_some(out).into_iter().collect()
}

fn names_redis(text: &str) -> bool {
    let code = code(text);
    ["redis", "r2d2"].iter().any(|path| occurrences(&code, path).next().is_some())
}

fn names_r2d2(text: &str) -> bool {
    let code = code(text);
    ["r2d2", "scheduled_thread_pool"].iter().any(|path| occurrences(&code, path).next().is_some())
}

/// Whether a file catches panics or writes to the log by itself.
fn logs(file: &str, text: &str) -> bool {
    let code = without_tests(&code(text));
    let is_tested = is_test(file) || CHECKER.iter().any(|folder| file.starts_with(folder));
    !is_tested && ["catch_unwind(", "log::"].iter().any(|path| code.contains(path))
}

/// What a file has of synchronisation that should come from `base::sync`.
fn foreign_sync(file: &str, text: &str) -> Vec<String> {
    // What is compiled for tests only may have a file of its own.
    let exempt = file == SYNC || file == LUA || is_test(file);
    if exempt || CHECKER.iter().any(|folder| file.starts_with(folder)) {
        return Vec::new();
    }
    let code = without_tests(&code(text));
    let mut found: Vec<String> = SYNC_PATHS
        .iter()
        .filter(|path| occurrences(&code, path).next().is_some())
        .map(|path| format!("{file} names {path}"))
        .collect();
    // `use std::{sync::Arc, thread};`
    for (at, _) in code.match_indices("std::{") {
        let list = code[at..].split(';').next().unwrap_or_default();
        for module in ["sync", "thread"] {
            if occurrences(list, module).next().is_some() {
                found.push(format!("{file} names std::{{…{module}…}}"));
            }
        }
    }
    // The macro needs no path.
    if code.contains("thread_local!") && !code.contains("thread_local};") && !imports_macro(&code) {
        found.push(format!("{file} names thread_local! of the prelude"));
    }
    found
}

fn imports_macro(code: &str) -> bool {
    let imports = code.split(';').filter(|line| line.trim_start().starts_with("use crate::base"));
    imports.into_iter().any(|line| line.contains("thread_local"))
}

/// The scripts by their files.
fn scripts() -> Vec<(String, String)> {
    files("src", "lua").into_iter().collect()
}

/// The formats in a script that make something else of a number than all of its digits (rule 20): `%d` is
/// as long as the platform's `long`, `%s` and `%g` write an exponent.
fn odd_formats(file: &str, text: &str) -> Vec<String> {
    let formats = text.split("string.format(").skip(1).filter_map(|call| {
        let quote = call.chars().next()?;
        call[1..].split_once(quote).map(|(format, _)| format)
    });
    let is_whole = |place: &str| {
        let (width, kind) = place.split_once('.').unwrap_or((place, ""));
        width.chars().all(|letter| letter.is_ascii_digit()) && kind.starts_with("0f")
            // In hexadecimal digits, as messages name attempts.
            || place.starts_with('x')
    };
    formats
        .filter(|format| !format.split('%').skip(1).all(is_whole))
        .map(|format| format!("{file} formats by {format}"))
        .collect()
}

/// What is never to be in src/, tests within it included.
fn leftovers(file: &str, text: &str) -> Vec<String> {
    let code = code(text);
    let banned = ["todo!", "unimplemented!", "dbg!", "select!", "println!", "print!", "eprintln!"];
    banned
        .into_iter()
        .filter(|name| {
            let before = |at: usize| code[..at].chars().next_back();
            code.match_indices(name)
                .any(|(at, _)| !before(at).is_some_and(|c| c.is_alphanumeric() || c == '_'))
        })
        .map(|name| format!("{file} has {name}"))
        .collect()
}

#[test]
fn no_module_imports_a_higher_layer() {
    let sources = sources();
    let exports = exports(&sources["lib.rs"]);
    let mut found = Vec::new();
    for (file, text) in &sources {
        assert!(file == "lib.rs" || layer_of(file).is_some(), "{file} is in no layer");
        found.extend(upward(file, text, &exports));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn only_the_wire_and_named_files_use_redis() {
    let found: BTreeSet<String> = sources()
        .into_iter()
        .filter(|(file, text)| {
            ![WIRE, MEMORY].iter().any(|folder| file.starts_with(folder)) && names_redis(text)
        })
        .map(|(file, _)| file)
        .collect();
    assert_eq!(found, REDIS.map(str::to_owned).into());
}

#[test]
fn commands_and_scripts_in_memory_stand_alone() {
    let sources = sources();
    let alone: Vec<_> = sources.iter().filter(|(file, _)| file.starts_with(ALONE)).collect();
    assert!(alone.iter().any(|(file, _)| *file == LUA));
    for (file, text) in alone {
        let found = [crate_paths(&code(text)), outward(file, text)].concat();
        assert!(found.is_empty(), "{file} uses {found:?}");
    }
}

#[test]
fn a_planted_path_out_of_a_folder_is_found() {
    let finds = |file: &str, text: &str| outward(file, text).len();
    assert_eq!(
        finds("topology/memory/redis/lua.rs", "use super::store::Run; use super::super::x;"),
        1
    );
    assert_eq!(finds("topology/memory/redis/command/key.rs", "use super::super::store::Run;"), 0);
    assert_eq!(
        finds("topology/memory/redis/command/mod.rs", "use super::super::server::Server;"),
        1
    );
    assert_eq!(finds("topology/memory/redis/mod.rs", "use super::server::Server;"), 1);
}

#[test]
fn only_one_file_uses_r2d2() {
    let sources = sources();
    let found: Vec<&String> =
        sources.iter().filter(|(_, text)| names_r2d2(text)).map(|(file, _)| file).collect();
    assert_eq!(found, R2D2);
}

#[test]
fn synchronisation_is_imported_by_one_file() {
    let found: Vec<_> =
        sources().iter().flat_map(|(file, text)| foreign_sync(file, text)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// A line that is written in another way may panic with the user's logger.
#[test]
fn two_files_catch_panics_and_log() {
    let found: Vec<_> = sources()
        .into_iter()
        .filter(|(file, text)| logs(file, text))
        .map(|(file, _)| file)
        .collect();
    assert_eq!(found, ["base/logging.rs", "base/panic.rs"]);
    assert!(logs("engine/x.rs", "fn f() { log::warn!(\"x\"); }"));
    assert!(logs("wire/x.rs", "fn f() { std::panic::catch_unwind(g); }"));
    assert!(!logs("engine/x/tests.rs", "fn f() { log::set_max_level(x); }"));
}

#[test]
fn code_has_no_leftovers_and_no_select() {
    let found: Vec<_> = sources().iter().flat_map(|(file, text)| leftovers(file, text)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn scripts_write_numbers_in_full() {
    let scripts = scripts();
    assert!(scripts.iter().any(|(_, text)| text.contains("string.format(")));
    let found: Vec<_> = scripts.iter().flat_map(|(file, text)| odd_formats(file, text)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn planted_formats_of_numbers_are_found() {
    for format in ["'%d'", "\"%s\"", "'%.0f%06d'", "'%g'", "'%.1f'", "'%i'"] {
        let text = format!("return string.format({format}, number)");
        assert_eq!(odd_formats("x.lua", &text).len(), 1, "{format}");
    }
    for format in ["'%.0f'", "'%.0f%06.0f'", "'p %.0f'", "'%x'"] {
        let text = format!("return string.format({format}, number) .. string.match(x, '%d+')");
        assert!(odd_formats("x.lua", &text).is_empty(), "{format}");
    }
}

#[test]
fn a_planted_import_of_a_higher_layer_is_found() {
    let exports = exports("pub use kind::{Guard, Mutex};\npub use base::error::{Error, Result};\n");
    let finds = |file: &str, text: &str| upward(file, text, &exports).len();
    assert_eq!(finds("base/name.rs", "use crate::wire::pool::Pool;"), 1);
    assert_eq!(finds("wire/pool.rs", "fn f() { crate::engine::hold::find() }"), 1);
    assert_eq!(finds("engine/slot.rs", "use crate::{base::Name, kind::{Guard, crate_x}};"), 1);
    assert_eq!(finds("protocol/lock_kind.rs", "fn f(guard: &crate::Guard) {}"), 1);
    assert_eq!(finds("wire/x.rs", "use crate::nowhere::Thing;"), 1);
    assert_eq!(finds("engine/slot.rs", "use crate::base::sync::Arc; use crate::Error;"), 0);
    assert_eq!(finds("wire/x/tests.rs", "use crate::engine::Engine;"), 0);
    assert_eq!(finds("base/x.rs", "#[cfg(test)]\nmod tests { use crate::kind::Guard; }"), 0);
    assert_eq!(finds("base/x.rs", "/// [`Guard`](crate::Guard)\n// crate::wire\nstruct X;"), 0);
    assert_eq!(finds("base/x.rs", "const X: &str = \"crate::wire\"; /* crate::kind */"), 0);
    assert_eq!(finds("client/x.rs", "use crate::{kind::Guard, engine::Engine, base::Name};"), 0);
}

#[test]
fn planted_foreign_synchronisation_is_found() {
    assert!(names_redis("use redis::Value;") && names_redis("fn f() -> redis::Cmd { g() }"));
    assert!(names_redis("pub use redis;") && names_r2d2("r2d2::Pool::builder()"));
    assert!(names_r2d2("use scheduled_thread_pool::ScheduledThreadPool;"));
    assert!(!names_r2d2("// r2d2\nuse crate::wire::pool::Pool;"));
    assert!(!names_redis("// redis::Value\nlet redis_url = \"redis::Value\"; my::redis_x();"));
    let finds = |text: &str| foreign_sync("engine/x.rs", text).len();
    assert_eq!(finds("use std::sync::Arc;"), 1);
    assert_eq!(finds("use std::{sync::Arc, time::Duration};"), 1);
    assert_eq!(finds("fn f() { std::thread::sleep(x); }"), 1);
    assert_eq!(finds("use parking_lot::Mutex; use crossbeam_channel::unbounded;"), 2);
    assert_eq!(finds("thread_local! { static X: u8 = 1; }"), 1);
    assert_eq!(finds("use crate::base::sync::thread_local;\nthread_local! {}"), 0);
    assert_eq!(finds("#[cfg(test)]\nmod tests { use std::thread; fn f() {} }"), 0);
    assert_eq!(finds("#[cfg(test)]\nmod tests { fn f() {} }\nuse std::thread;"), 1);
    assert_eq!(finds("/// std::sync::Mutex\nlet x = 'a'; let y = \"std::thread\";"), 0);
    assert_eq!(foreign_sync(SYNC, "use std::sync::Arc;").len(), 0);
    assert_eq!(foreign_sync("base/model/lock.rs", "use std::sync::Arc;").len(), 0);
    assert_eq!(foreign_sync("wire/batcher/tests.rs", "use std::sync::mpsc::channel;").len(), 0);
    assert_eq!(foreign_sync("wire/batcher/batch.rs", "use std::sync::mpsc::channel;").len(), 1);
    assert_eq!(foreign_sync("wire/contests.rs", "use std::sync::mpsc::channel;").len(), 1);
}

#[test]
fn planted_leftovers_are_found() {
    for text in ["todo!()", "unimplemented!(\"x\")", "dbg!(x)", "select! { }", "x::select!()"] {
        assert_eq!(leftovers("engine/x.rs", text).len(), 1, "{text}");
    }
    for text in ["// todo!()", "let dbg = 1; if dbg != 2 {}", "\"todo!()\"", "my_dbg!(x)"] {
        assert!(leftovers("engine/x.rs", text).is_empty(), "{text}");
    }
}

#[test]
fn code_reader_knows_comments_and_literals() {
    let text = "a /* b /* c */ d */ e \"f\\\" // g\" 'h' '\\'' r#\"i\" j\"# k<'l> // m\nn";
    let words: Vec<String> = code(text).split_whitespace().map(str::to_owned).collect();
    assert_eq!(words, ["a", "e", "k<'l>", "n"]);
}
