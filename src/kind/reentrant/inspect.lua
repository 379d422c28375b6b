-- Tells who has a reentrant lock. It writes nothing. Stands after layout.lua.
--
-- KEYS  1 the lock (a hash: owner -> hold count)   2 its fence (the last token)
--       3 the queue of Redisson's fair lock (a list of owners), if the waiters are asked for
-- ARGV  1 how many waiters to list at most   2 found, which changes nothing here
-- Returns the same as mutex/inspect.lua. How many wait is not known: those of this library listen, and so do
-- those of Redisson's plain lock. A place in the list says nothing about time, and is returned as -1.
--
-- Redisson's read-write lock may have many readers. A hash that is not a lock is an error.
local time = redis.call('TIME')
local last = tonumber(redis.pcall('GET', KEYS[2])) or -1
local holding, waiters = {}, {}
local left = redis.call('PTTL', KEYS[1])
local owners, refused = holders()
if not owners then
  return refused
end
for place, owner in ipairs(owners) do
  holding[place] = {owner, left, last}
end
if KEYS[3] then
  for place, owner in ipairs(redis.call('LRANGE', KEYS[3], '0', ARGV[1] - 1)) do
    waiters[place] = {owner, -1}
  end
end
return {time[1] * 1000000 + time[2], holding, -1, waiters}
