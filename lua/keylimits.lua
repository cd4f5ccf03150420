-- The fleet's limits of single keys of a limiter: an operator's settings for all processes.
-- State:  text "1 <version>\n" and a line "<at> <limit> <key>\n" for each key: schema; the
--         µs of the last change; the µs at which the limit was set; two tokens of
--         printable ASCII without a meaning here. The limit "-" says that it was taken
--         back, so that no process tells it again.
-- Bound:  1000 keys with a limit, and 256 KiB.
-- Lost:   a process tells what it knows and Redis does not. The later setting of a key
--         counts. Text that the library cannot have written counts as lost.
-- Expiry: as for the switch. A "-" goes after that time, with the next change.
local MOST_KEYS, MOST_BYTES = 1000, 262144

-- keys_version returns the version of a text; 0: it is none.
local function keys_version(text)
  local version = string.match(text or '', '^1 (%d+)\n')
  return version and #version <= 16 and tonumber(version) or 0
end

-- read_lines returns the lines of a text by key, and the keys in their order. It returns
-- nil if a line is unreadable.
local function read_lines(text)
  local lines, keys, length = {}, {}, 0
  for at, limit, key in string.gmatch(text, '(%d+) ([!-~]+) ([!-~]+)\n') do
    length = length + #at + #limit + #key + 3
    if #at > 16 or #limit > 256 or #key > 2048 then return nil end
    if not lines[key] then keys[#keys + 1] = key end
    lines[key] = {tonumber(at), limit}
  end
  if length ~= #text then return nil end
  return lines, keys
end

-- read_keys returns the version, lines and keys of a state.
local function read_keys(text)
  local version = keys_version(text)
  local lines, keys = read_lines(version > 0 and string.match(text, '\n(.*)$') or '')
  if not lines then return 0, {}, {} end
  return version, lines, keys
end

-- write_keys writes a state without the "-" that are older than the TTL. It returns the
-- text, or nil if there are too many keys or bytes.
local function write_keys(key, version, lines, keys, now, ttl)
  local parts, live = {string.format('1 %.0f\n', version)}, 0
  for _, k in ipairs(keys) do
    local at, limit = lines[k][1], lines[k][2]
    if limit ~= '-' then live = live + 1 end
    if limit ~= '-' or at > now - ttl * 1000 then parts[#parts + 1] = string.format('%.0f %s %s\n', at, limit, k) end
  end
  local text = table.concat(parts)
  if live > MOST_KEYS or #text > MOST_BYTES then return nil end
  redis.call('SET', key, text, 'PX', string.format('%.0f', ttl))
  return text
end
