-- Lengthens a lease if the lock is still the attempt's; never shortens it (rule 14). Stands after the
-- owner.lua of a kind.
--
-- KEYS  1 the lock   2 its fence   and the kind's own
--       the last are the line and the signs of life if there is a tail; or the lock again, of a lease that yields in its
--       tail in any case
-- ARGV  1 the attempt   2 the time to live from now, ms
--       3 the hold count of a lock that shows it in a hash, owner -> hold count; 0: it shows none
--       4 time to live of the fence, ms
--       5 the tail, ms, of a lease that yields in it; it may be left out
-- Returns {1, now} it lives at least that long   {-1, now} another owner has it
--         {0, now, -1, fence} the key is gone, and the fence tells whether another has had it since: the last token, or 0
--         if there is none. Now is the server's time in microseconds, by which a client notices that a clock was set
--         the error TRYAGAIN if it yields, and lengthens nothing
--
-- A lease that is over yields to those who stand in the line and lived when it was last renewed: a renewal that was stuck,
-- as in a server that stood still, is before their requests, and their signs of life may have ended meanwhile. Its client
-- insists after a while, as they may have died since (rule 50).
--
-- Somebody may have taken away the end of a key, by PERSIST or a restore. It gets one again, or a holder that dies would
-- keep the lock for ever. The fence outlives each lease that was granted, so its end is no earlier than what the holder
-- believes to have.
--
-- Only its owner writes a lock: a late write on an expired one would make one that never ends. The count
-- is for people to see, and comes second: out of memory, a first write may be refused, and the lease must
-- not depend on it (rule 16). The time is asked for first: a user who may not ask for it has nothing renewed (rule 56).
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ownership = owned(ARGV[1])
if ownership == 1 and ARGV[5] then
  local left, signs = redis.call('PTTL', KEYS[1]), KEYS[#KEYS]
  if left >= 0 and left < tonumber(ARGV[5]) then
    local renewed = string.format('(%.0f', now + 1000 * (left - ARGV[2]))
    -- Signs of another type keep no lock.
    local alive = signs == KEYS[1] and 1 or redis.pcall('ZCOUNT', signs, renewed, '+inf')
    if type(alive) == 'number' and alive > 0 then
      return {err = 'TRYAGAIN its lease is over, and it is left to those who wait for it'}
    end
  end
end
if ownership == 1 then
  local is_longer = redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT') == 1
  -- Tokens outlive the lease.
  if redis.call('PEXPIRE', KEYS[2], ARGV[4], 'GT') == 0 then
    redis.call('PEXPIRE', KEYS[2], ARGV[4], 'NX')
  end
  if not is_longer and redis.call('PTTL', KEYS[1]) == -1 then
    redis.call('PEXPIRE', KEYS[1], math.max(ARGV[2], redis.call('PTTL', KEYS[2])))
  end
  if ARGV[3] ~= '0' then
    redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[3])
  end
end
if ownership == 0 then
  return {0, now, -1, tonumber(redis.pcall('GET', KEYS[2])) or 0}
end
return {ownership, now}
