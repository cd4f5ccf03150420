-- Leases of a bucket, and next polls while its units are scarce.
-- State:   of bucket.lua: out, outbefore, span (the ledger) and slot (the next poll that
--          is free)
-- Source:  the Go twin, line for line and with the reasons, is internal/algo:
--          lease.go and turn.go.
local MAX_LEASE, MAX_TICKET = 4 * GENERATION, 60000000

-- bucket_settle replaces the sender's units in the ledger by those that it still
-- holds, if the ledger still has all of them. It reports whether it did.
local function bucket_settle(s, lim, op)
  if op.lost or op.broken then return false end -- a lost write may have settled it before
  local back = op.back or 0
  local field = op.gen == number(s, 0) and 'out' or op.gen == number(s, 1) and 'outbefore'
  if op.gen == 0 or not field or op.vborn ~= s.born or op.had > s[field] or op.keep + back > op.had then return false end
  s[field] = s[field] - op.had
  s.out = s.out + op.keep
  return true
end

-- bucket_takeback puts the units that the sender returns back into the bucket, after
-- bucket_settle took them off the ledger.
local function bucket_takeback(s, lim, op)
  local back = op.back or 0
  s.dirty = true
  if back == 0 then return end
  local give = back * lim.unit
  if s.ahead > s.last then give = max(0, give + min(0, s.level)) end -- the debt of bookings stays
  if give > 0 then bucket_keep(s, lim) end
  s.level, s.since = min(s.level + give, bucket_ceiling(s, lim)), max(s.since - back, 0)
end

-- bucket_life returns the longest life of a lease: 1, 2 or 4 seconds, up to two
-- fifths of the time in which the bucket fills up, and as long as the sender wants.
local function bucket_life(lim, op)
  local life, full, most = GENERATION, lim.cap / lim.refill / 5, op.maxlife or 0
  most = most > 0 and min(MAX_LEASE, most * GENERATION) or MAX_LEASE
  while lim.kind == 'b' and 2 * life <= most and life <= full do life = life * 2 end
  return life
end

-- bucket_extend makes the generations of the ledger at least as long as life. They get
-- shorter only while it is empty.
local function bucket_extend(s, life)
  if s.out + s.outbefore == 0 then s.span = 0 end
  while GENERATION * 2 ^ s.span < life do s.span = s.span + 1 end
end

-- bucket_horizon returns the µs whose demand a process may take at its next poll
-- while units are scarce, by the longest life of a free lease. bucket_quantum returns
-- the units of that demand.
local function bucket_horizon(lim, life) return min(life / 2, floor(7 * floor(lim.cap / lim.refill) / 20)) end

local function bucket_quantum(lim, op, h, queue)
  if queue > h and not op.upper then h = h * ((h / queue) * (h / queue)) end
  return max(1, min(op.demand * h / 1e9, floor(floor(lim.cap / lim.unit) / 8)))
end

-- bucket_books returns the units for which the sender's next poll is given time.
local function bucket_books(lim, op, h, queue)
  local quantum = bucket_quantum(lim, op, h, queue)
  local load = op.div / 2 * op.demand / 1e9 * (lim.unit / lim.refill)
  if op.queued or load <= 1 then return quantum end
  return max(1, min(quantum, op.demand * h / 1e9 / sqrt(load * sqrt(sqrt(load)))))
end

-- bucket_lease sizes a lease from the free units. The ledger holds it, so that the
-- process can return what it does not spend. In turns, a lease is surely spent, and
-- needs no record. It returns the units, their life if they are free, and whether the
-- ledger holds them.
local function bucket_lease(s, lim, op, before, free, refused, kept, now)
  local longest, lease = bucket_life(lim, op), 0
  local life = min(longest, floor((bucket_ceiling(s, lim) - before) / lim.refill))
  if life < MIN_LEASE then life = 0 end
  if op.div > 0 and op.demand > 0 and refused == 0 then
    local part = min(max(floor(free / op.div), floor(bucket_quantum(lim, op, bucket_horizon(lim, longest), s.slot - now))), free)
    local booked = kept or op.keep == 0 and (s.slot <= now or op.upper)
    local mu = op.demand * life / 1e9
    lease = min(part, floor(mu - sqrt(mu)))
    if booked then
      if kept or free >= op.div then lease = min(part, floor(op.demand * (op.had > 0 and longest or GENERATION) / 1e9) - op.keep) end
      lease = min(lease, floor(floor(lim.cap / lim.unit) / 2) - s.out - s.outbefore)
      if not kept and lease < 2 then lease = 0 end -- one that is not spent costs another sync
      kept = kept or lease > 0
      if kept then bucket_extend(s, longest) end
      s.out = s.out + max(0, lease)
    end
    lease = max(0, lease)
  end
  return lease, life, kept
end

-- bucket_slots sizes a block of slots of a queue. delay is that of the first slot.
local function bucket_slots(s, lim, op, free, delay, refused, now)
  if op.div == 0 or op.demand == 0 or refused > 0 then return 0 end
  local part = max(floor(free / op.div), floor(bucket_quantum(lim, op, bucket_horizon(lim, GENERATION), s.slot - now)))
  local mu = op.demand * min(GENERATION, delay) / 1e9
  return max(0, min(part, free, floor(mu - sqrt(mu))))
end

-- bucket_longest returns the longest time until a next poll of a fleet that is not sparse.
local function bucket_longest(lim, op, h)
  return min(3 * h, max(3 * min(h, GENERATION / 2), op.div / 2 * floor(lim.cap / lim.refill) / 8))
end

