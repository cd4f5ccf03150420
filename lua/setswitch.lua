-- Sets the fleet's switch of a limit for an operator, or reads it.
-- KEYS:   1: switch; to set it, 2: time of the last change of a setting
-- ARGV:   1: the switch, or "" to read it; 2: TTL in ms
-- Reply:  the switch, and the µs at which it was set; 0 0 if there is none
-- Expiry: see switch.lua
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local switch, at, more = read_switch(KEYS[1], now)
if ARGV[1] ~= '' then
  local set, _, ttl = switch_args(ARGV[1], '0', ARGV[2])
  if not set or not KEYS[2] then return {err = 'HLSWITCH unreadable switch'} end
  switch, at = set, math.max(now, at + 1) -- later than the switch before
  write_switch(KEYS[1], switch, at, more, ttl)
  change(KEYS[2], at, ttl)
end
return {switch, at}
