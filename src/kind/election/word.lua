-- What the scripts of an election share, after keys.lua: the word, and the message to the observers.
--
-- The channel is named after the key of the word, so it hashes to the slot of the lock. Its message is the term, or 0
-- if nobody leads, and serves people: an observer that hears it looks.

local function tell(term)
  redis.pcall('PUBLISH', 'leasehold:' .. WORD, term) -- last, and may be forbidden
end

-- The number and the value of the word of this term; nothing if there is none.
local function said_in(term)
  local word = redis.pcall('GET', WORD)
  if type(word) ~= 'string' then
    return nil
  end
  local of, number, value = string.match(word, '^(%d+) (%d+) (.*)$')
  if of ~= term then
    return nil
  end
  return tonumber(number), value
end

-- Writes a word, which lives as long as the fence: that was set for the lease of the leader.
local function write(term, number, value, keep)
  local left = math.max(redis.call('PTTL', KEYS[2]), tonumber(keep)) -- somebody may have taken away its end
  return redis.pcall('SET', WORD, term .. ' ' .. number .. ' ' .. value, 'PX', left)
end

-- Notes a term that has just begun, in which nothing has been said, and tells the observers of it, or that nobody leads
-- any more: `before` is who led when the script began. Returns the error if the word is refused.
local function settle(before, keep)
  if not redis.call('GET', KEYS[1]) then
    if before then
      redis.pcall('DEL', WORD)
      tell('0')
    end
    return nil
  end
  local term = redis.pcall('GET', KEYS[2])
  if type(term) ~= 'string' or said_in(term) then
    return nil
  end
  local written = write(term, '0', '', keep)
  tell(term)
  return written.err and written or nil
end
