-- One batch of ops in one slot: one call, one time, all or nothing.
-- KEYS:   with an envelope: envelope, epoch, then one key per op;
--         without: one key per op. A key may stand there more than once.
-- ARGV:   1: "1 <seq> <envelope ttl ms> <limits>": schema, sequence (0: no
--            envelope), how many limits follow
--         then one per limit: "b <unit> <refill> <cap>"
--         then one per op: "<limit> <owed> <partial> <demand> <div> <vborn>
--            <vlevel> <vat> <gen> <had> <keep> [<ask> ...]" (owed, asks, had
--            and keep in units, demand in thousandths of a unit per second,
--            the view in Redis's own terms)
-- Reply:  flat integers: 1, status, epoch, now, then per op: granted, lease,
--         life (µs; minus the generation if the ledger holds the lease), level
--         (sub-units), retry (µs), born, ceiling (sub-units)
--         status: 0 applied, 1 seen before, 2 older than the last one (nothing
--         was done); +4: an earlier batch of this process is missing here
-- Once:   the envelope "1e<seq> <stamp> <granted> <lease> <life> ..." holds the
--         last batch's answers; the stamp is when it was applied, and no key in
--         it was born later. Seen again, an op is not run again but gets them,
--         unless its key was born after the stamp: then the key was lost
--         since, and the op is run anew.
-- Errors: everything is read and computed before the first write, because
--         Redis does not roll a failed script back.
-- Expiry: states as their algorithm says; envelope as the caller says (above
--         the longest time a batch is retried); epoch as long as the envelope.
local SCHEMA = 1

local function bad(what) return {err = 'HLBATCH ' .. what} end

local function read_header(argv)
  local schema, seq, ttl, limits = string.match(argv[1] or '', '^(%d+) (%d+) (%d+) (%d+)$')
  if not schema then return nil, 'unreadable header' end
  if num(schema) ~= SCHEMA then return nil, 'schema ' .. schema end
  local head = {seq = num(seq), ttl = num(ttl), limits = num(limits)}
  if head.seq >= EXACT or head.limits >= EXACT then return nil, 'header out of range' end
  -- SET refuses these, and would do so after the states were written.
  if head.seq > 0 and (head.ttl < 1 or head.ttl >= EXACT) then return nil, 'envelope ttl ' .. ttl end
  return head
end

local function read_limits(argv, count)
  local limits = {}
  for i = 1, count do
    local unit, refill, cap = string.match(argv[1 + i] or '', '^b (%d+) (%d+) (%d+)$')
    if not unit then return nil end
    unit, refill, cap = num(unit), num(refill), num(cap)
    if unit < 1 or refill < 1 or cap < unit or 2 * cap + refill > EXACT then return nil end
    limits[i] = {unit = unit, refill = refill, cap = cap}
  end
  return limits
end

local function read_op(text, limits)
  local limit, owed, partial, demand, div, vborn, vlevel, vat, gen, had, keep, rest = string.match(text or '',
    '^(%d+) (%d+) ([01]) (%d+) (%d+) (%d+) (%-?%d+) (%d+) (%d+) (%d+) (%d+)(.*)$')
  local lim = limit and limits[num(limit)]
  if not lim or string.gsub(rest, ' %d+', '') ~= '' then return nil end
  local asks = {}
  for n in string.gmatch(rest, ' (%d+)') do asks[#asks + 1] = num(n) end
  return {
    lim = lim, owed = num(owed), partial = partial == '1', asks = asks,
    demand = num(demand), div = num(div),
    vborn = num(vborn), vlevel = num(vlevel), vat = num(vat),
    gen = num(gen), had = num(had), keep = num(keep),
  }
end

local function read_envelope(raw)
  local seq, stamp, rest = string.match(raw or '', '^1e(%d+) (%d+)(.*)$')
  if not seq then return nil end
  local answers = {}
  for n in string.gmatch(rest, ' (%-?%d+)') do answers[#answers + 1] = num(n) end
  return {seq = num(seq), stamp = num(stamp), answers = answers}
end

local function run_batch(keys, argv, now)
  local head, why = read_header(argv)
  if not head then return bad(why) end
  local limits = read_limits(argv, head.limits)
  if not limits then return bad('unreadable limit') end
  local first = head.seq > 0 and 2 or 0 -- keys before the first op's
  local ops = {}
  for i = 1, #keys - first do
    ops[i] = read_op(argv[1 + head.limits + i], limits)
    if not ops[i] then return bad('unreadable op ' .. i) end
  end
  if #keys < first or #argv ~= 1 + head.limits + #ops then return bad('keys and ops differ') end
  if #keys == 0 then return {SCHEMA, 0, 0, now} end

  local raw = redis.call('MGET', unpack(keys))
  local status, epoch, env = 0, 0, nil
  if first > 0 then
    env = read_envelope(raw[1])
    epoch = string.match(raw[2] or '', '^%d+$')
    epoch = num(epoch) <= EXACT and num(epoch) or now
    if env and env.seq > head.seq then return {SCHEMA, 2, epoch, now} end
    if env and env.seq == head.seq and #env.answers == 3 * #ops then status = 1 end
    if head.seq > 1 and (not env or env.seq < head.seq - 1) then status = status + 4 end
  end

  local reply, answers, states = {SCHEMA, status, epoch, now}, {}, {}
  for i = 1, #ops do
    local op, key = ops[i], keys[first + i]
    local s = states[key]
    if s and s.dirty then
      bucket_rescale(s, s.lim.unit, op.lim)
      s.level = min(s.level, bucket_ceiling(s, op.lim))
    else
      s = bucket_load(raw[first + i], op.lim, now)
      states[key] = s
    end
    s.lim = op.lim
    local granted, lease, life, retry
    if status % 4 == 1 and not s.fresh and s.born <= env.stamp then
      granted, lease, life = env.answers[3 * i - 2], env.answers[3 * i - 1], env.answers[3 * i]
      retry = bucket_retry(s, op.lim, 1, now)
    else
      granted, lease, life, retry = bucket_apply(s, op.lim, op, now)
    end
    local known = s.dirty or not s.fresh
    for _, v in ipairs({granted, lease, life, s.level, retry, known and s.born or 0, bucket_ceiling(s, op.lim)}) do
      reply[#reply + 1] = v
    end
    for _, v in ipairs({granted, lease, life}) do answers[#answers + 1] = string.format('%.0f', v) end
  end

  local stamp = now
  for key, s in pairs(states) do
    stamp = max(stamp, s.born) -- in the future, where the clock stepped back
    if s.dirty then
      local text, ttl = bucket_dump(s, s.lim)
      redis.call('SET', key, text, 'PX', ttl)
    end
  end
  if first > 0 then
    redis.call('SET', keys[2], string.format('%.0f', epoch), 'PX', head.ttl)
    redis.call('SET', keys[1],
      string.format('1e%.0f %.0f %s', head.seq, stamp, table.concat(answers, ' ')), 'PX', head.ttl)
  end
  return reply
end
