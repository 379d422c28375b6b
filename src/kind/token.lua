-- What the scripts of all kinds share: fencing tokens.
--
-- KEYS  2 the fence of a lock (its last token)
--
-- A token is the server's time or the last token plus one, whichever is greater, after
-- M. Kleppmann's fencing tokens. It goes on growing when the fence has expired or was flushed.
--
-- Times and tokens are handed on as digits where they can be: to write a number costs more than to
-- store it, and Lua would write an exponent (rule 20).

local function text(number)
  return string.format('%.0f', number)
end

-- The answer to TIME as digits, in microseconds.
local function micros(time)
  return #time[2] == 6 and time[1] .. time[2] or string.format('%.0f%06.0f', time[1], time[2])
end

-- Makes a reply of an error that `pcall` has caught: in some versions of Redis it is only a text.
local function refusal(error)
  return type(error) == 'table' and error or {err = error}
end

-- The token after the last one, where the server's time has just been noted in its place.
local function above(last, now, keep)
  if type(last) == 'table' then -- not a string: not ours, and in the way
    redis.call('SET', KEYS[2], now, 'PX', keep)
    return now
  end
  local ahead = (tonumber(last) or 0) - now
  if ahead < 0 then
    return now
  end
  -- The clock went back, or two holds fell into one of its ticks.
  local token = text(tonumber(last) + 1)
  redis.call('SET', KEYS[2], token, 'PX', text(tonumber(keep) + math.ceil(ahead / 1000)))
  return token
end

-- A token above all earlier ones, and not below the server's time, as digits.
local function mint(now, keep)
  return above(redis.pcall('SET', KEYS[2], now, 'GET', 'PX', keep), now, keep)
end

-- Notes the last token used, where that is beyond the one that was minted.
local function keep_token(used, keep)
  local last = tonumber(redis.pcall('GET', KEYS[2])) or 0
  if last < tonumber(used) then
    redis.call('SET', KEYS[2], used, 'PX', keep)
  end
end
