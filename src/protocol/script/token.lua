-- What the scripts of all kinds share: fencing tokens.
--
-- KEYS  2 the fence of a lock (its last token)
--
-- A token is the server's time or the last token plus one, whichever is greater, after
-- M. Kleppmann's fencing tokens. It goes on growing when the fence has expired or was flushed.

local function text(number)
  return string.format('%.0f', number) -- Lua would write an exponent (rule 20)
end

-- A token above all earlier ones, and not below the server's time.
local function mint(now, keep)
  local last = redis.pcall('SET', KEYS[2], text(now), 'GET', 'PX', keep)
  if type(last) == 'table' then -- not a string: not ours, and in the way
    redis.call('SET', KEYS[2], text(now), 'PX', keep)
    last = false
  end
  last = tonumber(last)
  if not last or last < now then
    return now
  end
  -- The clock went back, or two holds fell into one of its ticks.
  redis.call('SET', KEYS[2], text(last + 1), 'PX', text(keep + math.ceil((last - now) / 1000)))
  return last + 1
end

-- Notes the last token used, where that is beyond the one that was minted.
local function keep_token(used, keep)
  local last = tonumber(redis.pcall('GET', KEYS[2])) or 0
  if last < tonumber(used) then
    redis.call('SET', KEYS[2], used, 'PX', keep)
  end
end
