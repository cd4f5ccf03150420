-- What a batch says: header, limits, ops, envelope.
-- Header:   "1 <seq> <envelope ttl ms> <limits>[ all]": schema, sequence (0: no
--           envelope), how many limits follow; all: all asks or none, of ops
--           that only ask, without an envelope and under one limit a key
-- Limit:    "<kind> <a> <b> <c>": as the kind's file says
-- Op:       "<limit> <owed> <flags> <demand> <div> <vborn> <vlevel> <vat> <gen>
--           <had> <keep>[ <ask> ...][ w<when>][ r<refund>][ d<maxdelay>]
--           [ p<vprev>][ i<id>]"; owed, asks, had, keep and refund in units,
--           demand in thousandths of a unit per second, the view in Redis's own
--           terms, when the number of the window of owed and refund, or the µs
--           of the log's entry that refund is of, maxdelay in µs, vprev the
--           last window's units in the view, id escaped as in a query; flags: 1
--           an ask may be granted in part, +2 writes were lost since the view,
--           as there were if this batch shows it, +4 reset
-- Envelope: "1e<seq> <stamp> <granted> <lease> <life> ...", of the last batch
local SCHEMA = 1

local function read_header(argv)
  local schema, seq, ttl, limits, all = match(argv[1] or '', '^(%d+) (%d+) (%d+) (%d+)( ?%l*)$')
  if not schema or all ~= '' and all ~= ' all' then return nil, 'unreadable header' end
  if num(schema) ~= SCHEMA then return nil, 'schema ' .. schema end
  local head = {seq = num(seq), ttl = num(ttl), limits = num(limits), all = all ~= ''}
  if head.seq >= EXACT or head.limits >= EXACT then return nil, 'header out of range' end
  if head.all and head.seq > 0 then return nil, 'all or nothing in an envelope' end
  -- SET refuses these, and would do so after the states were written.
  if head.seq > 0 and (head.ttl < 1 or head.ttl >= EXACT) then return nil, 'envelope ttl ' .. ttl end
  return head
end

local function read_limits(argv, count)
  local limits = {}
  for i = 1, count do
    local letter, a, b, c = match(argv[1 + i] or '', '^(%l) (%d+) (%d+) (%d+)$')
    local kind = letter and kind_of(letter)
    local lim = kind and kind.limit(num(a), num(b), num(c))
    if not lim then return nil end
    limits[i] = lim
  end
  return limits
end

-- read_more reads what follows an op's asks.
local function read_more(op, rest)
  for letter, n in string.gmatch(rest, ' (%l)(%d+)') do
    if letter == 'w' then op.win = num(n) end
    if letter == 'r' then op.refund = num(n) end
    if letter == 'd' then op.maxdelay = num(n) end
    if letter == 'p' then op.vprev = num(n) end
  end
  op.id = match(rest, '( i%S+)$') or ''
  op.id = op.id ~= '' and ' ' .. string.sub(op.id, 3) or ''
  rest = string.gsub(string.gsub(rest, ' i[%w%%%+%-_.~]+$', ''), ' [wrdp]%d+', '')
  return rest == ''
end

local function read_op(text, limits)
  local limit, owed, flags, demand, div, vborn, vlevel, vat, gen, had, keep, rest = match(text or '',
    '^(%d+) (%d+) ([0-7]) (%d+) (%d+) (%d+) (%-?%d+) (%d+) (%d+) (%d+) (%d+)(.*)$')
  local lim = limit and limits[num(limit)]
  if not lim then return nil end
  local asks = {}
  flags = num(flags)
  local op = {
    lim = lim, owed = num(owed), partial = flags % 2 == 1, lost = flags % 4 > 1, reset = flags > 3, asks = asks,
    demand = num(demand), div = num(div), vborn = num(vborn), vlevel = num(vlevel), vat = num(vat),
    gen = num(gen), had = num(had), keep = num(keep), win = 0, refund = 0, maxdelay = 0, vprev = 0, id = '',
  }
  for n in string.gmatch(rest, ' (%d+)') do asks[#asks + 1] = num(n) end
  rest = string.gsub(rest, ' %d+', '')
  if rest ~= '' and not read_more(op, rest) then return nil end
  return op
end

-- only_asks says whether an op asks, all or nothing, and does nothing else.
local function only_asks(op)
  return not op.partial and not op.reset and op.owed + op.refund + op.maxdelay + op.div + op.vborn + op.gen == 0
end

local function read_envelope(raw)
  local kind, seq, stamp, rest = match(raw or '', '^1([eg])(%d+) (%d+)(.*)$')
  if not seq then return nil end
  local answers = {}
  for n in string.gmatch(rest, ' (%-?%d+)') do answers[#answers + 1] = num(n) end
  return {seq = num(seq), stamp = num(stamp), gap = kind == 'g', answers = answers}
end
