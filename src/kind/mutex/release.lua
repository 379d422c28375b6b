-- Gives a mutex to the first live waiter, or back, if it is still the attempt's; takes the attempt
-- out of the line if it is not.
--
-- KEYS  as in hand_over.lua
-- ARGV  1 the attempt   2 time to live of the fence, ms   3 the last token used, 0: the one minted
--       4 wanted, where somebody is known to wait, so that nobody has to ask; it may be wrong
-- Returns 1 released   -1 another owner has it   {0, 0, fence} the key is gone, and the fence as in renew.lua
--
-- Where nobody waits it is the compare-and-delete of the Redis documentation. It must succeed when
-- memory is full: neither a ZREM, with which a hand-over begins, nor DEL is ever refused, and what
-- comes after them is not either (rule 16).
--
-- This is the way when nobody waits. token.lua, line.lua, hand_over.lua and pass.lua stand after it. A line that
-- is none, but of another type, keeps no lock.
local owner = redis.call('GET', KEYS[1])
local waiting = owner == ARGV[1] and (ARGV[4] == 'wanted' or redis.call('EXISTS', KEYS[3]) == 1)
if owner == ARGV[1] and not waiting and ARGV[3] == '0' then
  redis.call('DEL', KEYS[1])
  return 1
end
