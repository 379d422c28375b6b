//! The library's source as tokens, and where a piece of it is.
//!
//! Line breaks, indentation, comments, and the comma that rustfmt puts behind a last item make no difference.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A file of the library.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    tokens: Vec<Range<usize>>,
    functions: Vec<Function>,
}

struct Function {
    name: String,
    /// The type or trait that it belongs to.
    owner: Option<String>,
    /// Its tokens, from `fn` to the end of its body.
    tokens: Range<usize>,
}

/// Where a piece is.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Site {
    pub(crate) path: PathBuf,
    pub(crate) line: usize,
    pub(crate) begin: usize,
    pub(crate) end: usize,
}

impl Source {
    pub(crate) fn new(path: PathBuf, text: String) -> Source {
        let tokens = tokens(&text);
        let words: Vec<&str> = tokens.iter().map(|token| &text[token.clone()]).collect();
        let functions = functions(&words);
        Source { path, text, tokens, functions }
    }

    /// The tokens of each part that a place names: `function`, `Type::function`, or a whole file by its path below `src`.
    fn parts(&self, place: &str) -> Vec<Range<usize>> {
        if place.ends_with(".rs") {
            let is_here = self.path == Path::new("src").join(place);
            return is_here.then_some(0..self.tokens.len()).into_iter().collect();
        }
        let (owner, name) = place.rsplit_once("::").map_or((None, place), |(a, b)| (Some(a), b));
        let is_meant =
            |it: &&Function| it.name == name && (owner.is_none() || it.owner.as_deref() == owner);
        self.functions.iter().filter(is_meant).map(|it| it.tokens.clone()).collect()
    }

    fn site(&self, tokens: Range<usize>) -> Site {
        let (begin, end) = (self.tokens[tokens.start].start, self.tokens[tokens.end - 1].end);
        let line = 1 + self.text[..begin].matches('\n').count();
        Site { path: self.path.clone(), line, begin, end }
    }

    /// Where these tokens are within that part.
    fn search(&self, piece: &[&str], part: Range<usize>) -> Vec<Site> {
        let is_piece = |tokens: &[Range<usize>]| {
            tokens.iter().zip(piece).all(|(token, word)| self.text[token.clone()] == **word)
        };
        let begins = self.tokens[part.clone()].windows(piece.len()).enumerate();
        let found = begins.filter(|(_, tokens)| is_piece(tokens)).map(|(at, _)| part.start + at);
        found.map(|at| self.site(at..at + piece.len())).collect()
    }
}

/// Finds the one piece that a place has.
///
/// # Errors
///
/// Says why there is not exactly one.
pub(crate) fn find(sources: &[Source], place: &str, piece: &str) -> Result<Site, String> {
    let words: Vec<&str> = tokens(piece).into_iter().map(|token| &piece[token]).collect();
    assert!(!words.is_empty(), "nothing to look for in {place}");
    let (mut parts, mut sites) = (BTreeSet::new(), BTreeSet::new());
    for source in sources {
        for part in source.parts(place) {
            parts.insert(source.site(part.clone()));
            sites.extend(source.search(&words, part));
        }
    }
    if sites.len() == 1 {
        return Ok(sites.pop_first().expect("it was counted"));
    }
    if sites.len() > 1 {
        let count = sites.len();
        return Err(format!("`{place}` has this {count} times, {}:\n{piece}", list(&sites)));
    }
    let why = match parts.len() {
        0 => format!("src has no `{place}`"),
        _ => format!("`{place}`, {}, does not have this", list(&parts)),
    };
    let elsewhere: BTreeSet<String> = sources
        .iter()
        .flat_map(|source| source.functions.iter().map(move |function| (source, function)))
        .filter(|(source, it)| !source.search(&words, it.tokens.clone()).is_empty())
        .map(|(source, it)| format!("`{}` in {}", it.name, source.path.display()))
        .collect();
    let elsewhere: Vec<String> = elsewhere.into_iter().take(5).collect();
    let hint = match elsewhere.is_empty() {
        true => "no function has it".to_owned(),
        false => format!("it is in {}", elsewhere.join(", ")),
    };
    Err(format!("{why}; {hint}:\n{piece}"))
}

fn list(sites: &BTreeSet<Site>) -> String {
    let sites = sites.iter().map(|site| format!("{}:{}", site.path.display(), site.line));
    sites.collect::<Vec<_>>().join(", ")
}

/// Where the tokens of a text are. Of an operator each letter is one.
fn tokens(text: &str) -> Vec<Range<usize>> {
    let mut tokens: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let blank = blank(rest);
        if blank > 0 {
            at += blank;
            continue;
        }
        let token = at..at + token(rest);
        at = token.end;
        let closes = [")", "]", "}"].contains(&&text[token.clone()]);
        if closes && tokens.last().is_some_and(|last| &text[last.clone()] == ",") {
            tokens.pop();
        }
        tokens.push(token);
    }
    tokens
}

/// The length of the comment or the white space at the beginning.
fn blank(rest: &str) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return rest.find("*/").map_or(rest.len(), |end| end + 2);
    }
    rest.len() - rest.trim_start().len()
}

