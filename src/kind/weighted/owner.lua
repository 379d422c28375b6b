-- Whether an attempt holds: 1 it does   0 it does not. Stands after state.lua and token.lua.
--
-- KEYS  1 the lock
local function owned(attempt)
  local till = redis.call('ZSCORE', KEYS[1], attempt)
  return till and tonumber(till) > tonumber(micros(redis.call('TIME'))) and 1 or 0
end
