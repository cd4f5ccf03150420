-- The members of a fleet for permits: the last heartbeat of each process, and the number
-- of losses that processes have told.
-- State:  sorted set; the score of a process is the µs of its last heartbeat. The score of
--         '' is the number of losses, negative. It begins with the time, so that processes
--         notice when the key was lost.
-- Lost:   a key of another type counts as lost, and is replaced
-- Expiry: two minutes. Each heartbeat renews it, and drops processes that were silent for
--         two minutes, or whose heartbeat is ahead of the clock by as much.
local MEMBERS_TTL, MAX_LOSSES, MAX_SUSPECTS = 120000000, 1000000, 64

-- in_set returns what was got from a sorted set. It deletes a key of another type, and returns
-- nil: one such key must not end the heartbeats of a fleet. A lacking right is no loss: raised.
local function in_set(key, got)
  if type(got) ~= 'table' then return got end
  if not string.find(got.err, '^WRONGTYPE') then error(got.err, 0) end
  redis.call('DEL', key)
end

-- read_part returns the losses and the suspects of the text of a heartbeat, or nil.
local function read_part(text)
  local digits, rest = string.match(text, '^(%d+)([ %w_-]*)$')
  if not digits or #digits > 7 or tonumber(digits) > MAX_LOSSES then return nil end
  local suspects, length = {}, 0
  for id in string.gmatch(rest, ' ([%w_-]+)') do
    suspects[#suspects + 1], length = id, length + 1 + #id
    if #id > 64 then return nil end
  end
  if length ~= #rest or #suspects > MAX_SUSPECTS then return nil end
  return tonumber(digits), suspects
end

-- beat_member notes a heartbeat, or takes a process out. It appends to a reply the number
-- of losses, and the last heartbeat of each suspect.
local function beat_member(key, process, leave, losses, suspects, now, reply)
  local told = tonumber(in_set(key, redis.pcall('ZSCORE', key, '')) or 0)
  if not (told and told < 0 and told >= -2 ^ 53) then told = -now end
  told = told - losses
  redis.call('ZADD', key, string.format('%.0f', told), '')
  redis.call('ZREMRANGEBYSCORE', key, '0', string.format('(%.0f', now - MEMBERS_TTL))
  redis.call('ZREMRANGEBYSCORE', key, string.format('(%.0f', now + MEMBERS_TTL), '+inf')
  if leave then
    redis.call('ZREM', key, process)
  else
    redis.call('ZADD', key, string.format('%.0f', now), process)
  end
  redis.call('PEXPIRE', key, '120000')
  reply[#reply + 1] = -told
  for _, suspect in ipairs(suspects) do
    reply[#reply + 1] = math.max(0, tonumber(redis.call('ZSCORE', key, suspect) or 0) or 0) -- another hand may have written a negative one
  end
end