-- bucket_turn gives the sender its next poll while units are scarce and contended:
-- an ask was refused, less than a unit is left, or an earlier poll lies ahead. The
-- last places of a queue are always contended. low is the op's floor in sub-units.
local function bucket_turn(s, lim, op, granted, refused, now, low)
  local longest = bucket_life(lim, op)
  local scarce = floor(min(lim.cap / 4, max(lim.refill * longest / 4, op.div * lim.unit / 4)))
  local level, h = s.level - low, bucket_horizon(lim, longest)
  local contended = lim.kind == 'q' or s.slot > now or level < lim.unit or refused > 0 and refused * lim.unit <= lim.cap - low
  if level >= scarce or not contended then
    s.slot = 0
    return
  end
  local took, each = max(bucket_books(lim, op, h, s.slot - now), op.owed + granted), lim.unit / lim.refill
  local step = floor(took * each * (1 - level / scarce))
  local last = min(MAX_TICKET, max(bucket_longest(lim, op, h), floor(op.div / 2 * each)))
  s.slot, s.dirty = min(max(s.slot, now) + step, now + last), true
end

-- bucket_away returns the µs until the next poll of a class that takes no turns.
local function bucket_away(s, lim, op, low)
  if s.level - low >= lim.unit then return 0 end
  return min(MAX_TICKET, floor(op.div / 2 * (lim.unit / lim.refill)))
end

-- bucket_apply runs one op in this order: reset; merge the sender's view, if the
-- state was lost or rolled back; debit the owed units; settle with the ledger;
-- refund; take returned units back; lower the level to what another party's count
-- leaves; grant the asks one by one, as they fit; lease from the rest. It returns granted, lease, life, retry and delay. For a lease in
-- the ledger, life is minus its generation. If the ledger did not have the returned
-- units, lease is -1 - lease.
local function bucket_apply(s, lim, op, now)
  local unit, cap, low = lim.unit, lim.cap, bucket_low(lim, op)
  local queue = lim.kind == 'q'
  if op.maxdelay > 0 then op.div = 0 end
  if queue or op.maxdelay > 0 then op.gen, op.back = 0, 0 end
  if op.reset then
    s.reset, s.level, s.last, s.since, s.slot, s.out, s.outbefore = max(now, s.last), cap, now, 0, 0, 0, 0
    s.span, s.ahead, s.keep, s.dirty = 0, 0, 0, true
  end
  if s.changed and op.limsince > 0 and #op.asks > 0 then s.dirty = true end -- store that the new rate has begun
  bucket_merge(s, lim, op, now)
  if op.owed > 0 then
    s.level, s.since, s.dirty = max(s.level - op.owed * unit, -cap), min(s.since + op.owed, EXACT), true
  end
  local settled = bucket_settle(s, lim, op)
  s.level = min(s.level, bucket_ceiling(s, lim))
  if op.refund > 0 then bucket_refund(s, lim, op.refund, op.refundat) end
  if settled then bucket_takeback(s, lim, op) end
  if (op.used or 0) > 0 then bucket_observe(s, lim, op.used) end
  local kept = settled and op.keep > 0
  local before, frozen = s.level, max(s.last - now, 0)
  local granted, delay, refused, patience = 0, 0, 0, 0
  for i = 1, #op.asks do
    local n = op.asks[i]
    local units, wait = bucket_grant(s.level, lim, n, frozen, op, low)
    if units > 0 then
      if granted == 0 then delay = wait end
      s.level, granted = s.level - units * unit, granted + units
      if op.maxdelay > 0 and s.level < 0 then s.ahead = max(s.ahead, s.last + ceil(-s.level / lim.refill)) end
    elseif n > 0 and refused == 0 then
      refused, patience = op.partial and 1 or n, op.maxdelay
    end
  end
  local lease, life, booked = 0, 0, false
  local free = max(floor((s.level - low) / unit), 0)
  if queue then
    local first = bucket_delay(s.level, lim, 1, frozen)
    lease = op.maxdelay == 0 and bucket_slots(s, lim, op, free, first, refused, now) or 0
    if lease > 0 and granted == 0 then delay = first end
  elseif op.maxdelay == 0 then
    lease, life, booked = bucket_lease(s, lim, op, before, free, refused, kept, now)
  end
  s.level = s.level - lease * unit
  if granted + lease > 0 then s.since, s.dirty = min(s.since + granted + lease, EXACT), true end
  local retry = bucket_retry(s, lim, max(refused, 1), now, patience, op.partial, low)
  if op.div > 0 and op.upper then
    retry = bucket_away(s, lim, op, low)
  elseif op.div > 0 then
    bucket_turn(s, lim, op, granted, refused, now, low)
    retry = max(s.slot - now, 0) -- the next poll, for any ask
  end
  if s.out + s.outbefore == 0 then s.span = 0 end
  if s.slot <= s.last then s.slot = 0 end
  if s.ahead <= s.last then s.ahead = 0 end
  if s.keep > 0 and s.keep - s.last <= ceil((cap - s.level) / lim.refill) then s.keep = 0 end
  if not settled and (op.back or 0) > 0 then lease = -1 - lease end
  return granted, lease, booked and -number(s, 0) or life, retry, delay
end

kinds.b = {
  limit = function(unit, refill, cap, letter)
    if unit < 1 or refill < 1 or cap < unit or 2 * cap + refill > EXACT then return nil end
    return {kind = letter, unit = unit, refill = refill, cap = cap}
  end,
  load = bucket_load,
  again = function(s, lim)
    s.level = s.level - bucket_kept(s.lim)
    bucket_rescale(s, s.lim.unit, lim)
  end,
  apply = bucket_apply, retry = bucket_retry, write = bucket_write,
  tell = function(s, lim)
    local top = bucket_ceiling(s, lim)
    return min(s.level, top), top, s.out + s.outbefore > 0 and s.span or 0, 0
  end,
}
kinds.q = kinds.b
