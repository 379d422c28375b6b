-- The kind of a lock, by which each of its scripts begins: state.lua stands after it.
local KIND, is_rw = 'semaphore', false
