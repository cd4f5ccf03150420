package lua

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"
)

var (
	//go:embed plain.lua
	plainSource string
	//go:embed short.lua
	shortSource string
	//go:embed common.lua
	commonSource string
	//go:embed bucket.lua
	bucketSource string
	//go:embed lease.lua
	leaseSource string
	//go:embed window.lua
	windowSource string
	//go:embed windowbooks.lua
	windowBooksSource string
	//go:embed windowlease.lua
	windowLeaseSource string
	//go:embed windowcalendar.lua
	windowCalendarSource string
	//go:embed log.lua
	logSource string
	//go:embed codec.lua
	codecSource string
	//go:embed batch.lua
	batchSource string
	//go:embed main.lua
	mainSource string
	//go:embed history.lua
	historySource string
	//go:embed groups.lua
	groupsSource string
	//go:embed members.lua
	membersSource string
	//go:embed wanted.lua
	wantedSource string
	//go:embed paused.lua
	pausedSource string
	//go:embed fleet.lua
	fleetSource string
	//go:embed changed.lua
	changedSource string
	//go:embed switch.lua
	switchSource string
	//go:embed fleetlimit.lua
	fleetLimitSource string
	//go:embed keylimits.lua
	keyLimitsSource string
	//go:embed setkeys.lua
	setKeysSource string
	//go:embed settings.lua
	settingsSource string
	//go:embed setswitch.lua
	setSwitchSource string
	//go:embed setlimit.lua
	setLimitSource string
	//go:embed permits.lua
	permitsSource string
	//go:embed rates.lua
	ratesSource string
)

// The definitions, without the code that runs them.
var (
	batchLibrary = commonSource + batchDefinitions

	batchDefinitions = codecSource + batchSource + makerOf(
		algorithm{"bq", bucketSource + leaseSource},
		algorithm{"fsmu", windowSource + windowBooksSource + windowLeaseSource + windowCalendarSource},
		algorithm{"l", logSource},
	)
	historyLibrary = commonSource + logSource + historySource

	settingLibrary = changedSource + switchSource + fleetLimitSource + keyLimitsSource
)

const historyMain = "local t = redis.call('TIME')\nreturn run_history(KEYS[1], ARGV, t[1] * 1000000 + t[2])\n"

const permitsMain = "local t = redis.call('TIME')\nreturn run_permits(KEYS, ARGV, t[1] * 1000000 + t[2])\n"

const ratesMain = "local t = redis.call('TIME')\nreturn run_rates(KEYS, ARGV, t[1] * 1000000 + t[2])\n"

// firstMain decides short ops, and then other plain ops. The arguments of both functions are KEYS, ARGV and those in
// more. In a script each is defined where it is called, and before the definitions of batchLibrary. A function of Redis
// defines all once, before.
func firstMain(inScript bool, more string) string {
	way := func(name, source string) string {
		if !inScript {
			source = ""
		}
		return source + "local reply = " + name + "(KEYS, ARGV" + more + ")\nif reply then return reply end\n"
	}
	return "local first = string.match(ARGV[1] or '', '^=?%l')\nif first == '=b' or first == 'e' then\n" + way("run_short", shortSource) +
		"end\nif first ~= 'e' then\n" + way("run_plain", plainSource) + "end\n"
}

// batchOf is a script that decides plain and short ops by first, and any other batch by the rest. The definitions of
// the rest are in two functions. Each call clears a slot of the stack for each local variable of a function, so plain
// ops need one with few. And to make a function, Lua searches all open variables of the functions around it for each
// that it uses. For the variables of common.lua, which all use, it searches once, for the inner function.
func batchOf(first, rest string) string {
	return first + "local function other(KEYS, ARGV)\n" + commonSource +
		"return (function()\n" + batchDefinitions + rest + "end)()\nend\nreturn other(KEYS, ARGV)\n"
}

// Script is a Lua source and the digest under which Redis caches it.
type Script struct {
	Source string // Lua
	SHA    string // SHA-1 in hex, for EVALSHA
}

// Batch runs one batch of ops. History reads a sliding log. Fleet is a heartbeat. Settings tells the fleets' switches
// and limits. SetSwitch and SetLimit set or read one of them. SetKeys sets, tells or reads the fleet's limits of keys.
// Permits is a message about calls in flight, and Rates one about leased rates.
var (
	Batch     = newScript(batchOf(firstMain(true, ""), mainSource))
	History   = newScript(historyLibrary + historyMain)
	Fleet     = newScript(groupsSource + membersSource + wantedSource + pausedSource + fleetSource)
	Settings  = newScript(settingLibrary + settingsSource)
	SetSwitch = newScript(settingLibrary + setSwitchSource)
	SetLimit  = newScript(settingLibrary + setLimitSource)
	SetKeys   = newScript(settingLibrary + setKeysSource)
	Permits   = newScript(permitsSource + permitsMain)
	Rates     = newScript(ratesSource + ratesMain)
)

// Scripts returns the scripts that this module runs.
func Scripts() []Script {
	return []Script{Batch, History, Fleet, Settings, SetSwitch, SetLimit, SetKeys, Permits, Rates}
}

type algorithm struct{ letters, source string }

// makerOf wraps algorithms in one function, so that a batch defines only those that it needs.
func makerOf(algorithms ...algorithm) string {
	text := "make = function(letter)\n"
	for i, a := range algorithms {
		if i > 0 {
			text += "else"
		}
		text += "if letter == '" + strings.Join(strings.Split(a.letters, ""), "' or letter == '") + "' then\n" + a.source
	}
	return text + "end\nend\n"
}

func newScript(source string) Script {
	sum := sha1.Sum([]byte(source))
	return Script{Source: source, SHA: hex.EncodeToString(sum[:])}
}
