//! The bugs planted in the scripts, which `plant.rs` puts there when a script is read: `script.txt`.
//!
//! ```text
//! @ script name-of-the-bug
//! - a piece of the script, which is there once and in no other
//! + what takes its place
//! ```
//!
//! The piece and what takes its place may have several lines, and count letter by letter. A bug may have several pieces.

use std::sync::LazyLock;

/// Name, script, the piece to replace, and its replacement. One name may have several.
pub(crate) static PATCHES: LazyLock<Vec<(&str, &str, &str, &str)>> = LazyLock::new(|| {
    let patch = |block: Block| {
        let (script, name) = block.head.leak().split_once(' ').expect("a script and a bug");
        (name, script, &*block.from.leak(), &*block.to.leak())
    };
    blocks(include_str!("script.txt")).into_iter().map(patch).collect()
});

/// A piece to replace.
#[derive(Clone)]
pub(crate) struct Block {
    /// Where it is.
    pub(crate) head: String,
    pub(crate) from: String,
    pub(crate) to: String,
}

/// Reads a text with bugs. A line with `@` says where the pieces below it are. Those with `-` are a piece, and those with `+`
/// take its place. A line with `#` is a comment.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut head, mut last) = ("", "");
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (sign, rest) = line.split_at(1);
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        match sign {
            "@" => head = rest,
            "-" if last != sign => {
                let (head, from) = (head.to_owned(), rest.to_owned());
                blocks.push(Block { head, from, to: String::new() });
            }
            "-" | "+" => {
                let block = blocks.last_mut().expect("a piece comes first");
                let text = if sign == "-" { &mut block.from } else { &mut block.to };
                if last == sign {
                    text.push('\n');
                }
                text.push_str(rest);
            }
            _ => panic!("no line of a planted bug: {line}"),
        }
        last = sign;
    }
    blocks
}
