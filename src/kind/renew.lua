-- Lengthens a lease if the lock is still the attempt's; never shortens it (rule 14). Stands after the
-- owner.lua of a kind.
--
-- KEYS  1 the lock   2 its fence   and the kind's own
--       the last is the line if there is a tail; or the lock again, of a lease that yields in its tail in any case
-- ARGV  1 the attempt   2 the time to live from now, ms
--       3 the hold count of a lock that shows it in a hash, owner -> hold count; 0: it shows none
--       4 time to live of the fence, ms
--       5 the tail, ms, of a lease that yields in it; it may be left out
-- Returns {1, now} it lives at least that long   {0, now} the key is gone   {-1, now} another owner has it, where now is
--         the server's time in microseconds, by which a client notices that a clock was set
--         the error TRYAGAIN if it yields, and lengthens nothing
--
-- A lease that is over yields to those who stand in the line: a renewal that was stuck, as in a server that stood still, is
-- before their requests. Its client insists after a while, because they may be dead (rule 50).
--
-- Only its owner writes a lock: a late write on an expired one would make one that never ends. The count
-- is for people to see, and comes second: out of memory, a first write may be refused, and the lease must
-- not depend on it (rule 16). The time is asked for first: a user who may not ask for it has nothing renewed (rule 56).
local time = redis.call('TIME')
local ownership = owned(ARGV[1])
if ownership == 1 and ARGV[5] then
  local left = redis.call('PTTL', KEYS[1])
  if left >= 0 and left < tonumber(ARGV[5]) and redis.call('EXISTS', KEYS[#KEYS]) == 1 then
    return {err = 'TRYAGAIN its lease is over, and it is left to those who wait for it'}
  end
end
if ownership == 1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')
  redis.call('PEXPIRE', KEYS[2], ARGV[4], 'GT') -- tokens outlive the lease
  if ARGV[3] ~= '0' then
    redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[3])
  end
end
return {ownership, time[1] * 1000000 + time[2]}
