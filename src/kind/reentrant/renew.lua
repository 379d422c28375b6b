-- Lengthens the lease of a reentrant lock if it is still the attempt's, and shows its hold count.
--
-- KEYS  1 the lock (a hash: owner -> hold count)   2 its fence
-- ARGV  1 the attempt   2 the time to live from now, ms   3 the hold count
--       4 time to live of the fence, ms
-- Answers 1 it lives at least that long   0 the key is gone   -1 another owner has it
--
-- The hash is written only by its owner: a late write on an expired lock would make one that
-- never ends. The count is for people to see, and comes second: out of memory, a first write may
-- be refused, and the lease must not depend on it (rule 16).
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')
  redis.call('PEXPIRE', KEYS[2], ARGV[4], 'GT') -- tokens outlive the lease
  redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[3])
  return 1
end
return redis.call('EXISTS', KEYS[1]) == 1 and -1 or 0
