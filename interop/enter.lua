-- A holder enters what the lock protects, and finds another in there: an overlap.
-- KEYS: a hash, the set of processes that were killed. ARGV: the process and its thread.
-- Returns how many times it was entered.
local inside = redis.call('HGET', KEYS[1], 'inside')
if inside and redis.call('SISMEMBER', KEYS[2], inside:match('^%d+')) == 0 then
  redis.call('HINCRBY', KEYS[1], 'overlaps', 1)
end
redis.call('HSET', KEYS[1], 'inside', ARGV[1])
return redis.call('HINCRBY', KEYS[1], 'turns', 1)
