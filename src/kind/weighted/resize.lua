-- Changes the limit that is in force for a semaphore, also to less than is held. Then nobody is granted until it
-- fits; slots above the new limit live on until they are released (rule 33). Stands after serve.lua.
--
-- The new limit is kept for the time that the request names, from the last use on. A user declares the same limit as
-- before for as long, and would get that one back if the lock ended with its last lease. Each use extends the time to
-- live of the lock to that time, and only a resize of a lock that nobody uses shortens it.
--
-- KEYS  as in state.lua
-- ARGV  1 the new limit   2 deadline in server time, µs   3 time to live of the fence, ms
--       4 the limit that the user declares   5 how long the new limit is kept after the last use, ms
-- Returns 1 it is in force   {2, server time} too late   {4, limit declared, limit in force, server time} another
--         limit was declared
read_clock()
if now > tonumber(ARGV[2]) then
  return {2, now}
end
if declared and declared ~= tonumber(ARGV[4]) then
  return {4, declared, limit, now}
end
redis.call('ZREM', KEYS[1], '') -- of nothing, so that what follows is not refused when memory is full (rule 41)
limit, limit_ttl = tonumber(ARGV[1]), tonumber(ARGV[5])
redis.call('ZADD', KEYS[1], ARGV[1], 'limit', text(2 * BAND + limit_ttl), 'ttl', ARGV[4], 'declared', text(used), 'used')
if not declared then
  declared = tonumber(ARGV[4])
  local kept = redis.pcall('PEXPIRE', KEYS[1], ARGV[5])
  if type(kept) == 'table' then -- a user may be denied it, and a lock without an end must not stay (rule 56)
    redis.call('ZREM', KEYS[1], 'limit', 'ttl', 'declared', 'used')
    return kept
  end
else
  redis.call('PEXPIRE', KEYS[1], ARGV[5], 'GT')
end
purge()
serve(tonumber(ARGV[3]))
if used > limit then
  tell_holders('10000') -- nobody else tells them of the limit
elseif used == 0 and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
end
return 1
