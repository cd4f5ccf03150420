-- Sets the fleet's limit of a limiter for an operator, or reads it.
-- KEYS:   1: limit; to set it, 2: time of the last change of a setting
-- ARGV:   to set it, 1: the limit, "" for none; 2: TTL in ms
-- Reply:  the limit, and the µs at which it was set; "" 0 if there is none
-- Expiry: see fleetlimit.lua
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local limit, at = read_limit(KEYS[1], now)
if ARGV[1] then
  local set, _ = limit_args(ARGV[1], '0')
  local _, _, ttl = switch_args('0', '0', ARGV[2])
  if not set or not ttl or not KEYS[2] then return {err = 'HLLIMIT unreadable limit'} end
  limit, at = set, math.max(now, at + 1) -- later than the limit before
  write_limit(KEYS[1], limit, at, ttl)
  change(KEYS[2], at, ttl)
end
return {limit, at}
