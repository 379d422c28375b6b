-- One server's vote for an attempt that asks several. Stands after token.lua.
--
-- KEYS  1 the lock (a string: its owner)   2 its fence (the last token)
-- ARGV  1 the attempt   2 its time to live, ms   3 deadline in server time, µs
--       4 time to live of the fence, ms
--       5 the token it proposes, above the deadline   6 the last token that it reserves with it
-- Returns {1, the token, server time in µs}                              accepted
--         {0, time to live of the holder in ms (-1: none), server time, the holder (512 bytes of it at
--             most), the last token (-1: none)}
--         {2, server time}                                               too late
--         {4, the last token, server time}                               the token is too low
--
-- What is accepted is above the last token, and above the server's time, because a request that is
-- not late has a token above it. So tokens grow also where the last one is forgotten. The fence is
-- kept until that time has come, and for the lease besides.
local time = redis.call('TIME')
local now = tonumber(micros(time))
if now > tonumber(ARGV[3]) then
  return {2, now}
end
local owner = redis.call('GET', KEYS[1])
local last = tonumber(redis.pcall('GET', KEYS[2]))
if owner and owner ~= ARGV[1] then
  return {0, redis.call('PTTL', KEYS[1]), now, string.sub(owner, 1, 512), last or -1}
end
if last and last >= tonumber(ARGV[5]) then
  return {4, last, now}
end
-- The first write may be refused for want of memory, the second then no more (rule 16). The lock comes last: if the
-- user may not write the fence, nobody has the lock (rule 56).
local ahead = math.max(0, math.ceil((tonumber(ARGV[6]) - now) / 1000))
redis.call('SET', KEYS[2], ARGV[6], 'PX', text(tonumber(ARGV[4]) + ahead))
if owner then
  redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return {1, tonumber(ARGV[5]), now}
