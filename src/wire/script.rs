//! A script and the commands that run it.

use redis::Cmd;

use crate::base::sync::StaticCell;
use crate::wire::packed_command::{PackedCommand, Packer};

/// A Lua script, known to the server by its digest.
#[derive(Debug)]
pub(crate) struct Script {
    source: &'static str,
    digest: StaticCell<String>,
}

/// For a script without keys.
pub(crate) const NO_KEYS: &[&[u8]] = &[];

impl Script {
    pub(crate) const fn new(source: &'static str) -> Script {
        Script { source, digest: StaticCell::new() }
    }

    fn digest(&self) -> &str {
        self.digest.get_or_init(|| redis::Script::new(self.source).get_hash().to_owned())
    }

    /// The command that runs the script by its digest.
    pub(crate) fn call<'a>(
        &'static self,
        keys: &[impl AsRef<[u8]>],
        arguments: impl IntoIterator<Item = Argument<'a>>,
    ) -> Call {
        // By `EVALSHA`: the source is some kilobytes, which each call would have to send. A caller
        // that meets `NOSCRIPT` repeats the command with the source. `SCRIPT LOAD` in advance would
        // not spare it that, as the server forgets its scripts in each restart and fail-over.
        let arguments = arguments.into_iter();
        let parts = 3 + keys.len() + arguments.size_hint().0;
        let mut packer = Packer::new(64 + 48 * parts);
        packer.push(b"EVALSHA");
        packer.push(self.digest().as_bytes());
        packer.push_number(keys.len() as u64);
        keys.iter().for_each(|key| packer.push(key.as_ref()));
        for argument in arguments {
            match argument {
                Argument::Bytes(bytes) => packer.push(bytes),
                Argument::Number(number) => packer.push_number(number),
            }
        }
        Call { command: packer.finish(), script: Some(self), is_excused: false }
    }
}

/// Fails in the same way as the other scripts if the user may run none.
static PROBE: Script = Script::new("return redis.call('TIME')");

/// The command that shows whether a server serves this user.
pub(crate) fn probe() -> Call {
    PROBE.call(NO_KEYS, [])
}

/// An argument of a script.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument<'a> {
    Bytes(&'a [u8]),
    Number(u64),
}

/// One command, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    command: PackedCommand,
    script: Option<&'static Script>,
    /// Whether a reply that does not come in time says nothing about the server.
    pub(crate) is_excused: bool,
}

impl Call {
    /// A plain command.
    pub(crate) fn plain(parts: &[&[u8]]) -> Call {
        Call { command: PackedCommand::of(parts), script: None, is_excused: false }
    }

    /// The same call, whose reply may not come in time.
    pub(crate) fn excused(mut self) -> Call {
        self.is_excused = true;
        self
    }

    /// The command that lets a cluster node serve the next command for a slot that it is importing.
    pub(crate) fn asking() -> Call {
        Call::plain(&[b"ASKING"])
    }

    /// A user's command.
    pub(crate) fn of(cmd: &Cmd) -> Call {
        Call { command: cmd.get_packed_command().into(), script: None, is_excused: false }
    }

    /// The bytes to send.
    pub(crate) fn packed(&self) -> &[u8] {
        self.command.bytes()
    }

    /// Its arguments, with the script's source instead of its digest.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn words(&self) -> Vec<Vec<u8>> {
        let Some(script) = self.script else {
            return self.command.parts().map(<[u8]>::to_vec).collect();
        };
        let begin = [b"EVAL".to_vec(), script.source.as_bytes().to_vec()];
        begin.into_iter().chain(self.command.parts().skip(2).map(<[u8]>::to_vec)).collect()
    }

    /// The call as it is sent again to a server that did not know its script: with the source, unless
    /// that is among `scripts`, whose sources are sent before.
    pub(crate) fn again(&self, scripts: &mut Vec<&'static Script>) -> Option<Call> {
        let script = self.script?;
        if scripts.iter().any(|known| std::ptr::eq(*known, script)) {
            return Some(self.clone());
        }
        scripts.push(script);
        self.with_source()
    }

    /// The same call with the script's source, for a server that does not know the digest.
    pub(crate) fn with_source(&self) -> Option<Call> {
        // `EVAL` also loads the script, so later calls find it by its digest.
        let script = self.script?;
        let mut packer = Packer::new(64 + script.source.len() + self.packed().len());
        packer.push(b"EVAL");
        packer.push(script.source.as_bytes());
        self.command.parts().skip(2).for_each(|part| packer.push(part));
        Some(Call { command: packer.finish(), script: None, is_excused: self.is_excused })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fallback_has_the_source_and_the_same_arguments() {
        static SCRIPT: Script = Script::new("return ARGV[1]");
        let arguments = [Argument::Bytes(b"\x00\xff"), Argument::Bytes(b""), Argument::Number(7)];
        let call = SCRIPT.call(&[b"key".to_vec()], arguments);
        let whole = call.with_source().unwrap();
        let expected: [&[u8]; 7] =
            [b"EVAL", b"return ARGV[1]", b"1", b"key", b"\x00\xff", b"", b"7"];
        assert_eq!(whole.command.parts().collect::<Vec<_>>(), expected);
        assert!(whole.with_source().is_none());
        assert_eq!(call.words(), expected);
        assert_eq!(whole.words(), expected);
    }
}
