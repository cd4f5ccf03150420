-- The text of a batch: header, limits, ops, envelope.
-- Header:   "1 <seq> <envelope ttl ms> <limits>[ all]": schema, sequence number
--           (0: no envelope), number of limits that follow. all: all asks are
--           granted or none. Then the ops only ask, there is no envelope, and
--           the ops of one key have one limit
-- Limit:    "<kind> <a> <b> <c>": the file of the kind describes a, b and c
-- Op:       "<limit> <owed> <flags> <demand> <div> <vborn> <vlevel> <vat> <gen>
--           <had> <keep>[ <ask> ...][ w<window>][ r<refund>][ b<when>]
--           [ d<maxdelay>][ p<vprev>][ n<vnext>][ s<since>][ k<back>][ a1][ f<floor>]
--           [ u<turn>][ l<maxlife>][ o<used>][ e<usedby>][ i<id>]"
--           limit: its place in the batch, from 1. owed, asks, had, keep, refund,
--           back: units. demand: thousandths of a unit per second. div: a lease takes
--           at most 1/div of the units left; 0: no lease. The view (v...) is in
--           Redis's own terms; vprev is the count of the last window, vnext the units
--           leased of the next one. a: the lease is of the next window. window: the
--           number of the window of owed. when: the time of refund. For a window
--           it is its number, for a log the µs of the entry, for a bucket the µs
--           from which the units might have been used. maxdelay: µs, of one ask
--           at most. since: the µs for which the sender's limit has been in
--           force; absent: for long. floor: units that asks and leases leave, at most
--           half of the burst. u: 1 if the op takes no turns, because another class of its
--           process has a larger floor; 2 if the sender waited for this poll. maxlife: the
--           longest life of a free lease in seconds; absent: 4. used: units that are used by the count of another
--           party, until usedby (µs) has passed. id: escaped as in a query.
--           flags: 1 an ask may be granted in part; +2 writes were lost since
--           the view (a gap that this batch shows has the same effect); +4 reset
-- Plain:    a batch may also have the form of plain.lua or short.lua. Then it has a text per key
-- Envelope: "1e<seq> <stamp> <granted> <lease> <life> ... c<chain>", of the last
--           batch. chain: the µs of Redis time of the first batch of the unbroken
--           chain of batches that ends with this one
local SCHEMA, PLAIN = 1, 2

local function read_header(argv)
  local schema, seq, ttl, limits, all = match(argv[1] or '', '^(%d+) (%d+) (%d+) (%d+)( ?%l*)$')
  if not schema or all ~= '' and all ~= ' all' then return nil, 'unreadable header' end
  if num(schema) ~= SCHEMA then return nil, 'schema ' .. schema end
  local head = {seq = num(seq), ttl = num(ttl), limits = num(limits), all = all ~= ''}
  if head.seq >= EXACT or head.limits >= EXACT then return nil, 'header out of range' end
  if head.all and head.seq > 0 then return nil, 'all or nothing in an envelope' end
  -- SET refuses such a TTL, and would do so after the states were written.
  if head.seq > 0 and (head.ttl < 1 or head.ttl >= EXACT) then return nil, 'envelope ttl ' .. ttl end
  return head
end

local function read_limits(argv, count)
  local limits = {}
  for i = 1, count do
    local letter, a, b, c = match(argv[1 + i] or '', '^(%l) (%d+) (%d+) (%d+)$')
    local kind = letter and kind_of(letter)
    local lim = kind and kind.limit(num(a), num(b), num(c), letter)
    if not lim then return nil end
    limits[i] = lim
  end
  return limits
end

