-- Plain ops: a batch without an envelope of ops that only ask for units of buckets, queues
-- or windows. Most calls of `global`, ModeExact and ModeStrict only ask. They are decided
-- before anything else is defined, because each EVALSHA pays for all that its script defines.
-- KEYS:   one per text, no key twice
-- ARGV:   one text per key, in hexadecimal: "[<limit> ]<op>[,<op> ...]", the ops of the key
--         in their order. Without a limit: that of the text before. For asks of which all
--         are granted or none after "all"
-- Op:     "<ask>[ <ask> ...]": units, at least 1
-- Limit:  "=<kind><a>[r<b>] <c>[s<since>]". Of a bucket or queue: sub-units per unit;
--         sub-units per µs, absent: 1; sub-units of a full bucket. Of a window: µs; µs
--         of a tick, absent: 1; units. since: as in codec.lua; it has no effect here,
--         because the state was written under the same limit
-- Reply:  one text, or a list of one text per key. If all asks were granted: the state
--         that was written, in hexadecimal; of a window also " <s> <µs>", the time.
--         Else "0<granted> <level> <born> <s> <µs>", of a window "0<granted> <cur>
--         <prev> <born> <s> <µs>", with the state after the asks. born is 0 if there was
--         no state before. The rest of an answer follows from these numbers: the reader
--         computes it (internal/wire/plain.go). For all or none the first text is "all"
--         or "none"; after "none" each text is "0<granted> ...", with granted 0 and the
--         state as it was
-- Result: nil for any other batch, such as one with views, and for a state with debt, with
--         a field such as the ledger, of another limit or of the future: run_batch decides
--         then, by the same arguments.
-- Source: bucket.lua and window.lua, for these inputs. It changes with them.
-- Time:   t is nil, for Redis's clock, or {s, µs} of a test.
local function run_plain(keys, argv, t)
  local match, format, tonumber, call = string.match, string.format, tonumber, redis.call
  local limited = '^=([bqfs])(%x+)r?(%x*) (%x+)s?%x* (%x[%x ,]*)$'
  local before = argv[1] == 'all' and 1 or 0 -- arguments before the texts
  local kind, a, b, c, asks = match(argv[1 + before] or '', limited)
  if not kind or #argv - before ~= #keys then return nil end
  t = t or call('TIME')
  local now, raws = t[1] * 1000000 + t[2], nil
  local answers, texts, ttls, seen -- of a batch of several keys
  local none = false -- of all or none; the states as they were are in texts[0] and below
  if #keys == 1 and before == 0 then
    raws = call('MGET', keys[1])
  else
    raws, answers, texts, ttls, seen = call('MGET', unpack(keys)), {}, {}, {}, {}
  end

  local window, head, tail, unit, refill, cap -- of the limit
  local period, tick, rate, win, past -- of a window; past: µs since it began
  for i = 1, #keys do
    if i > 1 then
      local letter
      letter, a, b, c, asks = match(argv[i + before], limited)
      if letter then
        kind = letter
      else
        asks = match(argv[i + before], '^(%x[%x ,]*)$')
      end
      if not asks or seen[keys[i]] then return nil end
    end
    if a then
      if #a > 14 or #b > 14 or #c > 14 then return nil end
      window, head, tail = kind == 'f' or kind == 's', '1' .. kind .. a .. (kind == 'q' and ' -' or ' '), ''
      unit, refill, cap = tonumber(a, 16), 1, tonumber(c, 16)
      if b ~= '' then refill, tail = tonumber(b, 16), ' r' .. b end
      if unit < 1 or refill < 1 or cap < 1 then return nil end
      if window then
        period, tick, rate, unit = unit, refill, cap, 1
        if kind == 's' then unit = math.ceil(period / tick) end
        if period > 2 ^ 52 or 2 * rate * unit > 2 ^ 53 then return nil end
        cap, win = rate * unit, math.floor(now / period)
        past = now - win * period
      elseif cap < unit or 2 * cap + refill > 2 ^ 53 then
        return nil
      end
    end

    local raw, level, life, cur, prev, born, since = raws[i], cap, 0, 0, 0, nil, 0
    if raw and window then
      local of, w, u, p, n
      of, w, u, p, born, n = match(raw, '^(1[fs]%x+ )(%x+) (%x+) (%x+) ([1-9a-f]%x*) (%x+)$')
      if of ~= head or #w > 13 or #u > 13 or #p > 13 or #born > 13 or #n > 13 then return nil end
      w, cur, prev, since = tonumber(w, 16), tonumber(u, 16), tonumber(p, 16), tonumber(n, 16)
      if w > win or cur > rate or prev > rate then return nil end -- the clock stepped back; debt
      if w < win then
        prev = w == win - 1 and cur or 0
        cur = 0
      end
      level = cap - cur * unit
      if kind == 's' then level = level - prev * (unit - math.floor(past / tick)) end
    elseif raw then
      local of, l, age, n, rest
      of, l, age, born, n, rest = match(raw, '^(1[bq]%x+ %-?)(%x+) (%x+) ([1-9a-f]%x*) (%x+)(.*)$')
      if of ~= head or rest ~= tail or #l > 13 or #age > 13 or #born > 13 or #n > 13 then return nil end
      level, life, since = tonumber(l, 16), now - tonumber(born, 16), tonumber(n, 16)
      if kind == 'q' then level = cap - level end
      local idle = life - tonumber(age, 16)
      if idle < 0 or level < 0 then return nil end -- the clock stepped back; debt
      level = level + idle * refill
      if level > cap then level = cap end
    end

    local n, granted, all = asks == '1' and 1 or tonumber(asks, 16), 0, true
    if n then
      if n < 1 or #asks > 13 then return nil end
      if n * unit <= level then granted = n else all = false end
    else
      for text in string.gmatch(asks, '%x+') do
        n = tonumber(text, 16)
        if #text > 13 or n < 1 then return nil end
        if (granted + n) * unit <= level then granted = granted + n else all = false end
      end
    end

    local text, ttl, answer
    local fresh = not born
    if before > 0 then
      none = none or not all
      local at = 3 - 3 * i
      texts[at], texts[at - 1], texts[at - 2] = window and cur or level, window and prev, born or '0'
    end
    if granted > 0 then
      local ms, each
      born, since = born or format('%x', now), since + granted
      if window then
        cur = cur + granted
        text = head .. format('%x %x %x ', win, cur, prev) .. born .. format(' %x', since)
        ms, each = 2 * period - past + 999, 1000
      else
        level = level - granted * unit
        text = head .. format('%x %x ', kind == 'q' and cap - level or level, life) .. born .. format(' %x', since) .. tail
        ms, each = cap - level + 1000 * refill - 1, 1000 * refill
      end
      ttl = format('%d', (ms - ms % each) / each + 2000) -- rounded up; as bucket_write and window_write
    end
    if not all then
      local numbers = window and format('0%x %x %x ', granted, cur, prev) or format('0%x %x ', granted, level)
      answer = numbers .. (fresh and '0' or born) .. ' ' .. t[1] .. ' ' .. t[2]
    elseif window then
      answer = text .. ' ' .. t[1] .. ' ' .. t[2]
    else
      answer = text
    end
    if not answers then
      if text then call('SET', keys[1], text, 'PX', ttl) end
      return answer
    end
    answers[i], texts[i], ttls[i], seen[keys[i]] = answer, text or false, ttl, true
  end
  if none then
    for i = 1, #keys do
      local at = 3 - 3 * i
      local numbers = texts[at - 1] and format('00 %x %x ', texts[at], texts[at - 1]) or format('00 %x ', texts[at])
      answers[i] = numbers .. texts[at - 2] .. ' ' .. t[1] .. ' ' .. t[2]
    end
    return {'none', unpack(answers)}
  end
  for i = 1, #keys do
    if texts[i] then call('SET', keys[i], texts[i], 'PX', ttls[i]) end
  end
  if before > 0 then return {'all', unpack(answers)} end
  return answers
end
