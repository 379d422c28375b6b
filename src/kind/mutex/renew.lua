-- Lengthens the lease of a mutex if it is still the attempt's; never shortens it (rule 14).
--
-- KEYS  1 the lock   2 its fence
-- ARGV  1 the attempt   2 the time to live from now, ms   3 the hold count
--       4 time to live of the fence, ms
-- Answers 1 it lives at least that long   0 the key is gone   -1 another owner has it
local owner = redis.call('GET', KEYS[1])
if owner == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')
  redis.call('PEXPIRE', KEYS[2], ARGV[4], 'GT') -- tokens outlive the lease
  return 1
end
return owner and -1 or 0
