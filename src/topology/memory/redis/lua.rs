//! Scripts: Lua 5.1, as in Redis, over the commands of this server.
//!
//! Replies become Lua values, and the value that a script returns becomes a reply, by the rules of
//! Redis. Absent are `cjson`, `cmsgpack`, `struct` and `bit`; `os`, `coroutine` and `rawset`;
//! `load` and `loadstring`; `math.random`; and the parts of `redis` about RESP3, replication and
//! breakpoints.
//!
//! Each thread has one interpreter, whose globals no script can write, so that no run affects the
//! next one. Each script is compiled once, which saves most of its time. A script neither starts a
//! thread nor waits. So the interpreter also works under a model checker, which runs all threads on
//! one: it outlives a schedule, and nothing in it depends on the schedule.

use std::cell::{Cell, RefCell};
use std::mem;
use std::rc::Rc;

use mlua::{
    Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value as LuaValue, VmState,
};
use redis::Value;

use super::command;
use super::reply::{CommandResult, ErrorReply};
use super::store::Execution;

/// More scripts than a program has. A test that makes a new script each time must not fill the
/// memory.
const MAX_COMPILED: usize = 256;
/// The limit for an endless script: a tick is this number of instructions…
const TICK: u32 = 100_000;
/// …and this number of ticks takes about a second.
const MAX_TICKS: u32 = 1_000;
/// How deep a table that a script returns may be nested.
const MAX_DEPTH: usize = 64;
/// From here on `%.17g` prints an exponent.
const LONG: u64 = 100_000_000_000_000_000;

thread_local! {
    static INTERPRETER: RefCell<Option<Interpreter>> = const { RefCell::new(None) };
}

/// Runs a script with these keys and arguments.
pub(super) fn eval(
    run: &mut Execution,
    script: &[u8],
    keys: &[Vec<u8>],
    arguments: &[Vec<u8>],
) -> CommandResult {
    // `try_with` fails in the destructor of another thread-local value, where a guard may release
    // its lock. `try_borrow_mut` fails if a script is running on this thread already.
    let in_this_thread = INTERPRETER.try_with(|interpreter| {
        let mut interpreter = interpreter.try_borrow_mut().ok()?;
        // Made on first use: most threads of a test never run a script.
        let made = interpreter.take().map_or_else(Interpreter::new, Ok);
        let outcome = made.map(|made| interpreter.insert(made).eval(run, script, keys, arguments));
        Some(outcome.unwrap_or_else(|error| Err(odd(&error))))
    });
    if let Ok(Some(outcome)) = in_this_thread {
        return outcome;
    }
    // A new one for this call: slower, and always possible.
    match Interpreter::new() {
        Ok(mut interpreter) => interpreter.eval(run, script, keys, arguments),
        Err(error) => Err(odd(&error)),
    }
}

/// An error of the interpreter and not of a command.
fn odd(error: &mlua::Error) -> ErrorReply {
    ErrorReply::new(format!("ERR {error}"))
}

struct Interpreter {
    lua: Lua,
    /// The environment of all scripts. It cannot be written, and reads from `globals`.
    environment: Table,
    globals: Table,
    /// Runs a compiled script, and returns an error as a reply.
    main: Function,
    compiled: Vec<(Vec<u8>, Function)>,
    /// Holds the store while a script runs, for the closures that Lua owns. They must be `'static`,
    /// so they cannot borrow it from the caller.
    run: Rc<RefCell<Execution>>,
    ticks: Rc<Cell<u32>>,
}

