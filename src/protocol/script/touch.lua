-- Writes what is there already, so that WAIT after it on the same connection has a write to wait for.
--
-- KEYS  1 the lock   2 its fence, and others of its kind
-- Answers 1 written   0 there was nothing to write to
--
-- PEXPIRE is passed on to replicas also where it changes nothing, and is not refused when memory is
-- full. The time to live of the fence stays as it is: that of the lock must not be touched by who
-- may not be its owner any longer.
local left = redis.call('PTTL', KEYS[2])
return left > 0 and redis.call('PEXPIRE', KEYS[2], left) or 0
