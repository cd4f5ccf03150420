package lua

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
)

var (
	//go:embed bucket.lua
	bucketSource string
	//go:embed batch.lua
	batchSource string
	//go:embed main.lua
	mainSource string
	//go:embed fleet.lua
	fleetSource string
)

// batchLibrary is the algorithms and the batch, without an entry point.
var batchLibrary = bucketSource + batchSource

// Script is a Lua source and the name under which Redis caches it.
type Script struct {
	Source string // Lua
	SHA    string // SHA-1 in hex, as EVALSHA takes it
}

// Batch runs one batch of ops; Fleet is a heartbeat.
var (
	Batch = newScript(batchLibrary + mainSource)
	Fleet = newScript(fleetSource)
)

func newScript(source string) Script {
	sum := sha1.Sum([]byte(source))
	return Script{Source: source, SHA: hex.EncodeToString(sum[:])}
}
