-- What the scripts of all kinds share: fencing tokens.
--
-- KEYS  2 the fence of a lock (its last token)
--
-- A token is the server's time or the last token plus one, whichever is greater, after
-- M. Kleppmann's fencing tokens. It goes on growing when the fence has expired or was flushed.

local function text(number)
  return string.format('%d', number) -- Lua would write an exponent (rule 20)
end

-- The token after the last one, where the server's time has just been noted in its place.
local function above(last, now, keep)
  if type(last) == 'table' then -- not a string: not ours, and in the way
    redis.call('SET', KEYS[2], text(now), 'PX', keep)
    return now
  end
  last = tonumber(last)
  if not last or last < now then
    return now
  end
  -- The clock went back, or two holds fell into one of its ticks.
  redis.call('SET', KEYS[2], text(last + 1), 'PX', text(keep + math.ceil((last - now) / 1000)))
  return last + 1
end

-- A token above all earlier ones, and not below the server's time.
local function mint(now, keep)
  return above(redis.pcall('SET', KEYS[2], text(now), 'GET', 'PX', keep), now, keep)
end

-- Notes the last token used, where that is beyond the one that was minted.
local function keep_token(used, keep)
  local last = tonumber(redis.pcall('GET', KEYS[2])) or 0
  if last < tonumber(used) then
    redis.call('SET', KEYS[2], used, 'PX', keep)
  end
end
