-- One batch of ops in one slot: one call, one time, all or nothing.
-- KEYS:   with an envelope: envelope, epoch, then one key per op;
--         without: one key per op. A key may stand there more than once.
-- ARGV:   1: "1 <seq> <envelope ttl ms> <limits>": schema, sequence (0: no
--            envelope), how many limits follow
--         then one per limit: "b <unit> <refill> <cap>"
--         then one per op: "<limit> <owed> <partial> <demand> <div> <vborn>
--            <vlevel> <vat> [<ask> ...]" (owed and asks in units, demand in
--            thousandths of a unit per second, the view in Redis's own terms)
-- Reply:  flat integers: 1, status, epoch, now, then per op: granted, lease,
--         life (µs), level (sub-units), retry (µs), born
--         status: 0 applied, 1 seen before, 2 older than the last one (nothing
--         was done); +4: an earlier batch of this process is missing here
-- Once:   the envelope "1e<seq> <stamp> <granted> <lease> <life> ..." holds the
--         last batch's answers. Seen again, an op is not run again but gets
--         them, unless its key was born after the stamp: then the key was
--         lost since, and the op is run anew.
-- Errors: everything is read and computed before the first write, because
--         Redis does not roll a failed script back.
-- Expiry: states as their algorithm says; envelope as the caller says (above
--         the longest time a batch is retried); epoch as long as the envelope.
local SCHEMA = 1

local function bad(what) return {err = 'HLBATCH ' .. what} end

local function read_header(argv)
  local schema, seq, ttl, limits = string.match(argv[1] or '', '^(%d+) (%d+) (%d+) (%d+)$')
  if not schema then return nil, 'unreadable header' end
  if tonumber(schema) ~= SCHEMA then return nil, 'schema ' .. schema end
  return {seq = tonumber(seq), ttl = tonumber(ttl), limits = tonumber(limits)}
end

local function read_limits(argv, count)
  local limits = {}
  for i = 1, count do
    local unit, refill, cap = string.match(argv[1 + i] or '', '^b (%d+) (%d+) (%d+)$')
    if not unit then return nil end
    limits[i] = {unit = tonumber(unit), refill = tonumber(refill), cap = tonumber(cap)}
  end
  return limits
end

local function read_op(text, limits)
  local limit, owed, partial, demand, div, vborn, vlevel, vat, rest = string.match(text or '',
    '^(%d+) (%d+) ([01]) (%d+) (%d+) (%d+) (%-?%d+) (%d+)(.*)$')
  local lim = limit and limits[tonumber(limit)]
  if not lim then return nil end
  local asks = {}
  for n in string.gmatch(rest, ' (%d+)') do asks[#asks + 1] = tonumber(n) end
  return {
    lim = lim, owed = tonumber(owed), partial = partial == '1', asks = asks,
    demand = tonumber(demand), div = tonumber(div),
    vborn = tonumber(vborn), vlevel = tonumber(vlevel), vat = tonumber(vat),
  }
end

local function read_envelope(raw)
  local seq, stamp, rest = string.match(raw or '', '^1e(%d+) (%d+)(.*)$')
  if not seq then return nil end
  local answers = {}
  for n in string.gmatch(rest, ' (%d+)') do answers[#answers + 1] = tonumber(n) end
  return {seq = tonumber(seq), stamp = tonumber(stamp), answers = answers}
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
  if #argv ~= 1 + head.limits + #ops then return bad('keys and ops differ') end
  if #keys == 0 then return {SCHEMA, 0, 0, now} end

  local raw = redis.call('MGET', unpack(keys))
  local status, epoch, env = 0, 0, nil
  if first > 0 then
    env = read_envelope(raw[1])
    epoch = tonumber(string.match(raw[2] or '', '^%d+$')) or now
    if env and env.seq > head.seq then return {SCHEMA, 2, epoch, now} end
    if env and env.seq == head.seq and #env.answers == 3 * #ops then status = 1 end
    if head.seq > 1 and (not env or env.seq < head.seq - 1) then status = status + 4 end
  end

  local reply, answers, states = {SCHEMA, status, epoch, now}, {}, {}
  for i = 1, #ops do
    local op, key = ops[i], keys[first + i]
    local s = states[key]
    if not s then
      s = bucket_load(raw[first + i], op.lim, now)
      states[key] = s
    elseif s.lim ~= op.lim then
      bucket_rescale(s, s.lim.unit, op.lim.unit)
      s.level = min(s.level, op.lim.cap)
    end
    s.lim = op.lim
    local granted, lease, life, retry
    if status % 4 == 1 and not s.fresh and s.born <= env.stamp then
      granted, lease, life = env.answers[3 * i - 2], env.answers[3 * i - 1], env.answers[3 * i]
      retry = max(0, ceil((op.lim.unit - s.level) / op.lim.refill))
    else
      granted, lease, life, retry = bucket_apply(s, op.lim, op, now)
    end
    local known = s.dirty or not s.fresh
    for _, v in ipairs({granted, lease, life, s.level, retry, known and s.born or 0}) do
      reply[#reply + 1] = v
    end
    for _, v in ipairs({granted, lease, life}) do answers[#answers + 1] = string.format('%.0f', v) end
  end

  for key, s in pairs(states) do
    if s.dirty then
      local text, ttl = bucket_dump(s, s.lim)
      redis.call('SET', key, text, 'PX', ttl)
    end
  end
  if first > 0 then
    redis.call('SET', keys[2], string.format('%.0f', epoch), 'PX', head.ttl)
    redis.call('SET', keys[1],
      string.format('1e%.0f %.0f %s', head.seq, now, table.concat(answers, ' ')), 'PX', head.ttl)
  end
  return reply
end