-- expand returns the keys and the arguments of a batch in the form of plain.lua as those
-- of other batches: one key and one op for each of its ops. It returns nil for
-- unreadable text.
local function expand(keys, argv)
  local names, limits, ops, since = {}, {}, {}, ''
  local function decimal(text) return #text > 0 and #text < 15 and format('%.0f', tonumber(text, 16)) or '1' end
  local seq, ttl, div = match(argv[1], '^e(%x+) (%x+) (%x+)$')
  local all = argv[1] == 'all'
  local before = (seq or all) and 1 or 0 -- arguments before the texts
  if seq then
    if #keys < 3 or #seq > 14 or #ttl > 14 or #div > 14 then return nil end
    names[1], names[2], seq, ttl, div = keys[1], keys[2], decimal(seq), decimal(ttl), decimal(div)
  end
  local first = seq and 2 or 0 -- keys before those of the texts
  if #keys - first ~= #argv - before then return nil end
  for i = 1 + before, #argv do
    local key, view = keys[i - before + first], '0 0 0'
    local kind, a, b, c, s, rest = match(argv[i], '^=([bqfs])(%x+)r?(%x*) (%x+)s?(%x*) (%+?%x[%x ,v%-]*)$')
    if kind then
      local window = kind == 'f' or kind == 's'
      if #a > 14 or #b > 14 or #c > 14 or #s > 14 then return nil end
      a, b, c = decimal(a), decimal(b), decimal(c)
      limits[#limits + 1] = table.concat(window and {kind, c, a, b} or {kind, a, b, c}, ' ')
      since = s ~= '' and ' s' .. decimal(s) or ''
    end
    rest = rest or match(argv[i], '^%+?%x[%x ,v%-]*$')
    if not rest or #limits == 0 then return nil end
    local told = match(rest, 'v(.*)$')
    if told then
      local born, sign, level, at = match(told, '^(%x+) (%-?)(%x+) (%x+)$')
      if not born or #born > 14 or #level > 14 or #at > 14 then return nil end
      rest, view = match(rest, '^(.-)v'), format('%s %s%s %s', decimal(born), sign, decimal(level), decimal(at))
    end
    if not match(rest, seq and '^%+?%x+$' or told and '^%x[%x ]*$' or '^%x[%x ,]*$') then return nil end
    for asks in gmatch(rest, '[^,]+') do
      if seq then
        local plus, n = match(asks, '^(%+?)(%x+)$')
        if #n > 14 then return nil end
        local head, tail = decimal(n) .. ' 0 0 ' .. div, ''
        if plus == '+' then head, tail = '0 0 0 0', ' ' .. decimal(n) end
        names[#names + 1], ops[#ops + 1] = key, format('%d %s %s 0 0 0', #limits, head, view) .. tail .. since
      else
        local op = format('%d 0 0 0 0 %s 0 0 0', #limits, view)
        for n in gmatch(asks, '%x+') do
          if #n > 14 then return nil end
          op = op .. ' ' .. decimal(n)
        end
        names[#names + 1], ops[#ops + 1] = key, op .. since
      end
    end
  end
  local long = {format('1 %s %s %d%s', seq or 0, ttl or 0, #limits, all and ' all' or '')}
  for _, texts in ipairs({limits, ops}) do
    for _, text in ipairs(texts) do long[#long + 1] = text end
  end
  return names, long
end

-- read_more reads the asks of an op and the fields behind them. It reports
-- whether it could read all of the text.
local function read_more(op, rest)
  local asks = op.asks
  for n in gmatch(rest, ' (%d+)') do asks[#asks + 1] = num(n) end
  rest = gsub(rest, ' %d+', '')
  if rest == '' then return true end
  for letter, n in gmatch(rest, ' (%l)(%d+)') do
    if letter == 'w' then op.win = num(n) end
    if letter == 'r' then op.refund = num(n) end
    if letter == 'b' then op.refundat = num(n) end
    if letter == 'd' then op.maxdelay = num(n) end
    if letter == 'p' then op.vprev = num(n) end
    if letter == 's' then op.limsince = num(n) end
    if letter == 'k' then op.back = num(n) end
    if letter == 'n' then op.vnext = num(n) end
    if letter == 'a' then op.ahead = true end
    if letter == 'f' then op.floor = num(n) end
    if letter == 'u' then op.upper, op.queued = n == '1', n == '2' end
    if letter == 'l' then op.maxlife = num(n) end
    if letter == 'o' then op.used = num(n) end
    if letter == 'e' then op.usedby = num(n) end
  end
  op.id = match(rest, '( i%S+)$') or ''
  op.id = op.id ~= '' and ' ' .. sub(op.id, 3) or ''
  rest = gsub(gsub(rest, ' i[%w%%%+%-_.~]+$', ''), ' [wrbdpsknafuloe]%d+', '')
  return rest == ''
end

-- read_op reads an op, and returns nil for unreadable text. Fields that most ops
-- lack stay nil: a table of up to 16 fields costs half of a larger one. "+ 0"
-- makes a number of matched digits, at half the price of num.
local function read_op(text, limits)
  local limit, owed, flags, demand, div, vborn, vlevel, vat, gen, had, keep, rest = match(text or '',
    '^(%d+) (%d+) ([0-7]) (%d+) (%d+) (%d+) (%-?%d+) (%d+) (%d+) (%d+) (%d+)(.*)$')
  local lim = limit and limits[limit + 0]
  if not lim then return nil end
  local op = {
    lim = lim, owed = owed + 0, asks = {}, demand = demand + 0, div = div + 0,
    vborn = vborn + 0, vlevel = vlevel + 0, vat = vat + 0,
    gen = gen + 0, had = had + 0, keep = keep + 0, win = 0, refund = 0, refundat = 0, maxdelay = 0, limsince = 0,
  }
  if flags ~= '0' then
    flags = flags + 0
    op.partial, op.lost, op.reset = flags % 2 == 1, flags % 4 > 1, flags > 3
  end
  if rest ~= '' and not read_more(op, rest) then return nil end
  -- An answer has one delay, and only one burst may be booked ahead.
  if op.maxdelay > 0 and #op.asks > 1 then return nil end
  return op
end

-- only_asks reports whether an op only asks, and takes no ask in part.
local function only_asks(op)
  return not op.partial and not op.reset and not op.back and not op.ahead and not op.floor and not op.used and op.owed + op.refund + op.maxdelay + op.div + op.vborn + op.gen == 0
end

local function read_envelope(raw)
  local kind, seq, stamp, rest = match(raw or '', '^1([eg])(%d+) (%d+)(.*)$')
  if not seq then return nil end
  local answers = {}
  for n in gmatch(rest, ' (%-?%d+)') do answers[#answers + 1] = num(n) end
  return {seq = num(seq), stamp = num(stamp), gap = kind == 'g', answers = answers, chain = num(match(rest, ' c(%d+)$'))}
end
