-- The script of the mutex, or of all kinds, that stands between this file and the next one of the election.
local function plain()
