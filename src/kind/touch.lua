-- Writes what is there already if the lock is still the attempt's, so that WAIT after it on the same
-- connection has a write to wait for. Stands after the owner.lua of a kind.
--
-- KEYS  1 the lock   2 its fence
-- ARGV  1 the attempt
-- Returns 1 written   0 the key is gone   -1 another owner has it
--
-- PEXPIRE is passed on to replicas also where it changes nothing, and is not refused when memory is
-- full. One of the keys may have no end, or have been evicted.
local ownership = owned(ARGV[1])
if ownership ~= 1 then
  return ownership
end
for place = 1, 2 do
  local left = redis.call('PTTL', KEYS[place])
  if left > 0 then
    redis.call('PEXPIRE', KEYS[place], left)
  end
end
return 1
