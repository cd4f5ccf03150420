-- Sets the fleet's limit of a key of a limiter for an operator, tells the limits that a
-- process knows, or reads all of them.
-- KEYS:   1: state (keylimits.lua); to change it, 2: time of the last change of a setting
-- ARGV:   none to read; else 1: "set" or "tell"; 2: TTL in ms; 3: lines as in the state. For
--         "set" it is one, and its time has no meaning.
-- Reply:  now in µs; the state
-- Expiry: see keylimits.lua
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local text = redis.call('MGET', KEYS[1])[1] or ''
local version, lines, keys = read_keys(text)
if not ARGV[1] then return {now, version > 0 and text or ''} end
local _, _, ttl = switch_args('0', '0', ARGV[2])
local told, order = read_lines(ARGV[3] or '\n')
local set = ARGV[1] == 'set'
if not ttl or not told or not KEYS[2] or not set and ARGV[1] ~= 'tell' or set and #order ~= 1 then
  return {err = 'HLKEYS unreadable limits of keys'}
end
local latest = math.max(now, version + 1)
local changed = false
for _, key in ipairs(order) do
  local at, have = told[key][1], lines[key]
  if set then
    at = latest
  elseif at > now then -- Redis's clock was set back: see settings.lua
    at = have and 0 or now
  end
  if not have or at > have[1] then
    if not have then keys[#keys + 1] = key end
    lines[key], changed = {at, told[key][2]}, true
  end
end
if not changed then return {now, version > 0 and text or ''} end
text = write_keys(KEYS[1], latest, lines, keys, now, ttl)
if not text then return {err = 'HLFULL the limiter has too many keys with a limit of the fleet'} end
change(KEYS[2], latest, ttl)
return {now, text}
