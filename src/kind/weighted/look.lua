-- Tells who holds a weighted lock, and nothing else. It needs no other key, so a node of a cluster replies even
-- while the slot is being moved. Stands after state.lua.
--
-- KEYS  1 the lock, as in state.lua
-- ARGV  none
-- Returns the attempts, including those whose leases have ended, until a script takes them out
return redis.call('ZRANGE', KEYS[1], '1099511627776', '+inf', 'BYSCORE')
