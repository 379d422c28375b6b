-- Tells who holds a weighted lock, and nothing else. It needs no other key, so that a node of a cluster replies also
-- while the slot is being moved. Stands after state.lua.
--
-- KEYS  1 the lock, as in state.lua
-- ARGV  1 look, by which requests are told apart on their way
-- Returns the attempts, also of leases that have ended, until a script takes them out
return redis.call('ZRANGE', KEYS[1], '1099511627776', '+inf', 'BYSCORE')
