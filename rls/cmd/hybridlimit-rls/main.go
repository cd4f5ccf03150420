// Hybridlimit-rls is a rate limit service for Envoy. See -help, and README.md of the module.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	_ "time/tzdata" // for a machine without zone data

	"github.com/redis/go-redis/v9/logging"
	_ "golang.org/x/crypto/x509roots/fallback" // for a machine without authorities, such as the image of deploy/image

	"github.com/hybridlimit/hybridlimit/rls/internal/server"
)

// gcPercent is GOGC if the environment does not set it. The live memory is small, and each call leaves a request and a
// response. So with Go's 100 a call costs more processor time: make bench-rls, with GOGC=100.
const gcPercent = 400

func main() {
	settings, err := server.ParseFlags(os.Args[1:], os.Getenv, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	logging.Disable() // a line for each dial that fails; the hub logs when Redis goes and comes
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := server.Run(ctx, settings, os.Stderr, nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1) //nolint:gocritic // exitAfterDefer: stop was called
	}
}
