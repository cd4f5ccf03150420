package lua

import (
	"fmt"

	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// TimedBatch is Batch with the time as its last argument instead of Redis's clock, so that
// a test sets the time.
var TimedBatch = newScript(batchOf(timedFirst(true), timedMain))

const timedMain = "return run_batch(KEYS, ARGV, now)\n"

func timedFirst(inScript bool) string {
	return "local now = tonumber(table.remove(ARGV))\n" + firstMain(inScript, ", {math.floor(now / 1000000), now % 1000000}")
}

// PlainOnly is TimedBatch without the way of all other batches, which fail.
var PlainOnly = newScript(timedFirst(true) + "return {err = 'HLBATCH not plain'}")

// TimedLibrary is Library with TimedBatch instead of Batch.
var TimedLibrary = newLibrary(timedFirst(false) + timedMain)

// OtherLibrary stands for the library of an older or newer version of this module.
var OtherLibrary = newLibrary("-- of another version\n" + firstMain(false, "") + mainSource)

// TimedHistory is History with the time as its last argument.
var TimedHistory = newScript(historyLibrary + "return run_history(KEYS[1], ARGV, tonumber(ARGV[4]))\n")

// TimedPermits is Permits with the time as its last argument.
var TimedPermits = newScript(permitsSource + "local now = tonumber(table.remove(ARGV))\nreturn run_permits(KEYS, ARGV, now)\n")

// TimedRates is Rates with the time as its last argument.
var TimedRates = newScript(ratesSource + "local now = tonumber(table.remove(ARGV))\nreturn run_rates(KEYS, ARGV, now)\n")

// ParsedBatch returns a batch as the library reads it: one line of text per limit and per
// op.
var ParsedBatch = newScript(batchLibrary + `
local KEYS, ARGV = KEYS, ARGV
if match(ARGV[1], '^=') then KEYS, ARGV = expand(KEYS, ARGV) end
local head = read_header(ARGV)
local limits = read_limits(ARGV, head.limits)
local out, index = {string.format('%.0f %.0f', head.seq, head.ttl)}, {}
for i, l in ipairs(limits) do
  index[l] = i
  out[#out + 1] = string.format('%s %.0f %.0f', l.kind, l.unit or l.rate, l.cap or l.period)
end
for i = 2 + head.limits, #ARGV do
  local op = read_op(ARGV[i], limits)
  local text = string.format('%.0f %.0f %s %s %s %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f', index[op.lim], op.owed,
    tostring(op.partial or false), tostring(op.lost or false), tostring(op.reset or false), op.demand, op.div, op.vborn, op.vlevel, op.vat,
    op.gen, op.had, op.keep)
  for _, n in ipairs(op.asks) do text = text .. string.format(' %.0f', n) end
  text = text .. string.format(' w%.0f r%.0f b%.0f d%.0f p%.0f n%.0f s%.0f k%.0f a%s f%.0f u%s q%s l%.0f o%.0f e%.0f i%s', op.win, op.refund, op.refundat, op.maxdelay, op.vprev or 0, op.vnext or 0, op.limsince, op.back or 0, tostring(op.ahead or false), op.floor or 0, tostring(op.upper or false), tostring(op.queued or false), op.maxlife or 0, op.used or 0, op.usedby or 0, string.sub(op.id or '', 2))
  out[#out + 1] = text
end
return out
`)

// Sources holds the .lua files by name.
var Sources = map[string]string{
	"plain.lua":          plainSource,
	"short.lua":          shortSource,
	"common.lua":         commonSource,
	"bucket.lua":         bucketSource,
	"lease.lua":          leaseSource,
	"windowbooks.lua":    windowBooksSource,
	"windowlease.lua":    windowLeaseSource,
	"window.lua":         windowSource,
	"windowcalendar.lua": windowCalendarSource,
	"log.lua":            logSource,
	"codec.lua":          codecSource,
	"batch.lua":          batchSource,
	"history.lua":        historySource,
	"main.lua":           mainSource,
	"groups.lua":         groupsSource,
	"members.lua":        membersSource,
	"fleet.lua":          fleetSource,
	"changed.lua":        changedSource,
	"switch.lua":         switchSource,
	"fleetlimit.lua":     fleetLimitSource,
	"wanted.lua":         wantedSource,
	"paused.lua":         pausedSource,
	"keylimits.lua":      keyLimitsSource,
	"setkeys.lua":        setKeysSource,
	"settings.lua":       settingsSource,
	"setswitch.lua":      setSwitchSource,
	"setlimit.lua":       setLimitSource,
	"permits.lua":        permitsSource,
	"rates.lua":          ratesSource,
}

// EncodeState returns the text in which Redis keeps a state.
func EncodeState(s algo.State) string {
	var text string
	field := func(letter string, n, none int64) {
		if n != none {
			text += fmt.Sprintf(" %s%x", letter, n)
		}
	}
	if s.Kind == algo.KindFixed || s.Kind == algo.KindSliding || s.Kind == algo.KindCalendar {
		step, each := s.Period, int64(1)
		if s.Kind == algo.KindCalendar {
			step, each = 1e6, 1e6
		}
		text = fmt.Sprintf("1%c%x %x %x %x %x %x", s.Kind.Letter(), s.Period/each, s.Win, s.Cur, s.Prev, s.Born, s.Since)
		field("l", s.Late, 0)
		field("n", s.Next, 0)
		field("d", s.Debt, 0)
		field("c", s.Carry, 0)
		if s.Reset > 0 {
			text += fmt.Sprintf(" z%x", s.Reset-s.Win*step)
		}
		return text + s.More
	}
	text = fmt.Sprintf("1%c%x %x %x %x %x", s.Kind.Letter(), s.Unit, s.Level, s.Last-s.Born, s.Born, s.Since)
	field("r", s.Refill, 1)
	field("t", max(s.Slot-s.Last, 0), 0)
	field("o", s.Out[0], 0)
	field("p", s.Out[1], 0)
	field("g", s.Span, 0)
	field("h", max(s.Ahead-s.Last, 0), 0)
	field("k", max(s.Keep-s.Last, 0), 0)
	if s.Reset > 0 {
		text += fmt.Sprintf(" z%x", s.Reset-s.Born)
	}
	return text + s.More
}
