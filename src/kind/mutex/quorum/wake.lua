-- Wakes the waiters for a server's vote that is free again, for release.lua and force.lua.

-- The message names the former owner: all servers announce the same release, and waiters drop copies.
-- Returns how many listen, as far as this server counts them: the client takes the largest count of all servers.
local function wake(voted)
  return tonumber(redis.pcall('PUBLISH', 'leasehold:released:' .. KEYS[1], voted)) or 0
end

-- The channel of an attempt's client, and the attempt's number; nothing for a foreign owner. The client asks
-- all servers, and has lost the lock once a majority says so.
local function listener(attempt)
  local client, number = string.match(attempt, '^%d[q-]:(%x+):(%x+):%d+:')
  return client and 'leasehold:' .. client, number
end
