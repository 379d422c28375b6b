-- The rest of acquire.lua: another has the lock, or the hash is not a lock, and then nobody should wait for it. Stands
-- after layout.lua.
local owners, refused = holders()
if not owners and string.find(refused.err, 'WRONGTYPE', 1, true) then
  return refused
end
-- If the user may not read the hash, it counts as held.
local owner = owners and owners[1] or ''
local last = tonumber(redis.pcall('GET', KEYS[2])) or -1
return {0, redis.call('PTTL', KEYS[1]), now, 0, 0, string.sub(owner, 1, 512), last}
