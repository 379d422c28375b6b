-- Holders and their weights. Stands after token.lua and state.lua.

local LEASES = '1099511627776'
local CLASSES, WEIGHTS = {r = 0, u = 1, w = 2}, {[0] = 1, 2147483649, ALL}

local function read_clock()
  digits = micros(redis.call('TIME'))
  now = tonumber(digits)
end

-- The weight that an attempt asks for; nothing if it means nothing here.
local function asked(attempt)
  local word = string.match(attempt, '^%dq:%x+:%x+:%d+:(%w+):')
  if is_rw then
    return WEIGHTS[CLASSES[word]]
  end
  return tonumber(word)
end

-- The weight of a holder, and the number of its last change.
local function held(attempt)
  local last = is_rw and redis.call('ZSCORE', KEYS[1], 'c/' .. attempt)
  if last then
    return WEIGHTS[(last - BAND) % 4], math.floor((last - BAND) / 4)
  end
  return asked(attempt) or 0, 0
end

-- Takes a holder out, with what belongs to it.
local function drop(attempt)
  local weight, gone = held(attempt), {attempt}
  if is_rw then
    gone[2] = 'c/' .. attempt
  else
    for i = 1, weight do
      gone[i + 1] = i .. '/' .. attempt
    end
  end
  -- The sum comes first, so that it does not stay too high if the user may not write it. The command before it writes
  -- nothing, and is never refused when memory is full (rule 41).
  redis.call('ZREM', KEYS[1], '')
  redis.call('ZADD', KEYS[1], text(used - weight), 'used')
  if redis.call('ZREM', KEYS[1], unpack(gone)) == 2 and is_rw then
    -- It has asked for another weight, and may wait for it. So its upgrade never outlives it (rule 37).
    redis.call('ZREM', KEYS[3], attempt)
    redis.call('ZREM', KEYS[4], attempt)
  end
  used = used - weight
end
