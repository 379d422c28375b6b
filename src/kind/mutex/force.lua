-- Takes a mutex from its holder, if that is still the one it is aimed at, and gives it to the first live
-- waiter, or back.
--
-- KEYS  as in queue.lua, which stands before this
-- ARGV  1 the owner it is aimed at, foreign or not   2 deadline in server time, µs
--       3 time to live of the fence, ms   4 force, by which requests are told apart on their way
-- Answers 1 that owner had it   0 it had not   {2, server time in µs} too late
local now = micros(redis.call('TIME'))
if tonumber(now) > tonumber(ARGV[2]) then
  return {2, tonumber(now)}
end
local evicted = redis.call('GET', KEYS[1]) -- an error for what is not a string, which is no mutex
if evicted ~= ARGV[1] then
  return 0
end
redis.pcall('ZREM', KEYS[3], '') -- never refused, so that what follows is not either (rule 16)
if not hand_over(now, ARGV[3]) then
  redis.call('DEL', KEYS[1])
end
local channel, number = listener(evicted)
if channel then
  redis.pcall('PUBLISH', channel, 'x ' .. number .. ' ' .. KEYS[1]) -- the mutex's; last, and may be forbidden
end
return 1
