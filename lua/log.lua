-- Sliding log (l).
-- State:   sorted set, one member per admission: "<total> <cost>[ <id>]". total is
--          the units admitted up to and including it (16 digits), id is that of
--          the op. The score is the µs of Redis time, later than the one before.
--          So the units of a range of ranks follow from its two ends, and the
--          time at which n units fit follows from a search of log2 steps.
-- Limit:   "l <rate> <period> 1": units, µs
-- Expiry:  when the last entry leaves, + 1 s (the longest freeze)
-- Memory:  up to <rate> entries (twice that in debt) of about 100 bytes each.
--          Totals start anew before they leave the exact range.
-- Source:  the Go twin, a plain list, is internal/algo/log.go.

-- log_fetch reads the stored entries of a range of ranks.
local function log_fetch(s, from, to)
  local got = redis.call('ZRANGE', s.key, from, to, 'WITHSCORES')
  for i = 1, #got, 2 do
    local total, cost, id = match(got[i], '^(%d+) (%d+)(.*)$')
    s.known[from + (i - 1) / 2] =
      {text = got[i], at = num(got[i + 1]) - s.shift, total = num(total) - s.off, cost = num(cost), id = id or ''}
  end
end

-- log_entry returns the entry at a rank. The ranks of added entries follow those of
-- the stored ones.
local function log_entry(s, rank)
  if rank >= s.stored then return s.added[rank - s.stored + 1] end
  if not s.known[rank] then log_fetch(s, rank, rank) end
  return s.known[rank]
end

local function log_count(s) return s.stored + #s.added end

-- log_find returns the first rank up to which the entries have more than n units.
local function log_find(s, n)
  local low, high = s.first, log_count(s)
  while low < high do
    local mid = floor((low + high) / 2)
    if log_entry(s, mid).total - s.base > n then high = mid else low = mid + 1 end
  end
  return low
end

-- log_trim moves the log with a clock that stepped back, and leaves out entries
-- that are a period old.
local function log_trim(s, lim, now)
  local shift = s.last - now
  if shift > CLOCK_SLACK then
    s.shift, s.last = s.shift + shift, now
    for _, e in pairs(s.known) do e.at = e.at - shift end
    for _, e in ipairs(s.added) do e.at = e.at - shift end
  end
  local edge = now - lim.period
  if s.first < s.stored then -- Redis also counts entries that log_undo moved to s.added
    s.first = max(s.first, min(s.stored, redis.call('ZCOUNT', s.key, '-inf', format('%.0f', edge + s.shift))))
  end
  while s.first < log_count(s) and log_entry(s, s.first).at <= edge do s.first = s.first + 1 end
  if s.first >= log_count(s) then
    s.base = s.total
  else
    local e = log_entry(s, s.first)
    s.base = max(s.base, e.total - e.cost)
  end
end

local function log_load(raw, lim, now, key)
  local s = {key = key, known = {}, added = {}, stored = 0, first = 0, base = 0, total = 0, last = 0, shift = 0, off = 0, born = 0}
  s.fresh = true -- a log has no views, and no process is told when it was born
  local got = raw and {} or redis.pcall('ZRANGE', key, -1, -1, 'WITHSCORES')
  if got.err and not match(got.err, '^WRONGTYPE') then error(got.err, 0) end -- a lacking right is no loss
  local total = match(got[1] or '', '^(%d+) %d+')
  if not total or num(total) > EXACT or num(got[2]) > EXACT then
    s.foreign = raw or got.err or got[1] -- of another type, or not of this library: lost
    return s
  end
  s.stored, s.total, s.last = redis.call('ZCARD', key), num(total), num(got[2])
  log_trim(s, lim, now)
  if s.total > EXACT / 2 then -- count anew, from the entries left
    s.off = s.base
    s.total = s.total - s.off
    s.base = 0
    for _, e in pairs(s.known) do e.total = e.total - s.off end
  end
  return s
end

