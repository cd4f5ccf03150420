-- Token bucket.
-- State:   "1b<unit> <level> <age> <born> <since>"
--          unit   sub-units per unit of the limit that wrote it
--          level  sub-units left at <born>+<age>; negative is debt
--          age    µs from born to the time at which level was right; negative
--                 after a clock step back: born is a name and never changes
--          born   µs of Redis time at creation
--          since  units debited since born
-- Limit:   {unit, refill, cap}: sub-units per unit, per µs, of a full bucket
-- Expiry:  time to full + 1 s (the longest lease) + 1 s (the longest freeze); a
--          full bucket that no lease is out of says nothing, so forgetting it
--          is no amnesty.
-- Numbers: integers up to 2^53, so every sum here is exact; products may leave
--          that range only where just their size matters.
-- Source:  GCRA, ITU-T I.371, in its token form. The Go twin is
--          internal/algo/op.go, line for line.
local MAX_LEASE, MIN_LEASE, CLOCK_SLACK = 1000000, 20000, 1000000
local EXACT, NEVER = 2 ^ 53, 2 ^ 53
local abs, floor, ceil, min, max, sqrt =
  math.abs, math.floor, math.ceil, math.min, math.max, math.sqrt

-- num is what a match of digits says, and infinite where it says nothing or
-- too much (gopher-lua's tonumber gives nil above 63 bits, and fails on a match
-- that found nothing).
local function num(digits) return digits and tonumber(digits) or math.huge end

-- bucket_rescale counts the level in another limit's sub-units and brings it
-- into that limit's range; never up.
local function bucket_rescale(s, unit, lim)
  if unit ~= lim.unit then
    local whole = floor(s.level / unit)
    local product = (s.level - whole * unit) * lim.unit
    local part = floor(product / unit)
    if product >= EXACT then part = max(part - 1, 0) end -- rounded twice, perhaps up
    s.level = whole * lim.unit + part
  end
  s.level = max(-lim.cap, min(s.level, lim.cap))
end

-- bucket_read parses a state. One that this library cannot have written is nil.
local function bucket_read(raw)
  local unit, level, age, born, since =
    string.match(raw or '', '^1b(%d+) (%-?%d+) (%-?%d+) (%d+) (%d+)$')
  if not unit then return nil end
  unit, level, age, born, since = num(unit), num(level), num(age), num(born), num(since)
  if unit < 1 or born < 1 or max(unit, abs(level), abs(age), born, since) > EXACT then return nil end
  return {level = level, last = born + age, born = born, since = since}, unit
end

-- bucket_load is a state brought to now; an unreadable one is lost.
local function bucket_load(raw, lim, now)
  local s, unit = bucket_read(raw)
  if not s then
    return {level = lim.cap, last = now, born = now, since = 0, fresh = true}
  end
  bucket_rescale(s, unit, lim)
  local elapsed = now - s.last
  if elapsed > 0 then
    s.level, s.last = min(s.level + elapsed * lim.refill, lim.cap), now
  elseif elapsed < -CLOCK_SLACK then
    s.last = now -- the clock stepped back: shift, do not forget
  end
  return s
end

-- bucket_dump is the state as text, and its TTL in ms.
local function bucket_dump(s, lim)
  return string.format('1b%.0f %.0f %.0f %.0f %.0f', lim.unit, s.level, s.last - s.born, s.born, s.since),
    ceil(ceil((lim.cap - s.level) / lim.refill) / 1000) + (MAX_LEASE + CLOCK_SLACK) / 1000
end

-- bucket_retry is how many µs until n units are there.
local function bucket_retry(s, lim, n, now)
  if n * lim.unit > lim.cap then return NEVER end
  if n * lim.unit <= s.level then return 0 end
  return ceil((n * lim.unit - s.level) / lim.refill) + max(s.last - now, 0)
end

-- bucket_apply runs one op: merge the sender's view if the state was lost or
-- rolled back, debit what is owed, grant asks as they fit, lease from the rest.
local function bucket_apply(s, lim, op, now)
  local unit, cap, refill = lim.unit, lim.cap, lim.refill
  if op.vborn ~= 0 and op.vborn ~= s.born then
    local seen = op.vlevel + max(now - op.vat, 0) * refill - s.since * unit
    if seen < s.level then s.level, s.dirty = max(seen, -cap), true end
  elseif op.lost and op.vborn ~= 0 and op.vat <= now then
    -- Others only debit, so a state above the view was rolled back. It begins
    -- a new life, so that everyone else's view is held against it too. By less
    -- than a unit it is not worth that.
    local seen = op.vlevel + (s.last - op.vat) * refill
    if seen <= s.level - unit then
      s.level, s.born, s.since, s.dirty = max(seen, -cap), max(now, s.born + 1), 0, true
    end
  end
  if op.owed > 0 then
    s.level, s.since, s.dirty = max(s.level - op.owed * unit, -cap), min(s.since + op.owed, EXACT), true
  end
  local before = s.level
  local free, granted, refused = max(floor(before / unit), 0), 0, 0
  for i = 1, #op.asks do
    local n = op.asks[i]
    if n <= free then
      free, granted = free - n, granted + n
    elseif op.partial and free > 0 then
      granted = granted + free -- not in one assignment: gopher-lua would zero free first
      free = 0
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
    s.level, s.since, s.dirty = s.level - (granted + lease) * unit, min(s.since + granted + lease, EXACT), true
  end
  return granted, lease, life, bucket_retry(s, lim, max(refused, 1), now)
end
