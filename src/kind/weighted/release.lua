-- Gives the weight of an attempt back, or takes the attempt out of the line, and grants all who fit then.
--
-- KEYS  as in state.lua
-- ARGV  1 the attempt   2 time to live of the fence, ms   3 the last token used, 0: the one minted
-- Returns 1 released   0 it did not hold any more
--
-- This is the way when nobody waits; state.lua stands before it. token.lua, hold.lua, give.lua, line.lua, serve.lua
-- and leave.lua stand after it. A semaphore keeps its limit for as long as the lock lives, and that of a resize for its
-- own time from now on. A lease that has ended is given back here like any other: nobody has missed it, or it would have
-- been taken out. ZREM, DEL and PEXPIRE are never refused when memory is full.
if lease and ARGV[3] == '0' and redis.call('EXISTS', KEYS[3]) == 0 then
  if not is_rw then
    local gone = {me}
    for i = 1, permits do
      gone[i + 1] = i .. '/' .. me
    end
    redis.call('ZREM', KEYS[1], unpack(gone))
    redis.call('ZADD', KEYS[1], used - permits, 'used')
    if limit_ttl > 0 then
      redis.pcall('PEXPIRE', KEYS[1], limit_ttl, 'GT')
    end
    return 1
  end
  if not change and (word == 'r' and used == 1 or word == 'u' and used == 2147483649 or word == 'w') then
    redis.call('DEL', KEYS[1])
    return 1
  end
end
