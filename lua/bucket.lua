-- Buckets: token bucket and leaky bucket as a meter (b), leaky queue (q).
-- State:   "1b<unit> <level> <age> <born> <since>[ <letter><number> ...]" in
--          hexadecimal; 1q for a queue. The level of a queue is -depth in the
--          text, and Burst - depth while an op works on it
--          unit   sub-units per unit of the limit that wrote the state
--          level  sub-units left at <born>+<age>; negative is debt
--          age    µs from born to the time at which level was right; negative if
--                 the clock stepped back, because born stays: it names the state
--          born   µs of Redis time at creation
--          since  units debited since born or the last reset
--          Fields, each absent if it is 0 (r: if it is 1); common.lua has the
--          rules for fields of other versions:
--          r      refill of the limit that wrote the state, in sub-units per µs:
--                 until a change of limit, the old rate counts
--          t      µs from <born>+<age> to the next poll that is free
--          o, p   units in the ledger: leased in the generation in which level was
--                 right, and in the one before
--          g      log2 of the seconds of a generation
--          h      µs from <born>+<age> to the last booking that lies ahead
--          k      µs from <born>+<age> for which the state is kept, although the bucket
--                 is full before: units came back, of which older views do not know
--          z      µs from born to the last reset: views up to that time are void
-- Limit:   "b <unit> <refill> <cap>": sub-units per unit, sub-units per µs,
--          sub-units of a full bucket; the same with q
-- Expiry:  the time until the bucket is full, + a generation (the longest lease) + 1 s (the
--          longest freeze); at least k and these; after a reset at least the time from the
--          deepest debt to full. A full bucket without
--          a lease that is out is like no state, so it may be forgotten.
-- Source:  GCRA, ITU-T I.371, in its token form. The Go twin, line for line, is
--          internal/algo: bucket.go, queue.go, apply.go.

-- bucket_kept returns the level that the text stores as 0: an empty bucket, or a
-- queue with nothing in it. A change of limit keeps the number of units from there.
local function bucket_kept(lim) return lim.kind == 'q' and lim.cap or 0 end

-- bucket_rescale converts a level as stored to the sub-units and the range of
-- another limit. It never rounds up.
local function bucket_rescale(s, unit, lim)
  if unit ~= lim.unit then
    local whole = floor(s.level / unit)
    local product = (s.level - whole * unit) * lim.unit
    local part = floor(product / unit)
    if product >= EXACT then part = max(part - 1, 0) end -- two roundings may have gone up
    s.level = whole * lim.unit + part
  end
  s.level = s.level + bucket_kept(lim)
  s.level = max(-lim.cap, min(s.level, lim.cap))
end

local bucket_fields = {r = 'refill', t = 'wait', o = 'out', p = 'outbefore', g = 'span', h = 'ahead', k = 'keep', z = 'reset'}

-- bucket_read parses a state. It returns the state, and the unit and the refill of
-- the limit that wrote it; nil for a state that this library cannot have written.
local function bucket_read(raw, lim)
  local letter, unit, level, age, born, since, tail =
    match(raw or '', '^1([bq])(%x+) (%-?%x+) (%-?%x+) (%x+) (%x+)(.*)$')
  if letter ~= lim.kind then return nil end
  unit, level, age = tonumber(unit, 16) or HUGE, hex(level), hex(age)
  born, since = tonumber(born, 16) or HUGE, tonumber(since, 16) or HUGE
  if unit < 1 or born < 1 or max(unit, abs(level), abs(age), born, since) > EXACT then return nil end
  local s = {
    level = level, last = born + age, born = born, since = since, slot = 0, out = 0, outbefore = 0, span = 0, ahead = 0, keep = 0,
    reset = 0, lim = lim, dirty = false, wrote = born + age, more = '', changed = false, -- all fields, so that the table never grows
  }
  if tail == '' then return s, unit, 1 end
  local f = read_fields(tail, bucket_fields)
  if not f then return nil end
  local refill, wait, ahead, keep = f.refill or 1, f.wait or 0, f.ahead or 0, f.keep or 0
  s.out, s.outbefore, s.span, s.more = f.out or 0, f.outbefore or 0, f.span or 0, f.more
  if min(wait, ahead, keep, s.out, s.outbefore, s.span) < 0 or max(wait, ahead, keep, s.out, s.outbefore) > EXACT then return nil end
  if s.span > 3 then return nil end
  if refill < 1 or refill > EXACT / 4 then return nil end
  if wait > 0 then s.slot = min(s.last + wait, EXACT) end
  if ahead > 0 then s.ahead = min(s.last + ahead, EXACT) end
  if keep > 0 then s.keep = min(s.last + keep, EXACT) end
  if f.reset then
    s.reset = born + f.reset
    if s.reset < 1 or s.reset > EXACT then return nil end
  end
  return s, unit, refill
