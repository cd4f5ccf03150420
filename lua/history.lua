-- A page of the admissions of a sliding log within its period.
-- KEYS:   1: the log
-- ARGV:   1: period in µs; 2: µs of Redis time of the last entry of the page
--         before, or 0; 3: the most entries of a page
-- Reply:  1, now, the number of entries from here on, then per entry of the
--         page, the oldest first: µs of Redis time, units, id
-- Expiry: the script writes nothing
local function run_history(key, argv, now)
  local period, after, most = match(argv[1] or '', '^%d+$'), match(argv[2] or '', '^%d+$'), match(argv[3] or '', '^%d+$')
  if num(period) > EXACT / 2 or num(after) > EXACT or num(most) > EXACT then return {err = 'HLHISTORY unreadable page'} end
  local s = log_load(nil, {period = num(period)}, now, key)
  local first, last = s.first, s.stored - 1
  if num(after) > 0 and first <= last then
    first = max(first, redis.call('ZCOUNT', key, '-inf', format('%.0f', num(after) + s.shift)))
  end
  local reply = {1, now, max(0, s.stored - first)}
  last = min(last, first + num(most) - 1)
  if first <= last then log_fetch(s, first, last) end
  for rank = first, last do
    local e, n = s.known[rank], #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = e.at, e.cost, string.sub(e.id, 2)
  end
  return reply
end
