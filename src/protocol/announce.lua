-- Notes in the index that locks are in use. It is for people to see, and no lock depends on it.
--
-- KEYS  1 the index (a sorted set: kind and name of a lock -> when it was last announced, in s of the server)
-- ARGV  1 how long an entry lives, s   2 and more: kind and name of each lock
-- Returns how many entries were dropped
--
-- The server's clock alone counts. Entries that are far ahead of it were made before it was set back. `ZADD`
-- comes first: out of memory the server refuses it, and nothing is written.
local now = redis.call('TIME')[1]
for at = 2, #ARGV do
  redis.call('ZADD', KEYS[1], now, ARGV[at])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1] * 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. now + ARGV[1], '+inf')
return redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. now - ARGV[1])
