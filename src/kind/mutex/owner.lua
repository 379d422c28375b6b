-- Whose a mutex is: 1 the attempt's   0 nobody's   -1 another's.
--
-- KEYS  1 the lock (a string: its owner)
local function owned(attempt)
  local owner = redis.call('GET', KEYS[1])
  return owner == attempt and 1 or owner and -1 or 0
end
