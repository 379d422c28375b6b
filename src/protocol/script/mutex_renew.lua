-- Lengthens the lease of a mutex if it is still the attempt's; never shortens it (rule 14).
--
-- KEYS  1 the lock (a string: its owner)
-- ARGV  1 the attempt   2 the time to live from now, ms
-- Answers 1 it lives at least that long   0 the key is gone   -1 another owner has it
local owner = redis.call('GET', KEYS[1])
if owner == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')
  return 1
end
return owner and -1 or 0
