-- Gives a mutex back if it is still the attempt's.
--
-- KEYS  1 the lock (a string: its owner)
-- ARGV  1 the attempt
-- Answers 1 released   0 the key is gone   -1 another owner has it
--
-- The compare-and-delete of the Redis documentation on locks.
local owner = redis.call('GET', KEYS[1])
if owner == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 1
end
return owner and -1 or 0