/// The length of the token at the beginning.
fn token(rest: &str) -> usize {
    let word = word(rest);
    let (prefix, tail) = rest.split_at(word);
    let hashes = tail.len() - tail.trim_start_matches('#').len();
    if ["r", "br"].contains(&prefix) && tail[hashes..].starts_with('"') {
        let (begin, end) = (word + hashes + 1, format!("\"{}", "#".repeat(hashes)));
        return rest[begin..].find(&end).map_or(rest.len(), |at| begin + at + end.len());
    }
    let mut letters = tail.chars();
    match (prefix, letters.next(), letters.next(), letters.next()) {
        ("" | "b", Some('"'), ..) => word + quoted(tail),
        ("" | "b", Some('\''), Some('\\'), _) | ("" | "b", Some('\''), _, Some('\'')) => {
            word + quoted(tail)
        }
        // A lifetime.
        ("", Some('\''), ..) => 1 + self::word(&tail[1..]),
        ("", Some(letter), ..) => letter.len_utf8(),
        _ => word,
    }
}

/// The length of the word or number at the beginning.
fn word(rest: &str) -> usize {
    rest.find(|letter: char| !is_of_word(letter)).unwrap_or(rest.len())
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The length of a text that ends with the quote with which it begins.
fn quoted(rest: &str) -> usize {
    let quote = rest.chars().next();
    let mut is_escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        if !is_escaped && Some(letter) == quote {
            return at + 1;
        }
        is_escaped = !is_escaped && letter == '\\';
    }
    rest.len()
}

/// All functions that have a body.
fn functions(words: &[&str]) -> Vec<Function> {
    let mut functions = Vec::new();
    // What each brace that is open belongs to: a function, or what has functions; and its first token.
    let mut open: Vec<Option<(&str, bool, usize)>> = Vec::new();
    let (mut head, mut brackets) = (None, 0);
    for (at, &token) in words.iter().enumerate() {
        let next = words.get(at + 1).copied().unwrap_or_default();
        let before = at.checked_sub(1).map_or(";", |before| words[before]);
        let begins = head.is_none() && ["}", ";", "{", "]", "pub", ")", "unsafe"].contains(&before);
        match token {
            "fn" if next.starts_with(is_of_word) => {
                (head, brackets) = (Some((next, true, at)), 0);
            }
            "trait" if begins => (head, brackets) = (Some((next, false, at)), 0),
            "impl" if begins => (head, brackets) = (Some((owner(&words[at..]), false, at)), 0),
            "(" | "[" => brackets += 1,
            ")" | "]" => brackets -= 1,
            ";" if brackets == 0 => head = None,
            "{" if brackets == 0 => open.push(head.take()),
            "{" => open.push(None),
            "}" => {
                if let Some((name, true, begin)) = open.pop().flatten() {
                    let owner =
                        open.iter().rev().flatten().find(|(_, is_function, _)| !is_function);
                    functions.push(Function {
                        name: name.to_owned(),
                        owner: owner.map(|(name, ..)| (*name).to_owned()),
                        tokens: begin..at + 1,
                    });
                }
            }
            _ => {}
        }
    }
    functions
}

/// The type of an `impl`.
fn owner<'a>(words: &[&'a str]) -> &'a str {
    let (mut name, mut angles) = ("", 0);
    for pair in words.windows(2) {
        match pair[1] {
            "<" => angles += 1,
            ">" if pair[0] != "-" && pair[0] != "=" => angles -= 1,
            _ if angles > 0 => {}
            "{" | "where" => break,
            word if word.starts_with(is_of_word) && word != "dyn" => name = word,
            _ => {}
        }
    }
    name
}

#[test]
fn piece_is_found_in_its_function_however_it_is_written() {
    let text = "
impl<'a, T: Fn() -> bool> Drop for super::One<'a, T> {
    fn drop(&mut self) {
        // if self.is_over { a(b, c) }
        let (open, text) = ('{', r#\"}\"fn drop() {\"#);
        if self.is_over
            && a(
                b,
                c,
            )
        {}
    }
}
trait Two { fn drop(&self); fn give(&self) { if self.is_over {} } }
fn drop() { a(b, c) }
";
    let sources = [Source::new("src/one.rs".into(), text.to_owned())];
    let found = |place, piece| {
        find(&sources, place, piece).map(|site| (&text[site.begin..site.end], site.line))
    };
    let wrapped = "a(\n                b,\n                c,\n            )";
    assert_eq!(found("One::drop", "a(b, c)"), Ok((wrapped, 7)));
    assert_eq!(found("One::drop", "if self.is_over"), Ok(("if self.is_over", 6)));
    assert_eq!(found("Two::give", "is_over"), Ok(("is_over", 14)));
    assert_eq!(found("one.rs", "trait Two"), Ok(("trait Two", 14)));
    assert_eq!(
        found("drop", "a(b, c)"),
        Err("`drop` has this 2 times, src/one.rs:7, src/one.rs:15:\na(b, c)".to_owned())
    );
    assert_eq!(
        found("give", "a(b, c)"),
        Err("`give`, src/one.rs:14, does not have this; it is in `drop` in src/one.rs:\na(b, c)"
            .to_owned())
    );
    assert_eq!(found("gone", "d()"), Err("src has no `gone`; no function has it:\nd()".to_owned()));
}
