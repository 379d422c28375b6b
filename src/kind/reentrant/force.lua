-- Takes a reentrant lock from its holder, if that is still the one it is aimed at.
--
-- KEYS  1 the lock (a hash: owner -> hold count)   2 its fence   3 the channel of those who wait
--       4 in a cluster only: a key that is never there (mutex/queue.lua)
-- ARGV  1 the owner it is aimed at, foreign or not   2 deadline in server time, µs
-- Answers 1 that owner had it   0 it had not   {2, server time in µs} too late
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[2]) then -- a request that was stuck
  return {2, now}
end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then -- an error for what is not a hash, which is no such lock
  return 0
end
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', KEYS[3], '0')
if KEYS[4] then
  redis.pcall('SPUBLISH', KEYS[3], '0') -- as in release.lua
end
-- As in mutex/force.lua. The owner reads <client>:<number>; of a foreign one nobody listens.
local client, number = string.match(ARGV[1], '^([%x-]+):(%d+)$')
if client and #number < 16 then
  client, number = string.gsub(client, '-', ''), string.format('%x', number)
  redis.pcall('PUBLISH', 'leasehold:' .. client, 'x ' .. number .. ' ' .. KEYS[1]) -- the hash's
end
return 1
