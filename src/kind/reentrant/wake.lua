-- Wakes the waiters of a reentrant lock that is free again, for release.lua and force.lua.
--
-- KEYS  3 the channel of those who wait   4 in a cluster only: a key that is never there (line.lua)

-- The message "0" is what wakes the waiters of Redisson. In a cluster Redisson listens to the channel of
-- the slot (SSUBSCRIBE). Returns how many listen, as far as this server counts them.
local function wake()
  local listeners = tonumber(redis.pcall('PUBLISH', KEYS[3], '0')) or 0
  if KEYS[4] then
    listeners = listeners + (tonumber(redis.pcall('SPUBLISH', KEYS[3], '0')) or 0)
  end
  return listeners
end

-- The channel of an attempt's client, and the attempt's number. The owner is <client>:<number>. A foreign
-- client has no such channel.
local function listener(attempt)
  local client, number = string.match(attempt, '^([%x-]+):(%d+)$')
  if client and #number < 16 then
    return 'leasehold:' .. string.gsub(client, '-', ''), string.format('%x', number)
  end
end
