-- The rest of release.lua: somebody waits or holds, or the attempt does not hold.
read_clock()
return give_back(ARGV[2], ARGV[3]) and 1 or 0
