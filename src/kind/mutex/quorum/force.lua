-- Takes one server's vote from the one it is aimed at, if that still has it.
--
-- KEYS  as in acquire.lua
-- ARGV  1 the owner it is aimed at, foreign or not   2 deadline in server time, µs
-- Answers 1 that owner had it   0 it had not   {2, server time in µs} too late
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[2]) then
  return {2, now}
end
local voted = redis.call('GET', KEYS[1]) -- an error for what is not a string, which is no mutex
if voted ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', 'leasehold:released:' .. KEYS[1], voted) -- as in release.lua
-- As in mutex/force.lua. It asks all servers, and has lost it once a majority says so.
local client, number = string.match(voted, '^%d[q-]:(%x+):(%x+):%d+:')
if client then
  redis.pcall('PUBLISH', 'leasehold:' .. client, 'x ' .. number .. ' ' .. KEYS[1]) -- the vote's
end
return 1
