-- The beginning of all scripts of the weighted lock: reads the state of the lock. semaphore.lua or rw_lock.lua stands
-- before it and names the kind.
--
-- A weighted lock has a limit, and its holders have weights that add up to no more. A semaphore of n permits
-- has the limit n, and a holder's weight is its number of permits. A read-write lock has the limit 2^32: a reader
-- weighs 1, a writer all, and an upgradable reader 2^31 + 1, so that there is one of them beside readers.
--
-- KEYS  1 the lock: a sorted set with members in three bands of scores (rule 23)
--         declared, limit, used   up to 2^32: what users ask for, what is in force, the sum of the weights
--         <i>/<attempt>           2^32 + slot: the i-th permit of an attempt (semaphore)
--         c/<attempt>             2^32 + 4 * number + class: the last change of an attempt's weight (rule 35)
--         ttl                     2^33 + ms: how long the limit of a resize is kept after the last use (rule 33)
--         <attempt>               above 2^40: the end of its lease in server time, µs
--       2 its fence (the last token)   the rest as in line.lua
--
-- An attempt reads <version>q:<client>:<number>:<window, ms>:<weight>:…, where the weight is a number of
-- permits, or r, u or w for a reader, an upgradable reader or a writer. ARGV[1] is the attempt that asks, if one does.
--
-- Holder, slots and sum are written by one ZADD, or never differ for longer than a script. The sum may be too
-- high, as it has the weights of leases that have ended until a script takes them out; that is safe (rule 24).
--
-- The marks of a lock are the members declared, limit and used, with whole numbers as scores. In a read-write lock,
-- declared and limit are 2^32, which no semaphore has. All other members have higher scores than the marks. While the
-- sum is above zero, the lowest of these is a slot in a semaphore, and the highest is the lease of a holder in a
-- read-write lock. Where the sum is zero there are no slots, at most the member ttl of a semaphore, and the set has a
-- time to live, as each script that makes one gives it. If a user has taken that from a lock in use, its holders show
-- that it is a lock.
--
-- Any other sorted set belongs to a user, and one with the marks of the other kind is a lock of that kind. Both are
-- left unchanged, and the reply says which it is (rule 43). All versions write the same marks, so that an older client
-- and a newer one can share a lock. A key that does not exist is a lock that nobody has used. If the asking attempt is
-- itself a holder, the key is a lock, and nothing more needs to be looked at.
--
-- There are no functions here: to make them takes time, also where none is called.

local BAND, ALL = 4294967296, 4294967296
local me = ARGV[1] or ''
-- Another type is an error (rule 43). A field is false where there is none.
local known = redis.call('ZMSCORE', KEYS[1], 'declared', 'limit', 'used', me, 'c/' .. me, 'ttl')
local declared, limit, used = tonumber(known[1]), tonumber(known[2]), tonumber(known[3]) or 0
local lease, change = tonumber(known[4]), tonumber(known[5])
-- How long the limit is kept after each use, ms; 0: no longer than a lease. No use shortens the lock's time to live.
local limit_ttl = declared ~= ALL and known[6] and known[6] - 2 * BAND or 0

-- What the attempt asks for; nothing if it means nothing here.
local word = string.match(me, '^%dq:%x+:%x+:%d+:(%w+):')
local permits = tonumber(word)
local now, digits -- the server's time, where it has been asked for

local found -- the kind of lock at the key
local is_endless = false
if not (declared and limit and known[3]) then
  found = redis.call('EXISTS', KEYS[1]) == 0 and KIND
elseif declared > 0 and math.min(limit, used) >= 0 and declared % 1 + limit % 1 + used % 1 == 0 then
  if declared == ALL and limit == ALL and used <= ALL then
    found = 'read-write lock'
  elseif math.max(declared, limit, used) < 2147483648 then
    found = limit_ttl >= 0 and limit_ttl < BAND and limit_ttl % 1 == 0 and 'semaphore'
  end
  if found and not (lease and word) then
    local at = used > 0 and declared == ALL and '-1' or '3'
    if used == 0 and declared ~= ALL and known[6] then
      at = '4' -- above ttl
    end
    local member = redis.call('ZRANGE', KEYS[1], at, at, 'WITHSCORES')
    if used > 0 then
      found = string.match(member[1] or '', '^[%d/]+q:%x+:%x+:%d+:%w+:') and found
    else
      found = (tonumber(member[2]) or math.huge) >= 1099511627776 and found
      is_endless = found and redis.call('PTTL', KEYS[1]) < 0
      found = not is_endless and found
    end
  end
end
if found ~= KIND then
  local what = found and 'the key is a ' .. found
  if is_endless then
    what = 'not a lock: a sorted set without a time to live; choose another name, or EXPIRE it if it was a lock'
  end
  return {err = 'WRONGTYPE ' .. (what or 'not a lock: a sorted set without the marks of a lock; choose another name')}
end