impl Interpreter {
    fn new() -> mlua::Result<Interpreter> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let (run, ticks) = (Rc::<RefCell<Execution>>::default(), Rc::<Cell<u32>>::default());
        let store = Rc::clone(&run);
        let call = lua.create_function(move |lua, words: MultiValue| {
            let outcome = words_of(lua, &words)?
                .and_then(|words| command::call(&mut store.borrow_mut(), &words));
            to_lua(lua, outcome)
        })?;
        let sha1hex = lua.create_function(|_, text: mlua::LuaString| {
            let text = text.to_string_lossy();
            Ok(redis::Script::new(&text).get_hash().to_owned())
        })?;
        let (count, seen) = (Rc::clone(&ticks), Rc::clone(&ticks));
        let is_over = lua.create_function(move |_, ()| Ok(seen.get() > MAX_TICKS))?;
        let is_known = lua.create_function(|lua, words: MultiValue| {
            Ok(words_of(lua, &words)?.is_ok_and(|words| command::find(&words).is_ok()))
        })?;
        // Counts instructions and not time, so that a slow machine does not end a script that a
        // fast one would finish. The error is raised at each further tick as well: a script may
        // catch it with `pcall`, and `is_over` lets the sandbox end it then.
        lua.set_hook(HookTriggers::new().every_nth_instruction(TICK), move |_, _| {
            count.set(count.get() + 1);
            if count.get() > MAX_TICKS {
                return Err(mlua::Error::runtime("the script does not end"));
            }
            Ok(VmState::Continue)
        })?;
        let sandbox = lua.load(include_str!("sandbox.lua")).set_name("=sandbox.lua");
        let (environment, globals, main) = sandbox.call((call, sha1hex, is_over, is_known))?;
        Ok(Interpreter { lua, environment, globals, main, compiled: Vec::new(), run, ticks })
    }

    fn eval(
        &mut self,
        run: &mut Execution,
        script: &[u8],
        keys: &[Vec<u8>],
        arguments: &[Vec<u8>],
    ) -> CommandResult {
        let compiled = self.compile(script)?;
        // Swapped in and out again before any `?`: an early return would leave the caller without
        // its store.
        mem::swap(run, &mut self.run.borrow_mut());
        self.ticks.set(0);
        let reply = self.call(&compiled, keys, arguments);
        mem::swap(run, &mut self.run.borrow_mut());
        match reply.map_err(|error| odd(&error))? {
            LuaReply::Error(error) => Err(error),
            LuaReply::Value(value) => Ok(value),
        }
    }

    fn compile(&mut self, script: &[u8]) -> Result<Function, ErrorReply> {
        if let Some((_, function)) = self.compiled.iter().find(|(text, _)| text == script) {
            return Ok(function.clone());
        }
        let chunk = self.lua.load(script).set_name("@user_script");
        let compiled = chunk.set_environment(self.environment.clone()).into_function();
        let compiled = compiled.map_err(|error| {
            ErrorReply::new(format!("ERR Error compiling script (new function): {error}"))
        })?;
        // All at once: an order of use would cost more than compiling a few scripts again.
        if self.compiled.len() >= MAX_COMPILED {
            self.compiled.clear();
        }
        self.compiled.push((script.to_vec(), compiled.clone()));
        Ok(compiled)
    }

    fn call(
        &self,
        script: &Function,
        keys: &[Vec<u8>],
        arguments: &[Vec<u8>],
    ) -> mlua::Result<LuaReply> {
        // Set in `globals`, which scripts can read and not write. Not passed as arguments of the
        // chunk, because Redis has them as globals, and functions of a script use them.
        for (name, texts) in [("KEYS", keys), ("ARGV", arguments)] {
            let table = self.lua.create_table_with_capacity(texts.len(), 0)?;
            for text in texts {
                table.raw_push(self.lua.create_string(text)?)?;
            }
            self.globals.raw_set(name, table)?;
        }
        to_redis(self.main.call(script)?, MAX_DEPTH)
    }
}

