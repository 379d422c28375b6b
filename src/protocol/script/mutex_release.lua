-- Gives a mutex to the first live waiter, or back, if it is still the attempt's; takes the attempt
-- out of the queue if it is not.
--
-- KEYS  as in queue.lua, which stands before this
-- ARGV  1 the attempt   2 time to live of the fence, ms   3 the last token used, 0: the one minted
-- Answers 1 released   0 the key is gone   -1 another owner has it
--
-- Where nobody waits it is the compare-and-delete of the Redis documentation. It must succeed when
-- memory is full: neither a ZREM, with which a hand-over begins, nor DEL is ever refused, and what
-- comes after them is not either (rule 16).
local owner = redis.call('GET', KEYS[1])
if owner ~= ARGV[1] then
  redis.call('ZREM', KEYS[3], ARGV[1])
  redis.call('ZREM', KEYS[4], ARGV[1])
  return owner and -1 or 0
end
local given
if redis.call('EXISTS', KEYS[3]) == 1 then
  redis.call('ZREM', KEYS[3], ARGV[1])
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if ARGV[3] ~= '0' then
    keep_token(ARGV[3], ARGV[2])
  end
  given = hand_over(now, tonumber(ARGV[2]))
end
if not given then
  redis.call('DEL', KEYS[1])
  if ARGV[3] ~= '0' then
    keep_token(ARGV[3], ARGV[2])
  end
end
return 1
