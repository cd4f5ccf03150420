-- One batch: the ops of one tag in one call, at one time. An error refuses all.
-- KEYS:   with an envelope: envelope, epoch, then one key per op;
--         without: one key per op. The same key may occur more than once.
-- ARGV:   header, limits, then one op per key: codec.lua; or the form of plain.lua
-- Reply:  flat integers: 1 (2: the ops of a batch in the form of plain.lua, which are
--         in the order of its texts), status, epoch, now, then per op: granted, lease,
--         life (µs; minus the generation if the lease is in the ledger), level
--         (sub-units), retry (µs), born, ceiling (sub-units), delay (µs; -1:
--         the owed units came too late and were dropped; -2: the returned units
--         were not taken back; -3: both), refill (sub-units per µs; of a window)
--         and ends (µs; of a window or a log)
--         status: 0 applied; 1 seen before; 2 older than the last batch, and
--         nothing was done; 3 not all asks fit, and nothing was done: retry says
--         when an op and the earlier ops on its key would fit; +4: an earlier
--         batch of this process is missing here
-- Once:   the envelope has the answers of the last batch ("1g" if a batch before
--         it was missing). Its stamp is the time at which the batch was applied;
--         no key in it was born later. If the batch comes again, its ops get
--         these answers and are not run. An op is run again if its key was born
--         after the stamp, because the key was lost since. An answer with a
--         delay has, in place of its life, the delay from the stamp on. A
--         dropped op has -1 - granted in place of granted, and one whose returned
--         units were not taken back -1 - lease in place of lease. A log has no
--         birth, so its op is never run again: a log that was lost stays lost.
-- Chain:  an op settles nothing with the ledger of leases if its view is older than
--         the unbroken chain of its process's batches: a batch that comes again
--         after its envelope was evicted may have settled before.
-- Errors: the script reads and computes everything before its first write,
--         because Redis does not roll back a failed script.
-- Expiry: a state: see its algorithm. The envelope: as the caller says, above the
--         longest time for which a batch is retried. The epoch: as the envelope, or
--         as the states of calendar windows if they live longer, and up to a second
--         more, so that most batches do not write it.

local function bad(what) return {err = 'HLBATCH ' .. what} end

-- state_of returns the state of a key, converted to the op's limit. If an earlier
-- op of this batch changed the state, it is as that op left it, else as in Redis.
local function state_of(states, key, raw, op, now)
  local lim = op.lim
  local s, kind = states[key], kinds[lim.kind]
  if not s then
    s = kind.load(raw, lim, now, key, op.limsince)
  elseif s.lim.kind == lim.kind then
    kind.again(s, lim, now)
  else -- of another kind: lost
    s = kind.load('', lim, now, key, 0)
  end
  s.lim = lim
  return s
end

-- replay returns the answer that an op got when the batch was applied, with the
-- retry of now.
local function replay(env, i, s, op, now)
  local granted, lease, third = env.answers[3 * i - 2], env.answers[3 * i - 1], env.answers[3 * i]
  local retry = kinds[op.lim.kind].retry(s, op.lim, 1, now)
  if not op.late then return granted, lease, third, retry, 0 end
  return granted, lease, 0, retry, max(0, third - max(0, now - env.stamp))
end

-- refused returns, for a batch of all or nothing, the µs after which each op fits
-- together with the earlier ops on its key; nil if all fit now. It loads the states.
local function refused(ops, keys, raw, states, now)
  local want, waits, any = {}, {}, false
  for i = 1, #ops do
    local op, key = ops[i], keys[i]
    local kind = kinds[op.lim.kind]
    if not states[key] then states[key], want[key] = state_of(states, key, raw[i], op, now), 0 end
    if states[key].lim ~= op.lim then return nil, 'two limits on one key' end
    for _, n in ipairs(op.asks) do want[key] = want[key] + n end
    waits[i] = want[key] > 0 and kind.retry(states[key], op.lim, want[key], now) or 0
    any = any or waits[i] > 0
  end
  return any and waits or nil
end