/// The words of a command that a script calls. The inner error is a reply for the script.
fn words_of(lua: &Lua, words: &MultiValue) -> mlua::Result<Result<Vec<Vec<u8>>, ErrorReply>> {
    let text = "ERR Please specify at least one argument for this redis.call() call";
    if words.is_empty() {
        return Ok(Err(ErrorReply::new(text)));
    }
    let mut texts = Vec::with_capacity(words.len());
    for word in words {
        texts.push(match word {
            LuaValue::String(text) => text.as_bytes().to_vec(),
            LuaValue::Integer(number) if number.unsigned_abs() < LONG => {
                number.to_string().into_bytes()
            }
            LuaValue::Integer(_) | LuaValue::Number(_) => {
                // As Redis converts numbers in arguments. Above 2^53 that rounds, and above 10^17
                // it prints an exponent: the traps that rule 20 is about must exist here too. Lua's
                // own `string.format` calls the same `snprintf`.
                let format: Function = lua.globals().get::<Table>("string")?.get("format")?;
                format.call::<mlua::LuaString>(("%.17g", word))?.as_bytes().to_vec()
            }
            _ => {
                let text = "ERR Lua redis lib command arguments must be strings or integers";
                return Ok(Err(ErrorReply::new(text)));
            }
        });
    }
    Ok(Ok(texts))
}

fn to_lua(lua: &Lua, outcome: CommandResult) -> mlua::Result<LuaValue> {
    let single = |name: &str, text: &str| -> mlua::Result<LuaValue> {
        let table = lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, text)?;
        Ok(LuaValue::Table(table))
    };
    Ok(match outcome {
        Err(error) => single("err", error.text())?,
        Ok(Value::Int(number)) => LuaValue::Integer(number),
        Ok(Value::BulkString(text)) => LuaValue::String(lua.create_string(text)?),
        Ok(Value::Okay) => single("ok", "OK")?,
        Ok(Value::SimpleString(text)) => single("ok", &text)?,
        Ok(Value::Array(parts)) => {
            let table = lua.create_table_with_capacity(parts.len(), 0)?;
            for part in parts {
                table.raw_push(to_lua(lua, Ok(part))?)?;
            }
            LuaValue::Table(table)
        }
        // `Nil`, which is `false` in a script and not `nil`. No command of this server returns
        // anything else.
        Ok(_) => LuaValue::Boolean(false),
    })
}

/// What a script returned.
enum LuaReply {
    Error(ErrorReply),
    Value(Value),
}

fn to_redis(value: LuaValue, deepest: usize) -> mlua::Result<LuaReply> {
    Ok(LuaReply::Value(match value {
        LuaValue::Boolean(true) => Value::Int(1),
        LuaValue::Integer(number) => Value::Int(number),
        // Redis drops the fraction: a script that returns 3.99 replies 3. `as` also saturates.
        LuaValue::Number(number) => Value::Int(number as i64),
        LuaValue::String(text) => Value::BulkString(text.as_bytes().to_vec()),
        LuaValue::Table(table) => return table_to_redis(&table, deepest),
        _ => Value::Nil,
    }))
}

fn table_to_redis(table: &Table, deepest: usize) -> mlua::Result<LuaReply> {
    if let LuaValue::String(text) = table.raw_get("err")? {
        return Ok(LuaReply::Error(ErrorReply::new(text.to_string_lossy())));
    }
    if let LuaValue::String(text) = table.raw_get("ok")? {
        let text = text.to_string_lossy();
        return Ok(LuaReply::Value(if text == "OK" {
            Value::Okay
        } else {
            Value::SimpleString(text)
        }));
    }
    let Some(deepest) = deepest.checked_sub(1) else {
        return Ok(LuaReply::Error(ErrorReply::new("ERR reached lua stack limit")));
    };
    let mut parts = Vec::new();
    loop {
        // An array ends at its first `nil`, as in Redis: later elements are dropped silently.
        match table.raw_get(parts.len() + 1)? {
            LuaValue::Nil => return Ok(LuaReply::Value(Value::Array(parts))),
            part => parts.push(match to_redis(part, deepest)? {
                LuaReply::Error(error) => error.into_value(),
                LuaReply::Value(value) => value,
            }),
        }
    }
}
