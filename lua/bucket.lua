-- Token bucket.
-- State:   "1b<unit> <level> <age> <born> <since>[ <wait> <out> <outbefore>]"
--          unit   sub-units per unit of the limit that wrote it
--          level  sub-units left at <born>+<age>; negative is debt
--          age    µs from born to the time at which level was right; negative
--                 after a clock step back: born is a name and never changes
--          born   µs of Redis time at creation
--          since  units debited since born
--          wait   µs from <born>+<age> to the next free turn
--          out    units that the ledger holds: leased in the second in which
--                 level was right, and in the one before
-- Limit:   {unit, refill, cap}: sub-units per unit, per µs, of a full bucket
-- Expiry:  time to full + 1 s (the longest lease) + 1 s (the longest freeze, or
--          the ledger's second generation); a full bucket that no lease is out
--          of says nothing, so forgetting it is no amnesty.
-- Numbers: integers up to 2^53, so every sum here is exact; products may leave
--          that range only where just their size matters.
-- Source:  GCRA, ITU-T I.371, in its token form. The Go twin, line for line and
--          with the reasons for leases and turns, is internal/algo: op.go,
--          lease.go, turn.go.
local MAX_LEASE, MIN_LEASE, CLOCK_SLACK = 1000000, 20000, 1000000
local HORIZON, MAX_TICKET = 500000, 60000000
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
  local unit, level, age, born, since, tail =
    string.match(raw or '', '^1b(%d+) (%-?%d+) (%-?%d+) (%d+) (%d+)(.*)$')
  if not unit then return nil end
  unit, level, age, born, since = num(unit), num(level), num(age), num(born), num(since)
  if unit < 1 or born < 1 or max(unit, abs(level), abs(age), born, since) > EXACT then return nil end
  local s = {level = level, last = born + age, born = born, since = since, slot = 0, out = 0, outbefore = 0}
  if tail ~= '' then
    local wait, out, outbefore = string.match(tail, '^ (%d+) (%d+) (%d+)$')
    if not wait then return nil end
    wait, s.out, s.outbefore = num(wait), num(out), num(outbefore)
    if max(wait, s.out, s.outbefore) > EXACT then return nil end
    if wait > 0 then s.slot = s.last + wait end
  end
  return s, unit
end

-- The ledger's generations are the seconds of Redis time.
local function generation(s) return floor(s.last / MAX_LEASE) end

-- bucket_ceiling is the level to which the bucket refills.
local function bucket_ceiling(s, lim) return max(0, lim.cap - (s.out + s.outbefore) * lim.unit) end

-- bucket_refill brings the level to a time before which the ledger does not
-- change.
local function bucket_refill(s, lim, at)
  s.level, s.last = min(s.level + (at - s.last) * lim.refill, bucket_ceiling(s, lim)), at
end

-- bucket_load is a state brought to now; an unreadable one is lost.
local function bucket_load(raw, lim, now)
  local s, unit = bucket_read(raw)
  if not s then
    return {level = lim.cap, last = now, born = now, since = 0, slot = 0, out = 0, outbefore = 0, fresh = true}
  end
  bucket_rescale(s, unit, lim)
  local elapsed = now - s.last
  if elapsed > 0 then
    local edge = (generation(s) + 1) * MAX_LEASE
    while s.out + s.outbefore > 0 and edge <= now do
      bucket_refill(s, lim, edge)
      s.outbefore = s.out -- what is older is dead
      s.out, edge = 0, edge + MAX_LEASE
    end
    bucket_refill(s, lim, now)
  elseif elapsed < -CLOCK_SLACK then
    s.last = now -- the clock stepped back: shift, do not forget
  end
  s.level = min(s.level, bucket_ceiling(s, lim))
  return s
end

-- bucket_dump is the state as text, and its TTL in ms.
local function bucket_dump(s, lim)
  local text = string.format('1b%.0f %.0f %.0f %.0f %.0f', lim.unit, s.level, s.last - s.born, s.born, s.since)
  if s.slot > s.last or s.out + s.outbefore > 0 then
    text = text .. string.format(' %.0f %.0f %.0f', max(s.slot - s.last, 0), s.out, s.outbefore)
  end
  return text, ceil(ceil((lim.cap - s.level) / lim.refill) / 1000) + (MAX_LEASE + CLOCK_SLACK) / 1000
end

-- bucket_retry is how many µs until n units are there.
local function bucket_retry(s, lim, n, now)
  if n * lim.unit > lim.cap then return NEVER end
  if n * lim.unit <= s.level then return 0 end
  return ceil((n * lim.unit - s.level) / lim.refill) + max(s.last - now, 0)
end

-- bucket_settle replaces what the ledger holds for the sender by what it still
-- has in hand, unless the ledger knows nothing of it any more.
local function bucket_settle(s, op)
  local back = generation(s) - op.gen
  local field = back == 0 and 'out' or back == 1 and 'outbefore'
  if op.gen == 0 or not field or op.vborn ~= s.born or op.had > s[field] or op.keep > op.had then return false end
  s[field] = s[field] - op.had
  s.out, s.dirty = s.out + op.keep, true
  return op.keep > 0
end

-- bucket_horizon is the µs of demand that a visitor may take while units are
-- scarce; bucket_quantum these units.
local function bucket_horizon(lim) return min(HORIZON, floor(7 * floor(lim.cap / lim.refill) / 20)) end

local function bucket_quantum(s, lim, op, now)
  local h, queue = bucket_horizon(lim), s.slot - now
  if queue > h then h = h * ((h / queue) * (h / queue)) end
  return max(1, min(op.demand * h / 1e9, floor(floor(lim.cap / lim.unit) / 8)))
end

-- bucket_lease sizes a lease from free units. It returns units, life, and
-- whether the ledger holds them.
local function bucket_lease(s, lim, op, before, free, refused, kept, now)
  local life, lease = min(MAX_LEASE, floor((bucket_ceiling(s, lim) - before) / lim.refill)), 0
  if life < MIN_LEASE then life = 0 end
  if op.div > 0 and op.demand > 0 and refused == 0 then
    local part = min(max(floor(free / op.div), floor(bucket_quantum(s, lim, op, now))), free)
    local mu = op.demand * life / 1e9
    lease = min(part, floor(mu - sqrt(mu)))
    local room = floor(floor(lim.cap / lim.unit) / 2) - s.out - s.outbefore
    local booked = min(part, room, floor(op.demand / 1000) - op.keep)
    if not kept and (booked < 2 or op.keep > 0) then
      booked = 0 -- not worth a place in the ledger, or what is kept has none
    end
    if booked > lease or kept then
      kept, lease = true, max(0, booked)
      s.out = s.out + lease
    end
  end
  return max(0, lease), kept and MAX_LEASE or life, kept
end

-- bucket_turn gives the sender its next turn while units are scarce.
local function bucket_turn(s, lim, op, granted, now)
  local scarce = floor(min(lim.cap / 4, max(lim.refill * HORIZON / 2, op.div * lim.unit / 4)))
  if s.level >= scarce then
    s.slot = 0
    return
  end
  local took, each = max(bucket_quantum(s, lim, op, now), op.owed + granted), lim.unit / lim.refill
  local step = floor(took * each * (1 - s.level / scarce))
  local last = min(MAX_TICKET, max(3 * bucket_horizon(lim), floor(op.div / 2 * each)))
  s.slot, s.dirty = min(max(s.slot, now) + step, now + last), true
end

-- bucket_apply runs one op: merge the sender's view if the state was lost or
-- rolled back, debit what is owed, settle with the ledger, grant asks as they
-- fit, lease from the rest. It returns granted, lease, life and retry; a lease that the
-- ledger holds has minus its generation for a life.
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
  local kept = bucket_settle(s, op)
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
  local lease, life, booked = bucket_lease(s, lim, op, before, free, refused, kept, now)
  if granted + lease > 0 then
    s.level, s.since, s.dirty = s.level - (granted + lease) * unit, min(s.since + granted + lease, EXACT), true
  end
  local retry = bucket_retry(s, lim, max(refused, 1), now)
  if op.div > 0 then
    bucket_turn(s, lim, op, granted, now)
    retry = max(s.slot - now, 0) -- a turn, whatever was asked for
  end
  if s.slot <= s.last then s.slot = 0 end
  return granted, lease, booked and -generation(s) or life, retry
end
