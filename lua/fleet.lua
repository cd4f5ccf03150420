-- The heartbeat of a process, for all its limiters: it joins the process to its group
-- and counts the processes of groups. A group is the set of the limiters of a process.
-- KEYS:   1: sorted set of the processes of the group; a score is the µs at which a
--         process is no longer counted; 2: directory of the groups; 3: time of the
--         last change of a setting; 4: names of the group; 5: marks of wanted keys; 6:
--         pauses; then sets that may have this process from before; then sets of other
--         groups, to count; then names of other groups, to read; and, with a seventh
--         argument, the members
-- ARGV:   1: process id; 2: id of the group; 3: names to write, or ""; 4: text
--         "<expiry> <leave> <ttl> <version> <before> <others>": µs, at most 30 s; 1 to
--         leave, else 0; TTL of names and directory in ms; version of the directory
--         that the process knows, or 0; number of sets that may have it from before;
--         number of sets to count; 5: marks to tell, with spaces between them, or "";
--         6: text "<version>[ <left> <mark> ...]": the version of the pauses that the
--         process knows, and pauses to tell, in µs from now (paused.lua);
--         7: none, or text "<losses> <suspect> ...": the losses of permits that the
--         process tells, and processes of which it asks for the last heartbeat
--         (members.lua)
-- Reply:  now in µs; the µs at which the heartbeat before expires (0: not known; if
--         a process knows of a later one, Redis lost its memory); time of the last
--         change of a setting; version of the directory; the directory, or "" if the
--         process knows it; the marks that are told, "<at> <mark> ..."; the pauses,
--         "<version>[ <until> <mark> ...]", or "" if the process knows them; number of
--         processes of the group, with this one unless it leaves; of each set to count;
--         the names that were read; and, with a seventh argument, the losses of the
--         fleet, and the µs of the last heartbeat of each suspect (0: none)
-- Expiry: of a set: two minutes. It is renewed with the group's place in the directory,
--         and no process is counted for longer than half a minute. Of the names and
--         the directory: as the caller says.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local process, id, names = ARGV[1], string.match(ARGV[2] or '', '^[%w_-]+$'), ARGV[3] or ''
local expiry, leave, ttl, known, olds, others = string.match(ARGV[4] or '', '^(%d+) ([01]) (%d+) (%d+) (%d+) (%d+)$')
if not id or #id > 32 or #names > MAX_NAMES or not expiry or #expiry > 8 or #ttl > 15 or #known > 16 or #olds > 3 or #others > 3 then
  return {err = 'HLFLEET unreadable heartbeat'}
end
local marks = ARGV[5] and read_marks(ARGV[5])
if not marks then return {err = 'HLFLEET unreadable marks'} end
local known_pauses, pauses = read_pauses(ARGV[6] or '')
if not known_pauses then return {err = 'HLFLEET unreadable pauses'} end
local last, losses, suspects = #KEYS, nil, nil
if ARGV[7] then
  last, losses, suspects = last - 1, read_part(ARGV[7])
  if not losses then return {err = 'HLFLEET unreadable part about permits'} end
end
expiry, leave, olds, others = tonumber(expiry), leave == '1', tonumber(olds), tonumber(others)
if expiry < 1 or expiry > MAX_EXPIRY or tonumber(ttl) < 1 or 6 + olds + others > last then
  return {err = 'HLFLEET heartbeat out of range'}
end
local own, texts, first = KEYS[1], redis.call('MGET', KEYS[2], KEYS[3], KEYS[5], KEYS[6]), string.format('%.0f', now)
local text = texts[1] or ''

-- The directory is read in full only to tell or write it.
local expires = look_up(text, id)
local fresh = expires and expires > now + LISTED * 2 / 3 and expires <= now + LISTED
local told = string.sub(text, 1, #known + 3) == '1 ' .. known .. ' '
local version, groups = tonumber(known), nil
if not told or not (fresh or leave) then
  version, groups = read_groups(text)
  if version == 0 then fresh, told = false, false end
end
if not fresh and not leave then
  local count = 0
  for i = 1, #groups, 2 do
    if groups[i] ~= id and groups[i + 1] >= now then count = count + 1 end
  end
  if count >= MOST_GROUPS then return {err = 'HLFLEET too many groups of limiters'} end
end

local before, gone = in_set(own, redis.pcall('ZSCORE', own, process)), nil
local joins = not before and not leave
before = tonumber(before or 0)
for i = 7, 6 + olds do
  before = math.max(before, tonumber(in_set(KEYS[i], redis.pcall('ZSCORE', KEYS[i], process)) or 0))
  redis.call('ZREM', KEYS[i], process)
  if redis.call('ZCARD', KEYS[i]) == 0 then
    gone = gone or {}
    gone[string.match(KEYS[i], '[^:]*$')] = true
  end
end
if leave then
  redis.call('ZREM', own, process)
else
  redis.call('ZADD', own, now + expiry, process)
end
-- After a step back of the clock, processes would be counted for too long. They count as
-- seen now. To drop them would count live processes as gone, and a count that is too
-- small is unsafe.
-- Each heartbeat moves a hundred, so that none takes long. The others count too.
local count, latest = redis.call('ZCARD', own), string.format('%.0f', now + MAX_EXPIRY)
if count ~= redis.call('ZCOUNT', own, first, latest) then
  redis.call('ZREMRANGEBYSCORE', own, '-inf', '(' .. first)
  for _, ahead in ipairs(redis.call('ZRANGEBYSCORE', own, '(' .. latest, '+inf', 'LIMIT', 0, 100)) do
    redis.call('ZADD', own, latest, ahead)
  end
  count = redis.call('ZCARD', own)
end
if joins or not fresh then redis.call('PEXPIRE', own, '120000') end
if leave and count == 0 then
  gone = gone or {}
  gone[id] = true
end

if gone or not (fresh or leave) then
  if not groups then version, groups = read_groups(text) end
  local was = version
  text, version = write_groups(KEYS[2], version, groups, now, not leave and id or nil, gone or {}, ttl)
  told = told and version == was
end
if names ~= '' then redis.call('SET', KEYS[4], names, 'PX', ttl) end
local wanted = tell_wanted(KEYS[5], texts[3] or '', marks, now)
local paused = tell_paused(KEYS[6], texts[4] or '', known_pauses, pauses, now)
local reply = {now, before, natural(texts[2]) or 0, version, told and '' or text, wanted, paused, count}
for i = 7 + olds, 6 + olds + others do
  reply[#reply + 1] = in_set(KEYS[i], redis.pcall('ZCOUNT', KEYS[i], first, '+inf')) or 0
end
for i = 7 + olds + others, last do
  reply[#reply + 1] = redis.call('MGET', KEYS[i])[1] or ''
end
if losses then beat_member(KEYS[#KEYS], process, leave, losses, suspects, now, reply) end
return reply
