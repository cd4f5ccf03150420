-- Short ops: a batch of ops for buckets, of which each has one ask, or with an envelope only
-- pays. Most calls of `global`, ModeExact and ModeStrict ask, and most syncs of keys with few
-- calls pay. Like other plain ops (plain.lua), they are decided before anything else is
-- defined, and by less code.
-- KEYS:   with an envelope: envelope, epoch; then one per op, no key twice
-- ARGV:   with an envelope "e<seq> <envelope ttl ms> <div of the ops that pay>"; then one
--         text per op, all in hexadecimal: "[<limit> ]<op>". <limit>: as in plain.lua
-- Op:     "<ask>", with an envelope "+<ask>" or "<owed>"; and the sender's view, if it tells
--         one: "v<born> <level> <at>"
-- Reply:  one text per op, as in plain.lua: one text, or a list. With an envelope a list
--         that begins with "e<epoch>"
-- Result: nil for any other batch, and for a state with debt, with another field than the
--         ledger, of another limit or of the future, or that is not the one of the view.
--         Also if an ask is refused and there is a ledger. With an envelope also if an op
--         that pays leaves less than a unit, if an ask is refused, or if the envelope is
--         not that of the batch before. run_plain or run_batch decide then, by the same
--         arguments.
-- Source: bucket.lua and lease.lua, for these inputs. It changes with them.
-- Time:   t is nil, for Redis's clock, or {s, µs} of a test.
local function run_short(keys, argv, t)
  local match, find, format, sub, max = string.match, string.find, string.format, string.sub, math.max
  local tonumber, call = tonumber, redis.call
  local count, first, shift = #keys, 1, 0 -- the place of the first key of an op; that of an op's text less that of its key
  local now, raws, seq, ttl, epoch, chain
  if find(argv[1], 'e', 1, true) == 1 then
    seq, ttl = match(argv[1], '^e(%x+) ([1-9a-f]%x*) %x+$')
    if not seq or #seq > 13 or #ttl > 13 or count < 3 or #argv ~= count - 1 then return nil end
    first, shift, seq, ttl, t = 3, -1, tonumber(seq, 16), tonumber(ttl, 16), t or call('TIME')
    now, raws = t[1] * 1000000 + t[2], call('MGET', unpack(keys))
    local last
    last, chain = match(raws[1] or '', '^1[eg](%d+) .* c(%d+)$')
    epoch = match(raws[2] or '', '^[1-9]%d*$')
    if not last or #last > 15 or last + 0 ~= seq - 1 or #chain > 16 or chain + 0 > now then return nil end
    if not epoch or #epoch > 16 or epoch + 0 >= 2 ^ 53 then return nil end
  else
    if count == 0 or #argv ~= count then return nil end
    t = t or call('TIME')
    now, raws = t[1] * 1000000 + t[2], count == 1 and call('MGET', keys[1]) or call('MGET', unpack(keys))
  end

  local head, tail, unit, refill, cap -- of the limit
  local texts, ttls, seen, lives -- of several ops; ttls: of those with a new state
  if count > 1 then texts, ttls, seen, lives = {seq and 'e' .. epoch}, {}, {}, seq and {} end
  local lasts, written = -1, nil -- ms, and the text of it
  for i = first, count do
    local text, raw = argv[i + shift], raws[i]
    if count > 1 then
      if seen[keys[i]] then return nil end
      seen[keys[i]] = true
    end
    if find(text, '=', 1, true) == 1 then
      local a, b, c, rest = match(text, '^=b(%x+)r?(%x*) (%x+)s?%x* (.+)$')
      if not a or #a > 14 or #b > 14 or #c > 14 then return nil end
      head, tail, unit, refill, cap, text = '1b' .. a .. ' ', '', tonumber(a, 16), 1, tonumber(c, 16), rest
      if b ~= '' then refill, tail = tonumber(b, 16), ' r' .. b end
      if unit < 1 or refill < 1 or cap < unit or 2 * cap + refill > 2 ^ 53 then return nil end
    end
    local n, pays, told = 1, seq, false
    if text ~= '1' then
      local plus, units = match(text, '^(%+?)(%x+)')
      if not units or #units > 13 or plus ~= '' and not seq then return nil end
      n, pays, told = tonumber(units, 16), seq and plus == '', #text > #plus + #units
      if n < 1 or told and not find(text, '^%+?%x+v%x+ %-?%x+ %x+$') then return nil end
    end

    local level, life, born, since, top, ledger, beyond = cap, 0, nil, 0, cap, '', 2000
    if not head then
      return nil
    elseif raw then
      if find(raw, head, 1, true) ~= 1 then return nil end
      local l, age, debited, more
      l, age, born, debited, more = match(raw, '^(%x+) (%x+) ([1-9a-f]%x*) (%x+)(.*)$', #head + 1)
      if not more or #l > 13 or #age > 13 or #born > 13 or #debited > 13 then return nil end
      level, life, since = tonumber(l, 16), now - tonumber(born, 16), tonumber(debited, 16)
      local idle = life - tonumber(age, 16)
      if idle < 0 then return nil end -- the clock stepped back
      if more ~= tail then -- as in bucket_advance
        if sub(more, 1, #tail) ~= tail then return nil end
        more = sub(more, #tail + 1)
        local out, older, span = match(more, '^ o(%x+)') or '0', match(more, ' p(%x+)') or '0', match(more, ' g([123])$') or '0'
        local fields = (out ~= '0' and ' o' .. out or '') .. (older ~= '0' and ' p' .. older or '')
        if fields .. (span ~= '0' and ' g' .. span or '') ~= more then return nil end
        if #out > 13 or #older > 13 then return nil end
        out, older = tonumber(out, 16), tonumber(older, 16)
        local last, each = now - idle, 1000000 * 2 ^ span
        local edge = last - last % each + each
        while out + older > 0 and edge <= now do
          level = level + (edge - last) * refill
          top = max(0, cap - (out + older) * unit)
          if level > top then level = top end
          last = edge -- one by one: gopher-lua would mix them up
          older = out
          out = 0
          edge = edge + each
        end
        idle, top = now - last, max(0, cap - (out + older) * unit)
        ledger = (out > 0 and format(' o%x', out) or '') .. (older > 0 and format(' p%x', older) or '')
        if ledger ~= '' and span ~= '0' then
          ledger = ledger .. ' g' .. span
          beyond = each / 1000 + 1000
        end
      end
      level = level + idle * refill
      if level > top then level = top end
      if told and not find(text, 'v' .. born .. ' ', 1, true) then return nil end
    elseif told then -- the view tells nothing new if the bucket has been full since
      local left, at = match(text, ' (%x+) (%x+)$')
      if not left or #left > 13 or #at > 13 then return nil end
      if tonumber(left, 16) + (now - tonumber(at, 16)) * refill < cap then return nil end
    end

    local cost = n * unit
    if seq then
      if (pays and cost + unit or cost) > level then return nil end
      local most = cap / refill / 5
      local longest = most < 1000000 and 1000000 or most < 2000000 and 2000000 or 4000000 -- bucket_life
      local lease = (pays and top - level + cost or top - level) / refill -- its life, as in bucket_lease
      lives[i - 2] = lease < 20000 and pays and '0 0 0'
        or format('%d 0 %d', pays and 0 or n, lease < 20000 and 0 or lease > longest and longest or lease - lease % 1)
    end
    if cost > level then
      if ledger ~= '' then return nil end
      text = format('00 %x %s %s %s', level, born or '0', t[1], t[2])
      if count == 1 then return text end
      texts[i] = text
    else
      level = level - cost
      text = format('%s%x %x %s %x%s%s', head, level, life, born or format('%x', now), since + n, tail, ledger)
      local scaled = cap - level + 1000 * refill - 1
      local ms = (scaled - scaled % (1000 * refill)) / (1000 * refill) + beyond -- rounded up; as bucket_write
      if ms ~= lasts then lasts, written = ms, format('%d', ms) end
      if count == 1 then
        call('SET', keys[1], text, 'PX', written)
        return text
      end
      texts[i + shift], ttls[i] = text, written
    end
  end
  for i = first, count do
    if ttls[i] then call('SET', keys[i], texts[i + shift], 'PX', ttls[i]) end
  end
  if not seq then return texts end
  if call('PTTL', keys[2]) < ttl then call('SET', keys[2], epoch, 'PX', format('%d', ttl + 1000)) end
  call('SET', keys[1], format('1e%d %d %s c%s', seq, now, table.concat(lives, ' '), chain), 'PX', format('%d', ttl))
  return texts
end
