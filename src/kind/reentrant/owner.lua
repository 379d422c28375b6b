-- Whose a reentrant lock is: 1 the attempt's   0 nobody's   -1 another's.
--
-- KEYS  1 the lock (a hash: owner -> hold count)
local function owned(attempt)
  if redis.call('HEXISTS', KEYS[1], attempt) == 1 then
    return 1
  end
  return redis.call('EXISTS', KEYS[1]) == 1 and -1 or 0
end
