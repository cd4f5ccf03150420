package lua

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
)

// FunctionLibrary is a library of Redis Functions (Redis 7), as FUNCTION LOAD
// takes it, and the names under which FCALL runs its functions. They take the
// keys and arguments of the scripts, and answer the same.
//
// All names hold the first digits of the source's SHA-1: versions live beside
// each other, so that an upgrade does not replace what the rest of the fleet
// still runs, and a library of this name is this library. Old ones stay until
// somebody deletes them (FUNCTION DELETE), which is harmless at any time.
type FunctionLibrary struct {
	Name      string // of the library
	Source    string // Lua, with its first line
	Batch     string // does what the script Batch does
	History   string // does what the script History does
	Heartbeat string // does what the script Fleet does
	SetSwitch string // does what the script SetSwitch does
}

// Library is the scripts of this package as Redis Functions.
var Library = newLibrary(mainSource)

// function is an entry point of a library.
type function struct {
	name    string // within the library
	library string // what the body refers to
	body    string // a script: reads KEYS and ARGV, returns
}

func newLibrary(batchMain string) FunctionLibrary {
	name, source := buildLibrary(
		function{"batch", batchLibrary, batchMain},
		function{"history", historyLibrary, historyMain},
		function{"heartbeat", switchSource, fleetSource},
		function{"setswitch", switchSource, setSwitchSource},
	)
	return FunctionLibrary{
		Name: name, Source: source, Batch: name + "_batch", History: name + "_history",
		Heartbeat: name + "_heartbeat", SetSwitch: name + "_setswitch",
	}
}

// buildLibrary names a library and its functions after its content; names of
// functions are global in Redis, hence versioned as well.
//
// What a script sets up, EVALSHA sets up for each call. Here that is done once,
// and not at the load but by the first call: Redis 7.0 keeps Lua's own
// libraries (math, string) from what runs at the load. So a .lua file may hold
// nothing at its top level that changes. Each function has locals of its own,
// since Lua allows 200 of them in one place.
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
