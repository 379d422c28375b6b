-- A holder leaves what the lock protects. Keys and arguments as in enter.lua.
if redis.call('HGET', KEYS[1], 'inside') ~= ARGV[1] then
  return redis.call('HINCRBY', KEYS[1], 'overlaps', 1)
end
return redis.call('HDEL', KEYS[1], 'inside')
