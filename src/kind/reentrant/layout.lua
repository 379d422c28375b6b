-- What a hash is, for the scripts of the reentrant lock: a lock in the layout of Redisson, or data.
--
-- KEYS  1 the lock
--
-- Redisson has two locks in a hash. A field is an owner, and its value the hold count, a whole number.
--   a plain lock, ours too    one field, <uuid>:<thread>
--   a read-write lock         `mode`, which is read or write; <uuid>:<thread> of each reader; and
--                             <uuid>:<thread>:write of the writer
-- A lock of one of Redisson's transactions has 32 hexadecimal digits behind that. A thread is any number that its
-- caller chose, also below zero. Any other hash is data, with a time to live or without.

local FOUR = '%x%x%x%x'
local OWNER = '^' .. FOUR .. table.concat({FOUR, FOUR, FOUR, FOUR, FOUR .. FOUR .. FOUR}, '%-') .. ':%-?%d+'

-- The owners and their counts by owner, and the mode of a read-write lock; or nothing, and an error. That is a
-- refusal of the server where this user may not look.
--
-- A hash that is data may have millions of fields, so not all of more than 1,000 are read. A read-write lock may have
-- as many readers, who are then one owner without a name.
local function holders()
  local size = redis.pcall('HLEN', KEYS[1])
  if type(size) == 'table' then -- of another type, or this user may not ask
    return nil, size
  end
  if size > 1001 and redis.call('HEXISTS', KEYS[1], 'mode') == 1 then
    return {''}, {}, 'read'
  end
  local fields = size <= 1001 and redis.pcall('HGETALL', KEYS[1]) or {}
  if fields.err then
    return nil, fields
  end
  local owners, counts, mode, writer, is_lock = {}, {}, nil, false, size <= 1001
  for at = 1, #fields, 2 do
    local field, value = fields[at], fields[at + 1]
    local _, last = string.find(field, OWNER)
    local rest = last and string.sub(field, last + 1)
    if rest and #rest > 32 and string.find(rest, '^:%x+$', -33) then
      rest = string.sub(rest, 1, -34)
    end
    if field == 'mode' and (value == 'read' or value == 'write') then
      mode = value
    elseif (rest == '' or rest == ':write') and string.find(value, '^%d+$') then
      owners[#owners + 1], counts[field] = field, tonumber(value)
      writer = writer or rest ~= ''
    else
      is_lock = false
    end
  end
  if size == 0 or is_lock and (mode and owners[1] or #owners == 1 and not writer) then
    return owners, counts, mode
  end
  return nil, {err = 'WRONGTYPE not a lock: a hash whose fields are not owners with their hold counts; '
    .. 'choose another name'}
end
