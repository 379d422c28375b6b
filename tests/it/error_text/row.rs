//! One line of the table.

use leasehold::Error;

/// What is only provoked where the feature `tls` is on, and where it is off.
const OF_TLS: [&str; 4] = [
    "`rediss://` to a port without TLS",
    "`rediss://` and a certificate that is no PEM text",
    "`ca_certificate` with a `redis://` URL",
    "`rediss://` without leasehold's feature `tls`",
];

/// A wrong use, and what came of it.
pub(crate) struct Row {
    did: &'static str,
    to_do: &'static str,
    text: String,
    predicate: String,
    /// Whether it could not be provoked here.
    is_skipped: bool,
}

/// What a user did, what there is to do about it, and the error.
pub(crate) fn row(did: &'static str, to_do: &'static str, error: Error) -> Row {
    row_of_text(did, to_do, &error.to_string(), predicates(&error))
}

/// The same of an error of another process, which says its text and its predicates.
pub(crate) fn row_of_text(
    did: &'static str,
    to_do: &'static str,
    text: &str,
    predicate: String,
) -> Row {
    Row { did, to_do, text: general(text), predicate, is_skipped: false }
}

/// What a user did that is no error.
pub(crate) fn fine(did: &'static str, why: &'static str) -> Row {
    row_of_text(did, why, "(no error)", "–".to_owned())
}

impl Row {
    /// A row that cannot be provoked here, whatever it says.
    pub(crate) fn skipped(did: &'static str) -> Row {
        Row { is_skipped: true, ..row_of_text(did, "", "", String::new()) }
    }

    pub(crate) fn is_skipped(&self) -> bool {
        self.is_skipped
    }

    pub(crate) fn line(&self) -> String {
        let Row { did, to_do, text, predicate, .. } = self;
        format!("| {did} | {} | {to_do} | {predicate} |", text.replace('|', "\\|"))
    }

    pub(crate) fn is_of(&self, line: &str) -> bool {
        line.starts_with(&format!("| {} | ", self.did))
    }
}

pub(crate) fn is_of_other_build(line: &str) -> bool {
    OF_TLS.iter().any(|did| line.starts_with(&format!("| {did} | ")))
}

pub(crate) fn predicates(error: &Error) -> String {
    let all = [
        ("is_timeout", error.is_timeout()),
        ("is_lost", error.is_lost()),
        ("is_not_held", error.is_not_held()),
        ("is_unreachable", error.is_unreachable()),
        ("is_unknown_outcome", error.is_unknown_outcome()),
        ("is_config", error.is_config()),
        ("is_denied", error.is_denied()),
        ("is_wrong_type", error.is_wrong_type()),
        ("is_cancelled", error.is_cancelled()),
        ("is_pool_exhausted", error.is_pool_exhausted()),
        ("is_not_replicated", error.is_not_replicated()),
        ("is_not_fsynced", error.is_not_fsynced()),
        ("is_refused", error.is_refused()),
        ("is_crowded", error.is_crowded()),
    ];
    let names: Vec<&str> =
        all.into_iter().filter(|(_, holds)| *holds).map(|(name, _)| name).collect();
    names.join(", ")
}

/// The text without what differs from run to run and from server to server: addresses, spans that were
/// measured, and the words of the server behind its code.
fn general(text: &str) -> String {
    // The schemes of TLS are listed where the feature `tls` is on.
    let text = text.replace("rediss://, ", "").replace("valkeys://, ", "");
    let text = addresses(&replies(&text));
    measured(&measured(&measured(&text, " for "), "PORT after "), "gave up after ")
}

fn addresses(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("127.0.0.1:") {
        out.push_str(&rest[..at]);
        out.push_str("HOST:PORT");
        rest = rest[at + "127.0.0.1:".len()..].trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out.push_str(rest);
    // Private sockets are all called `s`, in folders of their own.
    let words: Vec<String> = out.split(' ').map(socket).collect();
    words.join(" ")
}

fn socket(word: &str) -> String {
    let bare = word.trim_end_matches([',', ';', ')', ':']);
    let begin = bare.find('/').unwrap_or(0);
    if bare[begin..].starts_with('/') && bare.ends_with("/s") && bare.len() > begin + 8 {
        format!("{}SOCKET{}", &bare[..begin], &word[bare.len()..])
    } else {
        word.to_owned()
    }
}

/// `(CODE words of the server)` becomes `(CODE …)`.
fn replies(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('(') {
        let (before, inside) = rest.split_at(at + 1);
        out.push_str(before);
        let code: String = inside.chars().take_while(char::is_ascii_uppercase).collect();
        let end = inside.rfind("); ").or_else(|| inside.find(')')).unwrap_or(inside.len());
        let is_lookup = inside.starts_with("failed to lookup");
        if (code.len() >= 3 && code != "TLS") || is_lookup {
            let shown = if is_lookup { "failed to lookup address information:" } else { &code };
            out.push_str(shown);
            out.push_str(" …");
            rest = &inside[end..];
        } else {
            rest = inside;
        }
    }
    out.push_str(rest);
    out
}

/// The span behind each such word becomes `TIME`.
fn measured(text: &str, word: &str) -> String {
    let mut parts = text.split(word);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let span = part.split([' ', ';', ',', ':', ')']).next().unwrap_or_default();
        let is_span = span.starts_with(|c: char| c.is_ascii_digit()) && span.ends_with('s');
        out.push_str(word);
        out.push_str(if is_span { "TIME" } else { span });
        out.push_str(&part[span.len()..]);
    }
    out
}

impl Row {
    /// With another text in the place of one that differs from run to run.
    pub(crate) fn replacing(mut self, text: &str, by: &str) -> Row {
        self.text = self.text.replace(text, by);
        self
    }
}