end

-- bucket_terms returns the limit that wrote a state: its rate, with the burst of
-- the limit that reads the state. The state does not have the old burst, and needs
-- none: a bucket that has been full for two seconds is forgotten, and is full under
-- any limit.
local function bucket_terms(lim, unit, refill)
  if unit == lim.unit and refill == lim.refill then return lim end
  return {kind = lim.kind, unit = unit, refill = refill, cap = min(floor(lim.cap / lim.unit) * unit, floor((EXACT - refill) / 2))}
end

-- number returns the number of the generation of the ledger that began ago generations
-- before that of last: its first second of Redis time, plus span * 2^40.
local function number(s, ago)
  local seconds = 2 ^ s.span
  return (floor(s.last / GENERATION / seconds) - ago) * seconds + s.span * 2 ^ 40
end

-- bucket_ceiling returns the level to which the bucket refills.
local function bucket_ceiling(s, lim) return max(0, lim.cap - (s.out + s.outbefore) * lim.unit) end

-- bucket_refill brings the level to a time. The ledger must not change before it.
local function bucket_refill(s, lim, at)
  local top = bucket_ceiling(s, lim)
  if s.level < top then s.level = min(s.level + (at - s.last) * lim.refill, top) end
  s.last = at
end

-- bucket_advance refills up to a time. It does nothing for a time in the past.
local function bucket_advance(s, lim, at)
  if at <= s.last then return end
  local each = GENERATION * 2 ^ s.span
  local edge = (floor(s.last / each) + 1) * each
  while s.out + s.outbefore > 0 and edge <= at do
    bucket_refill(s, lim, edge)
    s.outbefore = s.out -- older leases have expired
    s.out, edge = 0, edge + each
  end
  bucket_refill(s, lim, at)
end

-- bucket_load returns a state brought to now; an unreadable state is lost. Until
-- this limit came into force (since, in µs before now; 0: long ago), the limit that
-- wrote the state refills it. After the burst was lowered, the level may be above the
-- ceiling, until the op has settled.
local function bucket_load(raw, lim, now, _, since)
  local s, unit, refill = bucket_read(raw, lim)
  if not s then
    return {
      level = lim.cap, last = now, born = now, since = 0, slot = 0, out = 0, outbefore = 0, span = 0, ahead = 0, keep = 0,
      reset = 0, lim = lim, dirty = false, wrote = now, more = '', changed = false, fresh = true,
    }
  end
  local old = bucket_terms(lim, unit, refill)
  s.level = max(-old.cap, min(s.level + bucket_kept(old), old.cap))
  if now - s.last < -CLOCK_SLACK then -- the clock stepped back: the state moves with it
    s.ahead, s.keep, s.last = max(s.ahead - s.last + now, 0), max(s.keep - s.last + now, 0), now
  end
  if old ~= lim then
    if since > 0 then bucket_advance(s, old, now - since) end
    s.level, s.changed = s.level - bucket_kept(old), true
    bucket_rescale(s, unit, lim)
  end
  bucket_advance(s, lim, now)
  return s
end

local function bucket_write(key, s, lim)
  local level, age = s.level - bucket_kept(lim), s.last - s.born
  local text = format('1%s%x %s%x %s%x %x %x', lim.kind, lim.unit, level < 0 and '-' or '', abs(level),
    age < 0 and '-' or '', abs(age), s.born, s.since)
  if lim.refill ~= 1 then text = text .. format(' r%x', lim.refill) end
  if s.slot > s.last then text = text .. format(' t%x', s.slot - s.last) end
  if s.out > 0 then text = text .. format(' o%x', s.out) end
  if s.outbefore > 0 then text = text .. format(' p%x', s.outbefore) end
  if s.span > 0 then text = text .. ' g' .. s.span end
  local full = ceil((lim.cap - s.level) / lim.refill)
  if s.ahead > s.last then text = text .. format(' h%x', s.ahead - s.last) end
  if s.keep > s.last then
    text = text .. format(' k%x', s.keep - s.last)
    full = max(full, s.keep - s.last)
  end
  if s.reset > 0 then
    text = text .. ' z' .. hexed(s.reset - s.born)
    full = max(full, s.reset - s.last + ceil(2 * lim.cap / lim.refill))
  end
  store(key, text .. s.more, ceil(full / 1000) + (GENERATION * 2 ^ s.span + CLOCK_SLACK) / 1000)
end

