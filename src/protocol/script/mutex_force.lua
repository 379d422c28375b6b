-- Gives a mutex to the first live waiter, or back, for whoever holds it.
--
-- KEYS  as in queue.lua, which stands before this
-- ARGV  1 time to live of the fence, ms
-- Answers 1 somebody held it   0 nobody did
if not redis.call('GET', KEYS[1]) then -- an error for what is not a string, which is no mutex
  return 0
end
redis.pcall('ZREM', KEYS[3], '') -- never refused, so that what follows is not either (rule 16)
local time = redis.call('TIME')
if not hand_over(micros(time), ARGV[1]) then
  redis.call('DEL', KEYS[1])
end
return 1
