//! A script and the commands that run it.

use redis::{Arg, Cmd};

use crate::base::sync::StaticCell;

/// A Lua script, known to the server by its digest.
#[derive(Debug)]
pub(crate) struct Script {
    source: &'static str,
    digest: StaticCell<String>,
}

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
        keys: &[Vec<u8>],
        arguments: impl IntoIterator<Item = Argument<'a>>,
    ) -> Call {
        // By `EVALSHA`: the source is some kilobytes, which each call would have to send. A caller
        // that meets `NOSCRIPT` repeats the command with the source. `SCRIPT LOAD` in advance would
        // not spare it that, as the server forgets its scripts in each restart and fail-over.
        let arguments = arguments.into_iter();
        let parts = 3 + keys.len() + arguments.size_hint().0;
        let mut cmd = Cmd::with_capacity(parts, 64 + 48 * parts);
        cmd.arg("EVALSHA").arg(self.digest()).arg(keys.len());
        for key in keys {
            cmd.arg(key.as_slice());
        }
        for argument in arguments {
            match argument {
                Argument::Bytes(bytes) => cmd.arg(bytes),
                Argument::Number(number) => cmd.arg(number),
            };
        }
        Call { cmd, script: Some(self), is_excused: false }
    }
}

/// Fails in the same way as the other scripts if the user may run none.
static PROBE: Script = Script::new("return redis.call('TIME')");

/// The command that shows whether a server serves this user.
pub(crate) fn probe() -> Call {
    PROBE.call(&[], [])
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
    cmd: Cmd,
    script: Option<&'static Script>,
    /// Whether a reply that does not come in time says nothing about the server.
    pub(crate) is_excused: bool,
}

impl Call {
    /// A plain command.
    pub(crate) fn plain(parts: &[&[u8]]) -> Call {
        let mut cmd = Cmd::new();
        for part in parts {
            cmd.arg(*part);
        }
        Call { cmd, script: None, is_excused: false }
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
        Call { cmd: cmd.clone(), script: None, is_excused: false }
    }

    /// The bytes to send.
    pub(crate) fn pack(&self) -> Vec<u8> {
        self.cmd.get_packed_command()
    }

    /// Its arguments, with the script's source instead of its digest.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn words(&self) -> Vec<Vec<u8>> {
        let bytes = |part: Arg<&[u8]>| match part {
            Arg::Simple(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        };
        let Some(script) = self.script else {
            return self.cmd.args_iter().map(bytes).collect();
        };
        let begin = [b"EVAL".to_vec(), script.source.as_bytes().to_vec()];
        begin.into_iter().chain(self.cmd.args_iter().skip(2).map(bytes)).collect()
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
        let mut cmd = Cmd::new();
        cmd.arg("EVAL").arg(script.source);
        for part in self.cmd.args_iter().skip(2) {
            if let Arg::Simple(bytes) = part {
                cmd.arg(bytes);
            }
        }
        Some(Call { cmd, script: None, is_excused: self.is_excused })
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
        let parts: Vec<_> = whole.cmd.args_iter().collect();
        let expected: [&[u8]; 7] =
            [b"EVAL", b"return ARGV[1]", b"1", b"key", b"\x00\xff", b"", b"7"];
        assert_eq!(parts.len(), expected.len());
        for (part, expected) in parts.iter().zip(expected) {
            assert!(matches!(part, Arg::Simple(bytes) if *bytes == expected));
        }
        assert!(whole.with_source().is_none());
        assert_eq!(call.words(), expected);
        assert_eq!(whole.words(), expected);
    }
}
