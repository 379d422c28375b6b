-- The kind of a lock. Each of its scripts begins with this file, and state.lua stands after it.
local KIND, is_rw = 'semaphore', false
