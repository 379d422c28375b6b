-- Changes the limit that is in force for a semaphore, also to less than is held. Then nobody is granted until it
-- fits; slots above the new limit live on until they are released (rule 33). Stands after serve.lua.
--
-- KEYS  as in state.lua
-- ARGV  1 the new limit   2 deadline in server time, µs   3 time to live of the fence, ms
--       4 the limit that the user declares   5 resize, by which requests are told apart on their way
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
limit = tonumber(ARGV[1])
redis.call('ZADD', KEYS[1], ARGV[1], 'limit', ARGV[4], 'declared', text(used), 'used')
if not declared then
  declared = tonumber(ARGV[4])
  local kept = redis.pcall('PEXPIRE', KEYS[1], ARGV[3])
  if type(kept) == 'table' then -- a user may be denied it, and a lock without an end must not stay (rule 56)
    redis.call('ZREM', KEYS[1], 'limit', 'declared', 'used')
    return kept
  end
else
  redis.call('PEXPIRE', KEYS[1], ARGV[3], 'GT')
end
purge()
serve(tonumber(ARGV[3]))
if used > limit then
  tell_holders()
end
return 1
