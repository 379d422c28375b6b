//! A fencing token as an argument of a command.

use redis::{NumericBehavior, RedisWrite, ToRedisArgs, ToSingleRedisArg};

use crate::base::token::FencingToken;

/// Sends the number, so that `.arg(guard.fencing_token())` sends what
/// [`get`](FencingToken::get) returns.
impl ToRedisArgs for FencingToken {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        self.get().write_redis_args(out);
    }

    fn describe_numeric_behavior(&self) -> NumericBehavior {
        self.get().describe_numeric_behavior()
    }
}

impl ToSingleRedisArg for FencingToken {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_sent_as_its_number() {
        let token = FencingToken::new(1_780_000_000_000_001);
        assert_eq!(token.to_redis_args(), [b"1780000000000001"]);
        let script = redis::Script::new("return ARGV[1]");
        let _compiles = script.prepare_invoke().arg(token);
        assert_eq!(token.num_of_args(), 1);
    }
}
