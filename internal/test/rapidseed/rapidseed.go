// Package rapidseed gives the checks of rapid the seed of package testenv. Without it, rapid draws a seed. A package
// whose tests use rapid imports it for this effect:
//
//	import _ "github.com/hybridlimit/hybridlimit/internal/test/rapidseed"
//
// The flag -rapid.seed still wins.
package rapidseed

import (
	"flag"
	"strconv"

	_ "pgregory.net/rapid" // its flags must exist before init

	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

// init changes the default of rapid's flag. The command line is read later. With a seed of 0, rapid would draw one.
func init() {
	seed, err := testenv.ParseSeed()
	if err != nil {
		panic(err)
	}
	if err := flag.Set("rapid.seed", strconv.FormatUint(max(seed, 1), 10)); err != nil {
		panic(err)
	}
}
