-- Token bucket.
-- State:   "1b<unit> <level> <age> <born> <since>"
--          unit   sub-units per unit of the limit that wrote it
--          level  sub-units left at <born>+<age>; negative is debt
--          age    µs from born to the time at which level was right
--          born   µs of Redis time at creation
--          since  units debited since born
-- Limit:   {unit, refill, cap}: sub-units per unit, per µs, of a full bucket
-- Expiry:  time to full + 1 s (the longest lease) + 1 s; a full bucket that no
--          lease is out of says nothing, so forgetting it is no amnesty.
-- Numbers: integers below 2^53, so every sum here is exact; products may leave
--          that range only where just their size matters.
-- Source:  GCRA, ITU-T I.371, in its token form. The Go twin is
--          internal/algo/op.go, line for line.
local MAX_LEASE, MIN_LEASE, CLOCK_SLACK = 1000000, 20000, 1000000
local floor, ceil, min, max, sqrt = math.floor, math.ceil, math.min, math.max, math.sqrt

-- bucket_rescale counts the level in another limit's sub-units, never up.
local function bucket_rescale(s, unit, to)
  if unit == to then return end
  local whole = floor(s.level / unit)
  s.level = whole * to + floor((s.level - whole * unit) * to / unit)
end

-- bucket_load reads a state and brings it to now. Unreadable is lost.
local function bucket_load(raw, lim, now)
  local unit, level, age, born, since =
    string.match(raw or '', '^1b(%d+) (%-?%d+) (%d+) (%d+) (%d+)$')
  if not unit then
    return {level = lim.cap, last = now, born = now, since = 0, fresh = true}
  end
  born = tonumber(born)
  local s = {level = tonumber(level), last = born + tonumber(age), born = born, since = tonumber(since)}
  bucket_rescale(s, tonumber(unit), lim.unit)
  local elapsed = now - s.last
  if elapsed > 0 then
    local add = elapsed * lim.refill
    if add >= lim.cap - s.level then s.level = lim.cap else s.level = s.level + add end
    s.last = now
  elseif elapsed < -CLOCK_SLACK then
    s.last = now -- the clock stepped back: shift, do not forget
  end
  s.level = min(level, lim.cap)
  return s
end

-- bucket_dump is the state as text, and its TTL in ms.
local function bucket_dump(s, lim)
  local age = s.last - s.born
  if age < 0 then s.born, age = s.last, 0 end -- born after a clock step back
  return string.format('1b%.0f %.0f %.0f %.0f %.0f', lim.unit, s.level, age, s.born, s.since),
    ceil(ceil((lim.cap - s.level) / lim.refill) / 1000) + 2000
end

-- bucket_apply runs one op: merge the sender's view if the state was lost,
-- debit what is owed, grant asks as they fit, lease from the rest.
local function bucket_apply(s, lim, op, now)
  local unit, cap, refill = lim.unit, lim.cap, lim.refill
  if op.vborn ~= 0 and op.vborn ~= s.born then
    local seen = op.vlevel + max(now - op.vat, 0) * refill - s.since * unit
    if seen < s.level then s.level, s.dirty = max(seen, -cap), true end
  end
  if op.owed > 0 then
    s.level, s.since, s.dirty = max(s.level - op.owed * unit, -cap), s.since + op.owed, true
  end
  local before = s.level
  local free, granted, refused = max(floor(before / unit), 0), 0, 0
  for i = 1, #op.asks do
    local n = op.asks[i]
    if n <= free then
      free, granted = free - n, granted + n
    elseif op.partial and free > 0 then
      free, granted = 0, granted + free
    elseif refused == 0 then
      refused = op.partial and 1 or n
    end
  end
  -- The bucket cannot fill up while a lease of this life is out, so balance
  -- and leases together stay within the burst and nothing need be remembered.
  local lease, life = 0, min(MAX_LEASE, floor((cap - before) / refill))
  if life < MIN_LEASE then
    life = 0
  elseif op.div > 0 and refused == 0 then
    local mu = op.demand * life / 1e9
    lease = max(0, min(floor(mu - 1.5 * sqrt(mu)), floor(free / op.div)))
  end
  if granted + lease > 0 then
    s.level, s.since, s.dirty = s.level - (granted + lease) * unit, s.since + granted + lease, true
  end
  local retry = max(0, ceil((max(refused, 1) * unit - s.level) / refill))
  return granted, lease, life, retry
end