local function run_batch(keys, argv, now)
  local schema = SCHEMA
  local short = match(argv[1] or '', '^[=ea]')
  if short then
    keys, argv = expand(keys, argv)
    if not keys then return bad('unreadable asks') end
    if short ~= 'e' then schema = PLAIN end
  end
  local head, why = read_header(argv)
  if not head then return bad(why) end
  local limits = read_limits(argv, head.limits)
  if not limits then return bad('unreadable limit') end
  local first = head.seq > 0 and 2 or 0 -- number of keys before the keys of the ops
  local ops = {}
  for i = 1, #keys - first do
    local op = read_op(argv[1 + head.limits + i], limits)
    if not op then return bad('unreadable op ' .. i) end
    if head.all and not only_asks(op) then return bad('op ' .. i .. ' does more than ask') end
    if op.maxdelay > 0 or op.lim.kind == 'q' then op.late = true end -- its answer has a delay
    ops[i] = op
  end
  if #keys < first or #argv ~= 1 + head.limits + #ops then return bad('keys and ops differ') end
  if #keys == 0 then return {schema, 0, 0, now} end

  local raw = redis.call('MGET', unpack(keys))
  local status, epoch, known, env, gap, chain = 0, 0, false, nil, false, now
  if first > 0 then
    env = read_envelope(raw[1])
    epoch = num(match(raw[2] or '', '^%d+$'))
    known = epoch <= EXACT
    if not known then epoch = now end
    if env and env.seq > head.seq then
      -- This library can have written it if its stamp is not in the future, and its
      -- TTL is at most that of this batch. Any other envelope counts as none, or it
      -- would stop its process for as long as it exists.
      local ttl = redis.call('PTTL', keys[1])
      local own = env.seq < EXACT and env.stamp <= now + CLOCK_SLACK and ttl >= 0 and ttl <= head.ttl
      if own then return {schema, 2, epoch, now} end
      env = nil
    end
    if env and env.seq == head.seq and #env.answers == 3 * #ops then status = 1 end
    gap = head.seq > 1 and (not env or env.seq < head.seq - 1) or status == 1 and env.gap
    if gap then status = status + 4 elseif env and env.chain <= now then chain = env.chain end
  end

  local answers, states, stamp, waits = {}, {}, now, nil
  if head.all then
    waits, why = refused(ops, keys, raw, states, now)
    if why then return bad(why) end
    if waits then status = 3 end
  end
  local reply = {schema, status, epoch, now}
  for i = 1, #ops do
    local op, key = ops[i], keys[first + i]
    local lim, kind = op.lim, kinds[op.lim.kind]
    local s = state_of(states, key, raw[first + i], op, now)
    if waits then op.asks = {} end -- so the op changes nothing
    if gap then op.lost = true end
    if first > 0 and op.vat < chain then op.broken = true end
    if op.usedby and now > op.usedby then op.used = nil end
    local granted, lease, life, retry, delay
    if status % 4 == 1 and (lim.kind == 'l' or not s.fresh and s.born <= env.stamp) then
      granted, lease, life, retry, delay = replay(env, i, s, op, now)
    else
      granted, lease, life, retry, delay = kind.apply(s, lim, op, now)
    end
    if s.dirty then states[key] = s end
    local born = (s.dirty or not s.fresh) and s.born or 0
    stamp = max(stamp, born) -- born is in the future if the clock stepped back
    answers[i] = format('%d %d %d', granted, lease, op.late and delay or life)
    local late = 0
    if granted < 0 then
      granted = -1 - granted -- not in one assignment with late: gopher-lua would mix them up
      late = 1
    end
    if lease < 0 then
      lease = -1 - lease
      late = late + 2
    end
    if late > 0 then delay = -late end
    if waits then retry = waits[i] end
    local level, ceiling, refill, ends = kind.tell(s, lim, now)
    local n = 10 * i - 6
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4], reply[n + 5] = granted, lease, life, level, retry
    reply[n + 6], reply[n + 7], reply[n + 8], reply[n + 9], reply[n + 10] = born, ceiling, delay, refill, ends
  end

  local keep = head.ttl
  for key, s in pairs(states) do if s.dirty then keep = max(keep, kinds[s.lim.kind].write(key, s, s.lim, now) or 0) end end
  if first > 0 then
    if not known or redis.call('PTTL', keys[2]) < keep then store(keys[2], format('%d', epoch), keep + 1000) end
    store(keys[1], format('1%s%d %d %s c%d', gap and 'g' or 'e', head.seq, stamp, table.concat(answers, ' '), chain), head.ttl)
  end
  return reply
end
