package lua

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
)

// FunctionLibrary is a library of Redis Functions (Redis 7): the source for FUNCTION LOAD, and the function names for
// FCALL. A function has the keys, the arguments and the reply of its script.
//
// All names contain the first digits of the source's SHA-1. So a name stands for one content, and versions exist beside
// each other: an upgrade does not replace the version that the rest of the fleet still runs. Old versions stay until an
// operator deletes them (FUNCTION DELETE), which is harmless at any time.
type FunctionLibrary struct {
	Name      string // of the library
	Source    string // Lua, with its first line
	Batch     string // the function of the script Batch
	History   string // the function of the script History
	Heartbeat string // the function of the script Fleet
	Settings  string // the function of the script Settings
	SetSwitch string // the function of the script SetSwitch
	SetLimit  string // the function of the script SetLimit
	SetKeys   string // the function of the script SetKeys
	Permits   string // the function of the script Permits
	Rates     string // the function of the script Rates
}

// Functions returns the names of all functions.
func (l FunctionLibrary) Functions() []string {
	return []string{l.Batch, l.History, l.Heartbeat, l.Settings, l.SetSwitch, l.SetLimit, l.SetKeys, l.Permits, l.Rates}
}

// Library is the scripts of this package as Redis Functions.
var Library = newLibrary(firstMain(false, "") + mainSource)

// function is an entry point of a library.
type function struct {
	name    string // within the library
	library string // definitions that the body uses
	body    string // a script that reads KEYS and ARGV and returns its reply
}

func newLibrary(batchMain string) FunctionLibrary {
	name, source := buildLibrary(
		function{"batch", plainSource + shortSource + batchLibrary, batchMain},
		function{"history", historyLibrary, historyMain},
		function{"heartbeat", groupsSource + membersSource + wantedSource + pausedSource, fleetSource},
		function{"settings", settingLibrary, settingsSource},
		function{"setswitch", settingLibrary, setSwitchSource},
		function{"setlimit", settingLibrary, setLimitSource},
		function{"setkeys", settingLibrary, setKeysSource},
		function{"permits", permitsSource, permitsMain},
		function{"rates", ratesSource, ratesMain},
	)
	return FunctionLibrary{
		Name: name, Source: source, Batch: name + "_batch", History: name + "_history",
		Heartbeat: name + "_heartbeat", Settings: name + "_settings", SetSwitch: name + "_setswitch",
		SetLimit: name + "_setlimit", SetKeys: name + "_setkeys", Permits: name + "_permits", Rates: name + "_rates",
	}
}

// buildLibrary names a library and its functions after its content. Function names are global in Redis, so they contain
// the version too.
//
// EVALSHA runs the definitions of a script for each call. A function runs them once, in its first call. So the top
// level of a .lua file must hold no state that changes. The definitions cannot run at FUNCTION LOAD, because Redis 7.0
// hides Lua's own libraries (math, string) from code that runs then. Each function has its own local variables, because
// Lua permits only 200 in one function.
func buildLibrary(functions ...function) (name, source string) {
	const unnamed = "@"
	var b strings.Builder
	for _, f := range functions {
		b.WriteString("do\nlocal run\n" +
			"redis.register_function('" + unnamed + "_" + f.name + "', function(keys, argv)\n" +
			"if not run then\n" + f.library +
			"run = function(KEYS, ARGV)\n" + f.body + "end\nend\n" +
			"return run(keys, argv)\nend)\nend\n")
	}
	sum := sha1.Sum([]byte(b.String()))
	name = "hybridlimit_" + schema + "_" + hex.EncodeToString(sum[:4])
	body := strings.ReplaceAll(b.String(), "'"+unnamed+"_", "'"+name+"_")
	return name, "#!lua name=" + name + "\n" + body
}
