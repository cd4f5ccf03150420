// Package rapidseed makes the checks of rapid begin at the seed of package
// testenv. Otherwise rapid would draw a seed. A package whose tests use rapid
// imports it for this effect:
//
//	import _ "github.com/hybridlimit/hybridlimit/internal/rapidseed"
//
// The flag -rapid.seed still wins.
package rapidseed

import (
	"flag"
	"strconv"

	_ "pgregory.net/rapid" // its flags have to be there before init

	"github.com/hybridlimit/hybridlimit/internal/testenv"
)

// init changes the default of rapid's flag; the command line is read later. A
// seed of 0 would let rapid draw one.
func init() {
	seed, err := testenv.ParseSeed()
	if err != nil {
		panic(err)
	}
	if err := flag.Set("rapid.seed", strconv.FormatUint(max(seed, 1), 10)); err != nil {
		panic(err)
	}
}
