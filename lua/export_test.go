package lua

// TimedBatch is Batch with the time as its last argument instead of Redis's
// clock, so that a test decides what time it is.
var TimedBatch = newScript(batchLibrary + timedMain)

const timedMain = "local now = tonumber(table.remove(ARGV))\nreturn run_batch(KEYS, ARGV, now)\n"

// TimedLibrary is Library with TimedBatch for Batch.
var TimedLibrary = newLibrary(timedMain)

// OtherLibrary is what an older or a newer version of this module may hold.
var OtherLibrary = newLibrary("-- of another version\n" + mainSource)

// ParsedBatch answers how the library reads a batch: one line of text per
// limit and per op.
var ParsedBatch = newScript(batchLibrary + `
local head = read_header(ARGV)
local limits = read_limits(ARGV, head.limits)
local out, index = {string.format('%.0f %.0f', head.seq, head.ttl)}, {}
for i, l in ipairs(limits) do
  index[l] = i
  out[#out + 1] = string.format('%.0f %.0f %.0f', l.unit, l.refill, l.cap)
end
for i = 2 + head.limits, #ARGV do
  local op = read_op(ARGV[i], limits)
  local text = string.format('%.0f %.0f %s %s %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f', index[op.lim], op.owed,
    tostring(op.partial), tostring(op.lost), op.demand, op.div, op.vborn, op.vlevel, op.vat,
    op.gen, op.had, op.keep)
  for _, n in ipairs(op.asks) do text = text .. string.format(' %.0f', n) end
  out[#out + 1] = text
end
return out
`)

// Sources are the .lua files by name.
var Sources = map[string]string{
	"bucket.lua": bucketSource,
	"batch.lua":  batchSource,
	"main.lua":   mainSource,
	"fleet.lua":  fleetSource,
}
