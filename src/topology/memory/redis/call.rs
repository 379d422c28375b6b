//! Runs a client's request: a command or, as `EVAL`, a script.

use super::command::{
    self,
    entry::{Words, read_integer},
};
use super::lua;
use super::reply::{CommandResult, ErrorReply};
use super::store::Execution;

/// The command that runs a script. Not in the table of commands, since a script may not call it.
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

/// Checks the name and the arity of a command, without running it.
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
