-- The keys of an election. Stands first in each of its scripts that has more keys than a renewal.
--
-- KEYS  1 the lock (a string: its leader)   2 its fence (the last term)
--       3 the word: what the leader says, a string <term> <number> <value>, where the number grows with each word of a
--         term and is 0 before the first
--       4 the line (candidate -> place)   5 the signs of life   6 in a cluster only: a key that is never there
--
-- The first three are there for as long as somebody leads. So a renewal, which has no other, runs also while the slot
-- is being moved. The scripts of the mutex, which stand behind this, find their own keys in their own order.
--
-- A word counts only while its term is that of the lock, so one that is left over says nothing.
local WORD = KEYS[3]
local KEYS = {KEYS[1], KEYS[2], KEYS[4], KEYS[5], KEYS[6]}
