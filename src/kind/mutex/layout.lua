-- Whether a string is a lock, where nobody has said that it is one.
--
-- KEYS  1 the lock (a string: its owner)
--
-- It is one if it has the form of this library's owners, of whatever version, or if it has an end, as a key has
-- that another client wrote with `SET NX PX`. Any other string is data: what was deleted by mistake is gone for good.

-- The refusal of what is no lock; nothing if it is one.
local function refusal(owner)
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