-- bucket_low returns the sub-units of an op's floor, at most half of the bucket.
local function bucket_low(lim, op) return op.floor and min(op.floor * lim.unit, floor(lim.cap / 2)) or 0 end

-- bucket_delay returns the µs until n units that were granted at a level may be
-- used.
local function bucket_delay(level, lim, n, frozen)
  local missing = lim.kind == 'q' and lim.cap - level or n * lim.unit - level
  return thaw(ceil(max(missing, 0) / lim.refill), frozen)
end

-- bucket_grant returns how many of n units a level allows, and the µs until they
-- may be used. low is the op's floor in sub-units. An ask with a longest delay may leave
-- a bucket in debt, if it has no floor; then it gets all its units or none.
local function bucket_grant(level, lim, n, frozen, op, low)
  local free, units = max(floor((level - low) / lim.unit), 0), 0
  if n < 1 then return 0, 0 end
  if n <= free then
    units = n
  elseif op.partial then
    units = free
  elseif op.maxdelay > 0 and not op.floor and lim.kind == 'b' and n * lim.unit <= min(lim.cap, level + lim.cap) then
    units = n
  end
  if units == 0 then return 0, 0 end
  local delay = bucket_delay(level, lim, units, frozen)
  if op.maxdelay > 0 and delay > op.maxdelay then return 0, 0 end
  return units, delay
end

-- bucket_retry returns the µs until an ask for n units succeeds.
local function bucket_retry(s, lim, n, now, patience, partial, low)
  local need, frozen = n * lim.unit + (low or 0), max(s.last - now, 0)
  if need > lim.cap then return NEVER end
  if not patience or patience == 0 or low > 0 and lim.kind == 'b' then return thaw(ceil(max(need - s.level, 0) / lim.refill), frozen) end
  local late = bucket_delay(s.level, lim, n, frozen) - patience
  if not partial and lim.kind == 'b' then need = need - lim.cap end
  return max(thaw(ceil(max(need - s.level, 0) / lim.refill), frozen), late)
end

-- bucket_merge repairs a state that was lost or rolled back since the sender's
-- view: of the two histories, it takes the one with more usage.
local function bucket_merge(s, lim, op, now)
  if op.vborn == 0 or op.vat <= s.reset then return end
  if op.vborn ~= s.born then
    local seen = op.vlevel + max(now - op.vat, 0) * lim.refill - s.since * lim.unit
    if seen < s.level then s.level, s.dirty = max(seen, -lim.cap), true end
  elseif op.lost and op.vat <= now then
    -- Other processes only debit, so a state above the view was rolled back. It
    -- gets a new born, so that the views of the others correct it too. Less than
    -- a unit is not worth that.
    local seen = op.vlevel + (s.last - op.vat) * lim.refill
    if seen <= s.level - lim.unit then
      s.level, s.born, s.since, s.dirty = max(seen, -lim.cap), max(now, s.born + 1), 0, true
    end
  end
end

-- bucket_observe lowers the level to the units that another party's count leaves, less
-- the ledger. The units do not count as debited.
local function bucket_observe(s, lim, used)
  local over = floor(s.level / lim.unit) + s.out + s.outbefore - (floor(lim.cap / lim.unit) - used)
  if over > 0 then s.level, s.dirty = max(s.level - over * lim.unit, -lim.cap), true end
end

-- bucket_keep is called before units come back. The bucket is full earlier then than
-- by the views of the other processes. If it was forgotten by the time at which one
-- of them tells its view, bucket_merge would take the units again.
local function bucket_keep(s, lim) s.keep = max(s.keep, min(s.last + ceil((lim.cap - s.level) / lim.refill), EXACT)) end

-- bucket_refund gives back n units. Units that a full bucket cannot take are
-- dropped. For a cancelled booking, at is the time from which its units might have
-- been used. Units granted after it stay taken, or a later booking and the returned
-- units would be used at the same moment. In a queue, units whose time has come
-- were served.
local function bucket_refund(s, lim, n, at)
  local give = n * lim.unit
  if at > 0 and lim.kind == 'q' then
    n = max(0, n - floor(max(0, s.last - at) * lim.refill / lim.unit))
    give = n * lim.unit
  elseif at > 0 then
    local after = ((s.level < 0 or s.dirty) and s.last or s.wrote) - at
    give = max(0, give - max(0, after * lim.refill - min(s.level, 0)))
    n = floor(give / lim.unit)
  end
  if give > 0 then bucket_keep(s, lim) end
  local level = s.level + max(0, min(give, bucket_ceiling(s, lim) - s.level))
  local since = max(s.since - n, 0)
  s.dirty = s.dirty or level ~= s.level or since ~= s.since
  s.level, s.since = level, since
end
