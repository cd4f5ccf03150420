-- An operator's word: sets the fleet's switch of a limit, or reads it.
-- KEYS:   1: switch
-- ARGV:   1: the switch, or "" to read it; 2: TTL in ms
-- Reply:  the switch, and the µs at which it was set; 0 0 where there is none
-- Expiry: see switch.lua
local switch, at = read_switch(KEYS[1])
if ARGV[1] ~= '' then
  local set, _, ttl = switch_args(ARGV[1], '0', ARGV[2])
  if not set then return {err = 'HLSWITCH unreadable switch'} end
  local t = redis.call('TIME')
  -- Later than the last one, also where the clock has stepped back.
  switch, at = set, math.max(t[1] * 1000000 + t[2], at + 1)
  write_switch(KEYS[1], switch, at, ttl)
end
return {switch, at}
