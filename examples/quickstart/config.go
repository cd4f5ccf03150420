package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
)

// config is what the flags say.
type config struct {
	Processes   int
	Rate        int64         // units a second
	Burst       int64         // units
	Load        float64       // calls on the hot key, as a multiple of Rate
	K           int64         // hybrid.Config.SyncEvery
	T           time.Duration // hybrid.Config.SyncInterval
	Mode        hybrid.Mode
	Seconds     int    // of load
	Redis       string // address of a Redis that runs already; "": start one
	RedisServer bool   // start redis-server, not the embedded server
}

// job is what a worker process is told, as JSON.
type job struct {
	config
	Addr   string // of Redis
	Prefix string // of all keys there, new for each run
}

// The outage is the middle fifth of the run. It has to be longer than the
// longest lease (1 s), so that no lease of the old Redis is spent on the
// new one's time; hence minSeconds. The check of the bounds takes the square of
// the run's length; hence maxSeconds.
const (
	outageFrom, outageTo = 0.4, 0.6
	minSeconds           = 6
	maxSeconds           = 120
)

func parseFlags(args []string, out io.Writer) (config, error) {
	c := config{}
	fs := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	fs.SetOutput(out)
	mode := "auto"
	fs.IntVar(&c.Processes, "processes", 4, "how many `processes` share the limit")
	fs.Int64Var(&c.Rate, "rate", 500, "the limit in `units` a second, for the whole fleet")
	fs.Int64Var(&c.Burst, "burst", 0, "the limit's burst in `units` (0: as many as -rate)")
	fs.Float64Var(&c.Load, "load", 20, "what the fleet asks for on the hot key, as a `multiple` of the limit")
	fs.Int64Var(&c.K, "k", 0, "K: sync after so many `units` owed (0: the library's choice)")
	fs.DurationVar(&c.T, "t", 0, "T: sync so long after the first unit owed (0: the library's 50ms)")
	fs.StringVar(&mode, "mode", mode, "auto, strict, deferred or exact")
	fs.IntVar(&c.Seconds, "seconds", 15, "length of the run; Redis is away for the middle fifth of it")
	fs.StringVar(&c.Redis, "redis", "", "use the Redis at `host:port`, and leave it alone: no outage")
	fs.BoolVar(&c.RedisServer, "redis-server", false, "start the installed redis-server, not the embedded one")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	if c.Burst == 0 {
		c.Burst = c.Rate
	}
	var bad []error
	refuse := func(wrong bool, format string, a ...any) {
		if wrong {
			bad = append(bad, fmt.Errorf(format, a...))
		}
	}
	refuse(fs.NArg() > 0, "unexpected argument %q", fs.Arg(0))
	refuse(c.Processes < 1 || c.Processes > 64, "-processes (%d) must be 1 to 64", c.Processes)
	refuse(c.Seconds < minSeconds || c.Seconds > maxSeconds, "-seconds (%d) must be %d to %d", c.Seconds, minSeconds, maxSeconds)
	refuse(!(c.Load > 0) || math.IsInf(c.Load, 0), "-load (%v) must be above 0", c.Load)
	refuse(c.Redis != "" && c.RedisServer, "-redis and -redis-server exclude each other")
	var ok bool
	c.Mode, ok = parseMode(mode)
	refuse(!ok, "-mode (%s) must be auto, strict, deferred or exact", mode)
	if err := c.limit().Validate(); err != nil {
		bad = append(bad, err)
	}
	return c, errors.Join(bad...)
}

func parseMode(name string) (hybrid.Mode, bool) {
	for m := hybrid.ModeAuto; m <= hybrid.ModeExact; m++ {
		if strings.EqualFold(name, m.String()) {
			return m, true
		}
	}
	return 0, false
}

func (c config) limit() hybridlimit.Limit {
	return hybridlimit.TokenBucket(c.Rate, time.Second, c.Burst)
}

// outage says whether Redis is killed in the run, and from when to when.
func (c config) outage() (from, to time.Duration, ok bool) {
	all := float64(c.Seconds) * float64(time.Second)
	return time.Duration(outageFrom * all), time.Duration(outageTo * all), c.Redis == ""
}

// credit is C of hybrid's doc, the units that a process may admit before Redis
// knows, in a fleet that it takes for n processes.
func (c config) credit(n int) int64 {
	others := int64(max(n-1, 1))
	switch c.Mode {
	case hybrid.ModeAuto:
		return int64(defaultOvershoot*float64(c.Burst)) / others
	case hybrid.ModeDeferred:
		k := c.K
		if k == 0 {
			k = defaultSyncEvery
		}
		return min(k, c.Burst/others)
	}
	return 0
}

// hybrid.Config's meaning of zero.
const (
	defaultOvershoot = 0.05
	defaultSyncEvery = 1000
)
