-- Takes a reentrant lock that nobody holds, or grants it again to the attempt that has it.
-- Stands after token.lua and owner.lua. layout.lua and busy.lua stand after it.
--
-- KEYS  1 the lock (a hash: owner -> hold count)   2 its fence (the last token)   3 the channel
-- ARGV  1 the attempt   2 its time to live, ms   3 deadline in server time, µs (0: not known)
--       4 time to live of the fence, ms
-- Returns {1, token, time to live in ms, server time in µs, 0}           granted
--         {0, time to live of the holder in ms (-1: none), server time, 0, 0, the holder (512 bytes of
--             it at most), the last token (-1: none)}                    held by another
--         {2, server time}                                               too late
--         an error                                                       the hash is not a lock
-- The zeros are in the places of the mutex's line.
--
-- The hash is the layout of Redisson's plain lock. The count is written as 1 and never
-- incremented, so that a repeated request cannot count twice. The rest as in mutex/acquire.lua.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local deadline = tonumber(ARGV[3])
if deadline > 0 and now > deadline then
  return {2, now}
end
local ttl = tonumber(ARGV[2])
local ownership = owned(ARGV[1])
if ownership == 1 then
  local left = redis.call('PTTL', KEYS[1])
  if left < ttl then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    left = ttl
  end
  local token = tonumber(redis.call('GET', KEYS[2]))
  if token then
    return {1, token, left, now, 0}
  end
  ttl = left
elseif ownership == 0 then
  redis.call('HSET', KEYS[1], ARGV[1], 1)
  local set = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
  if set ~= 1 then -- a user may be denied it, and a lock without an end must not stay
    redis.call('DEL', KEYS[1])
    return set
  end
end
if ownership ~= -1 then
  local is_done, token = pcall(mint, text(now), ARGV[4])
  if is_done then
    return {1, tonumber(token), ttl, now, 0}
  end
  if ownership == 0 then
    redis.call('DEL', KEYS[1]) -- nobody would know of it (rule 56)
  end
  return refusal(token)
end
