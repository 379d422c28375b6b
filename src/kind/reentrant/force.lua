-- Takes a reentrant lock from its holder, if that is still the one it is aimed at, and wakes those who wait. Stands
-- after token.lua, layout.lua and wake.lua.
--
-- KEYS  1 the lock   2 its fence   3 the channel of those who wait   4 in a cluster only: a key that is never there
-- ARGV  1 the owner it is aimed at, foreign or not   2 deadline in server time, µs
--       3 time to live of the fence, ms
--       4 any, which changes nothing here: a hash that is not a lock is never deleted
-- Returns 1 that owner had it   0 it had not   {2, server time in µs} too late
--         an error if the key is not a lock; the key stays
--
-- The other owners of Redisson's read-write lock keep it, as after an unlock by Redisson. For each hold of a reader,
-- Redisson keeps a key beside the lock, {name}:<owner>:rwlock_timeout:<number of the hold>, with a time to live of its
-- own; the lock lives as long as the last of these keys. They are in the slot of the lock. They are not among KEYS,
-- because only the script can find out which of them exist.
--
-- DEL and HDEL are never refused when memory is full, so that what follows is not either (rule 16).
local now = micros(redis.call('TIME'))
if tonumber(ARGV[2]) < tonumber(now) then -- a request that was stuck
  return {2, tonumber(now)}
end
local me = ARGV[1]
local owners, counts, mode = holders()
if not owners then -- the key may have become data since the caller looked
  return counts
end
if not counts[me] then
  return 0
end
local beside = string.match(KEYS[3], ':(.*)$') -- the name, in braces where it has none
local is_writer = string.find(me, ':write', 1, true)

local function hold(owner, number)
  return beside .. ':' .. owner .. ':rwlock_timeout:' .. number
end

-- For how long the remaining readers hold the lock, in ms; nothing if that is not known.
local function longest()
  local left, looks = 0, 0
  for _, owner in ipairs(owners) do
    for number = 1, owner ~= me and counts[owner] or 0 do
      looks = looks + 1
      local one = looks <= 1000 and redis.pcall('PTTL', hold(owner, number))
      if type(one) ~= 'number' or one == -1 then
        return nil
      end
      left = math.max(left, one)
    end
  end
  return left > 0 and left
end

if not owners[2] then
  redis.call('DEL', KEYS[1])
else
  redis.call('HDEL', KEYS[1], me)
end
for number = 1, mode and not is_writer and math.min(counts[me], 1000) or 0 do
  redis.pcall('DEL', hold(me, number))
end
if not owners[2] then
  wake()
elseif is_writer then
  redis.pcall('HSET', KEYS[1], 'mode', 'read')
elseif mode == 'read' then
  local left = longest()
  if left then
    redis.pcall('PEXPIRE', KEYS[1], left, 'LT')
  end
end
-- The message is that of Redisson's unlock: 0 wakes one who waits, 1 all.
if mode and (is_writer or not owners[2]) then
  local channel, message = 'redisson_rwlock:' .. beside, is_writer and '1' or '0'
  redis.pcall('PUBLISH', channel, message)
  if KEYS[4] then
    redis.pcall('SPUBLISH', channel, message)
  end
end
local channel, number = listener(me)
if channel then
  redis.pcall('PUBLISH', channel, table.concat({'x', number, KEYS[1]}, ' ')) -- last, and may be forbidden
end
return 1
