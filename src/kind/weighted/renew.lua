-- Lengthens the lease of a holder; never shortens it (rule 14), and makes none that is not there (rule 25). Stands
-- after state.lua and token.lua.
--
-- KEYS  1 the lock   2 its fence   3 the line   4 the signs of life, both not in a cluster: while the slot is being
--       moved, its node would refuse the script if one of the keys is missing
-- ARGV  1 the attempt   2 the time to live from now, ms   3 0: no hold count is shown
--       4 time to live of the fence, ms
-- Returns {1, now, n} it lives at least that long, and n wait, where an exceeded limit counts as one who waits (rules
--         34, 39), or -1: it is not known   {0, now} it does not hold any more
--         now is the server's time in microseconds
--
-- Nobody is purged or served here. PEXPIRE comes first, as it is never refused when memory is full: a first ZADD
-- may be, and the lease would be lost (rule 41).
--
-- Somebody may have taken away the end of a key, by PERSIST or a restore. It gets one again, that of the latest lease in
-- the set (rule 26), or holders that die would keep the lock for ever.
local now = tonumber(micros(redis.call('TIME')))
if not lease or lease <= now then
  return {0, now}
end
local is_longer = redis.call('PEXPIRE', KEYS[1], text(math.max(limit_ttl, ARGV[4])), 'GT') == 1
redis.call('PEXPIRE', KEYS[2], ARGV[4], 'GT') -- tokens outlive the lease
redis.call('ZADD', KEYS[1], 'XX', 'GT', text(now + 1000 * ARGV[2]), ARGV[1])
if not is_longer and redis.call('PTTL', KEYS[1]) == -1 then
  local latest = redis.call('ZRANGE', KEYS[1], '-1', '-1', 'WITHSCORES')[2]
  local keep = math.max(limit_ttl, ARGV[4], math.ceil((latest - now) / 1000))
  redis.call('PEXPIRE', KEYS[1], text(keep))
  redis.call('PEXPIRE', KEYS[2], text(keep), 'NX')
end
if not KEYS[3] then
  return {1, now, -1}
end
-- By their signs of life, as the dead stand in the line until somebody looks. Signs of another type are none.
local waiters = tonumber(redis.pcall('ZCOUNT', KEYS[4], '(' .. text(now), '+inf')) or 0
if used > limit then
  waiters = waiters + 1 -- more than those who wait, as they may be the ones of this client
end
return {1, now, waiters}
