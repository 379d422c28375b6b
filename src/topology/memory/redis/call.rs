//! Running what a client sends: a command or, as `EVAL`, a script.

use super::command::{
    self,
    entry::{Words, read_integer},
};
use super::lua;
use super::reply::{CommandResult, ErrorReply};
use super::store::Execution;

/// Runs a script, and none of a script's own commands does.
const EVAL: &[u8] = b"EVAL";
/// EVAL, script, number of keys.
const EVAL_WORDS: usize = 3;

/// Runs a command or, as `EVAL`, a script.
pub(crate) fn call(run: &mut Execution, words: &Words) -> CommandResult {
    if words.first().is_some_and(|name| name.eq_ignore_ascii_case(EVAL)) {
        check_eval(words)?;
        return eval(run, words);
    }
    command::call(run, words)
}

/// Whether a command could be run, as far as its name and its arity tell.
pub(super) fn check(words: &Words) -> Result<(), ErrorReply> {
    if words.first().is_some_and(|name| name.eq_ignore_ascii_case(EVAL)) {
        check_eval(words)
    } else {
        command::find(words).map(|_| ())
    }
}

fn check_eval(words: &Words) -> Result<(), ErrorReply> {
    if words.len() < EVAL_WORDS { Err(ErrorReply::arity(EVAL)) } else { Ok(()) }
}

fn eval(run: &mut Execution, words: &Words) -> CommandResult {
    let rest = &words[EVAL_WORDS..];
    let Ok(keys) = usize::try_from(read_integer(&words[2])?) else {
        return Err(ErrorReply::new("ERR Number of keys can't be negative"));
    };
    let Some((keys, arguments)) = rest.split_at_checked(keys) else {
        return Err(ErrorReply::new("ERR Number of keys can't be greater than number of args"));
    };
    lua::eval(run, &words[1], keys, arguments)
}
