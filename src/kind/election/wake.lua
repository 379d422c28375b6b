-- Gives the lead of a leader that was evicted to the first living candidate, and tells the observers. Stands after
-- line.lua, hand_over.lua and word.lua.
local function wake(leader, at, keep)
  hand_over(at, keep)
  settle(leader, keep)
end
