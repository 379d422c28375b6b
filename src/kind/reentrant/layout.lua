-- Tells whether a hash is a lock in the layout of Redisson, or data, for the scripts of the reentrant lock.
--
-- KEYS  1 the lock
--
-- Redisson has two locks in a hash. A field is an owner, and its value the hold count, a whole number.
--   a plain lock, ours too    one field, <uuid>:<thread>
--   a read-write lock         `mode`, which is read or write; <uuid>:<thread> of each reader; and
--                             <uuid>:<thread>:write of the writer
-- The owners of a lock in one of Redisson's transactions end in 32 more hexadecimal digits. A thread is any number that
-- the caller chose, negative ones included. Any other hash is data, with or without a time to live.

local FOUR = '%x%x%x%x'
local OWNER = '^' .. FOUR .. table.concat({FOUR, FOUR, FOUR, FOUR, FOUR .. FOUR .. FOUR}, '%-') .. ':%-?%d+'

-- Returns the owners, their counts by owner, and the mode of a read-write lock; or nothing and an error, which is the
-- server's own if the user may not read the hash.
--
-- A hash of data may have millions of fields, so a hash of more than 1,000 owners is not read. If it is a read-write
-- lock, its readers are returned as one owner with an empty name. Redisson writes no such lock without an end.
local function holders()
  local size = redis.pcall('HLEN', KEYS[1])
  if type(size) == 'table' then -- the key has another type, or the user may not run HLEN
    return nil, size
  end
  if size > 1001 and redis.call('HEXISTS', KEYS[1], 'mode') == 1 and redis.call('PTTL', KEYS[1]) >= 0 then
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
