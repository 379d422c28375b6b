-- Gives an attempt its weight. Stands after hold.lua.

-- The time to live of a fence that is written now: it outlasts all who hold (rule 26).
local function fence_for(keep)
  return text(used > 0 and math.max(keep, redis.call('PTTL', KEYS[2])) or keep)
end

-- The slot of a rank, from the lowest. Three members stand below all slots.
local function slot_at(rank)
  return tonumber(redis.call('ZRANGE', KEYS[1], rank + 3, rank + 3, 'WITHSCORES')[2]) - BAND
end

-- The lowest free slots (rule 29). There are as many slots as the sum says, so that none is free below a slot
-- that is its own rank.
local function free_slots(count)
  local slots, rank, free = {}, used, math.huge
  if used > 0 and slot_at(used - 1) >= used then
    rank, free = 0, 0
  end
  for i = 1, count do
    if i > free then
      -- The first slot that has so many free ones below it.
      local high = used
      free = math.huge
      while rank < high do
        local middle = math.floor((rank + high) / 2)
        local below = slot_at(middle) - middle
        if below < i then
          rank = middle + 1
        else
          high, free = middle, below
        end
      end
    end
    slots[i] = rank + i - 1
  end
  return slots
end

-- Takes back what one ZADD has written for an attempt, because a later command was refused.
local function take_back(words, is_new)
  local gone = {}
  for at = is_new and 2 or 4, #words, 2 do
    gone[#gone + 1] = words[at]
  end
  redis.pcall('ZREM', KEYS[1], unpack(gone))
  if not is_new then
    redis.pcall('ZADD', KEYS[1], text(used), 'used')
  end
end

-- Makes an attempt a holder for so many ms; returns its token and its slots. What the lock needs is kept as
-- long as that, or longer, and the limit of a resize for its own time. The first write is the one that makes it a
-- holder (rule 41). If a later command is refused, the holder is taken out again, because no client would know of it
-- (rule 56).
local function give(attempt, weight, ttl, keep)
  local slots = is_rw and {} or free_slots(weight)
  local words = {text(used + weight), 'used', text(now + 1000 * ttl), attempt}
  if not declared then
    words[5], words[6], words[7], words[8] = text(limit), 'declared', text(limit), 'limit'
  end
  for i, slot in ipairs(slots) do
    words[#words + 1] = text(BAND + slot)
    words[#words + 1] = i .. '/' .. attempt
  end
  redis.call('ZADD', KEYS[1], unpack(words))
  keep = math.max(ttl, keep)
  local is_done, token = pcall(function()
    if declared then
      redis.call('PEXPIRE', KEYS[1], text(math.max(keep, limit_ttl)), 'GT')
    else
      redis.call('PEXPIRE', KEYS[1], text(keep))
    end
    return mint(digits, fence_for(keep))
  end)
  if not is_done then
    take_back(words, not declared)
    error(refusal(token), 0)
  end
  declared = declared or limit
  used = used + weight
  return token, slots
end