local function log_add(s, n, id, now)
  s.total = s.total + n
  s.last = s.first < log_count(s) and max(now, s.last + 1) or now
  s.added[#s.added + 1] = {at = s.last, total = s.total, cost = n, id = id}
  s.dirty = true
end

local function log_retry(s, lim, n, now)
  if n > lim.rate then return NEVER end
  local need = s.total - s.base - lim.rate + n
  if need <= 0 then return 0 end
  return log_entry(s, log_find(s, need - 1)).at + lim.period - now
end

-- log_refund takes units off the oldest entries.
local function log_refund(s, n)
  if s.first >= log_count(s) then return end
  s.first, s.dirty = log_find(s, n), true
  s.base = min(s.base + n, s.total)
end

-- log_undo takes units off the entry of a time, if it is still there. The entries
-- behind it are written anew, because their totals include its units.
local function log_undo(s, n, at)
  local low, high = s.first, log_count(s)
  while low < high do
    local mid = floor((low + high) / 2)
    if log_entry(s, mid).at < at then low = mid + 1 else high = mid end
  end
  if low >= log_count(s) or log_entry(s, low).at ~= at then return end
  if low < s.stored then
    local tail = {}
    log_fetch(s, low, s.stored - 1)
    for rank = low, log_count(s) - 1 do
      tail[#tail + 1] = log_entry(s, rank)
      s.known[rank] = nil
    end
    s.added, s.stored, s.cut = tail, low, true
  end
  local i = low - s.stored + 1
  local e = s.added[i]
  local left = low == s.first and e.total - s.base or e.cost
  n = min(n, left)
  for j = i, #s.added do s.added[j].total = s.added[j].total - n end
  e.cost, s.total, s.dirty = left - n, s.total - n, true
  if e.cost == 0 then table.remove(s.added, i) end
  s.last = s.first < log_count(s) and log_entry(s, log_count(s) - 1).at or 0
end

-- log_apply runs one op, in the order of bucket_apply.
local function log_apply(s, lim, op, now)
  if op.reset and s.first < log_count(s) then s.first, s.base, s.dirty = log_count(s), s.total, true end
  local owed = min(op.owed, min(2 * lim.rate, EXACT) - (s.total - s.base))
  if owed > 0 then log_add(s, owed, op.id or '', now) end
  if op.refund > 0 and op.refundat > 0 then
    log_undo(s, op.refund, op.refundat)
  elseif op.refund > 0 then
    log_refund(s, op.refund)
  end
  local granted, refused = serve(op, max(lim.rate - (s.total - s.base), 0), function(n) log_add(s, n, op.id or '', now) end)
  return granted, 0, 0, log_retry(s, lim, max(refused, 1), now), 0
end

-- log_put writes entries, in chunks that Lua can unpack.
local function log_put(key, entries)
  for i = 1, #entries, 500 do
    local args = {}
    for j = i, min(i + 499, #entries) do
      local e = entries[j]
      args[#args + 1] = format('%.0f', e.at)
      args[#args + 1] = format('%016.0f %.0f', e.total, e.cost) .. e.id
    end
    redis.call('ZADD', key, unpack(args))
  end
end

local function log_write(key, s, lim, now)
  local put, whole = {}, s.shift > 0 or s.off > 0
  if whole then -- reads and writes all entries, once
    for rank = s.first, s.stored - 1 do put[#put + 1] = log_entry(s, rank) end
  end
  if whole or s.foreign or s.first >= log_count(s) then redis.call('DEL', key) end
  if s.first >= log_count(s) then return end
  if s.cut and not whole then redis.call('ZREMRANGEBYRANK', key, s.stored, -1) end
  local head = log_entry(s, s.first)
  if s.first < s.stored and not whole and s.base > head.total - head.cost then -- refunded in part
    redis.call('ZREM', key, head.text)
    put[1] = head
  end
  head.cost = head.total - s.base
  if s.first > 0 and s.stored > 0 and not whole then
    -- A rewritten head is gone from its rank. The entries before it are still there.
    redis.call('ZREMRANGEBYRANK', key, 0, min(s.first, s.stored) - 1)
  end
  for i = s.first - min(s.first, s.stored) + 1, #s.added do put[#put + 1] = s.added[i] end
  log_put(key, put)
  redis.call('PEXPIRE', key, ceil((s.last + lim.period - now) / 1000) + CLOCK_SLACK / 1000)
end

kinds.l = {
  limit = function(rate, period)
    if rate < 1 or rate >= EXACT or period < 1 or period > EXACT / 2 then return nil end
    return {kind = 'l', rate = rate, period = period}
  end,
  load = log_load, again = log_trim, apply = log_apply, retry = log_retry, write = log_write,
  tell = function(s, lim, now)
    return lim.rate - (s.total - s.base), lim.rate, 0, s.first < log_count(s) and s.last + lim.period - now or 0
  end,
}
