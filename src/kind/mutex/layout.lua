-- Tells a lock from data, for a string that nobody has said is a lock.
--
-- KEYS  1 the lock (a string: its owner)
--
-- The string is a lock if it has the form of an owner of this library, of any version, or if it has a time to live, as
-- another client's `SET NX PX` sets. Any other string counts as data, because data that is deleted by mistake is gone.

-- The leader of an election is no holder of a mutex, although both are strings: election/layout.lua says why.

-- The error if the string is not a lock; nothing if it is one.
local function refusal(owner)
  if string.find(owner, '^%d[q-]:%x+:%x+:%d+:e:') then
    return {err = 'WRONGTYPE it is held by the leader of an election'}
  end
  if string.find(owner, '^%d[q-]:%x+:%x+:%d+:') then
    return nil
  end
  local what
  if #owner > 16384 then
    what = 'a string of more than 16 KiB'
  elseif redis.call('PTTL', KEYS[1]) < 0 then
    what = 'a string without a time to live'
  end
  return what and {err = 'WRONGTYPE not a lock: ' .. what
    .. ', which no client of this library wrote; if it is one, use mutex_named or force_release_any'}
end
