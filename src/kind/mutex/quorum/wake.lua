-- Whom release.lua and force.lua tell of a server's vote that is free again.

-- Those who wait are told whose vote it was, because all servers tell them of the same release. Nobody
-- counts them: each server has only some.
local function wake(voted)
  redis.pcall('PUBLISH', 'leasehold:released:' .. KEYS[1], voted)
  return 0
end

-- The channel of an attempt's client and its number: that of a foreign owner is not known. The client asks
-- all servers, and has lost the lock once a majority says so.
local function listener(attempt)
  local client, number = string.match(attempt, '^%d[q-]:(%x+):(%x+):%d+:')
  return client and 'leasehold:' .. client, number
end
