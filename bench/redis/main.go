// Redis measures the cost of hybridlimit for a Redis, and for a process that holds many keys. It
// starts its own redis-server.
//
//	make bench-redis                              all of it, into bench/REDIS.md: about ten minutes
//	cd bench && go run ./redis                    prints the same
//	cd bench && go run ./redis -short -only decisions,fleets   two sections, shorter
//	cd bench && go run ./redis -dump > old.lua    saves the script of batches
//	cd bench && go run ./redis -against old.lua   compares a changed script with it
//
// Compared subjects are measured in rounds that take turns, and reported as medians: other programs usually share the
// machine, and they slow all subjects of a round alike. CPU is the CPU time of the processes, not wall time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/zeromicro/go-zero/core/logx"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/benchkit"
	"github.com/hybridlimit/hybridlimit/lua"
)

// scale is the size of the measurement.
type scale struct {
	rounds                             int
	costOps                            int           // per round and shape
	lasts                              time.Duration // duration of a load in a round
	timing, paced                      int           // calls a second: while single calls are timed, and of the slow load
	idleKeys                           int
	settle                             time.Duration
	beats                              time.Duration // for which the messages of an idle hub are counted
	churnKeys, churnEach, churnOnRedis int
	survivalKeys, survivalCalls        int
	fleets                             []fleetSize
	fleetRounds                        int
	hot                                hotSize
}

var whole = scale{
	rounds: 6, costOps: 8192, lasts: 400 * time.Millisecond, timing: 4000, paced: 50_000,
	idleKeys: 100_000, settle: 12 * time.Second, beats: 5 * time.Second,
	churnKeys: 1_000_000, churnEach: 200_000, churnOnRedis: 40_000,
	survivalKeys: 100_000, survivalCalls: 20_000,
	fleets: fleetLoads(1), fleetRounds: 5,
	hot: hotSize{20, 25, 8 * time.Second, 6 * time.Second, 3},
}

// fleetLoads returns the loads of fleets, or a part of them: keys, calls and times divided.
func fleetLoads(part int) []fleetSize {
	services, second, ms := kindsOf("hybrid", "global", "redis_rate"), time.Second, time.Millisecond
	limit := hybridlimit.PerSecond(100)
	loads := []fleetSize{
		{"2000 calls a second", modeKinds, limit, false, false, 3, 10_000, 2000, 2 * second, 500 * ms, 0},
		{"500 calls a second", services, limit, false, false, 3, 10_000, 500, 3 * second, 500 * ms, 0},
		{"20 000 calls a second", services, limit, false, false, 3, 10_000, 20_000, second, 500 * ms, 0},
		{"Zipf", services, limit, true, false, 3, 10_000, 2000, 2 * second, 500 * ms, 0},
		{"two limits", services, limit, false, true, 3, 10_000, 2000, 2 * second, 500 * ms, 0},
		{"few calls", services, hybridlimit.PerMinute(100), false, false, 10, 50_000, 2500, 3 * second, 1500 * ms, 0},
	}
	for i := range loads {
		l := &loads[i]
		l.keys, l.perSecond = l.keys/part, l.perSecond/part
		l.lasts, l.settle = l.lasts/time.Duration(part), l.settle/time.Duration(part)
	}
	return loads
}

// short is a scale for a look during development. Its fleets make fewer calls, so
// that a busy machine does not delay them until they fail.
var short = scale{
	rounds: 3, costOps: 2048, lasts: 200 * time.Millisecond, timing: 4000, paced: 50_000,
	idleKeys: 10_000, settle: 3 * time.Second, beats: 2 * time.Second,
	churnKeys: 100_000, churnEach: 20_000, churnOnRedis: 5000,
	survivalKeys: 10_000, survivalCalls: 2000,
	fleets: fleetLoads(2), fleetRounds: 2,
	hot: hotSize{10, 10, 5 * time.Second, 3 * time.Second, 2},
}

// results has the figures of the page: the rows of the sections that were measured.
type results struct {
	benchkit.Results
	scale   scale
	machine machine
}

// machine describes the machine, and the versions of Redis and of the compared modules.
type machine struct{ about, loadBefore, loadAfter, modules string }

// options are the flags.
type options struct {
	size       scale
	only       []string // sections; empty: all
	old, write string   // files
}

func main() {
	isMember()
	dump := flag.Bool("dump", false, "print the script of batches, and exit")
	old := flag.String("against", "", "compare the script of batches with the one in this `file`, and exit")
	write := flag.String("write", "", "also write the page to this `file`")
	brief := flag.Bool("short", false, "measure less, for a look")
	only := flag.String("only", "",
		"measure only these `sections`, separated by commas: "+strings.Join(sectionNames(), ", "))
	rounds := flag.Int("rounds", 0,
		fmt.Sprintf("number of interleaved rounds; 0: %d, with -short %d", whole.rounds, short.rounds))
	load := flag.String("load", "", "of the section fleets, measure only loads with this `text` in their names")
	flag.Parse()
	if *dump {
		fmt.Print(lua.Batch.Source)
		return
	}
	o := options{size: whole, old: *old, write: *write}
	if *brief {
		o.size = short
	}
	if *rounds > 0 {
		o.size.rounds, o.size.fleetRounds = *rounds, *rounds
	}
	o.size.fleets = slices.DeleteFunc(slices.Clone(o.size.fleets), func(f fleetSize) bool {
		return !strings.Contains(f.name, *load)
	})
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	benchkit.Main("redis", o.run)
}

func (o options) run(ctx context.Context) error {
	hush()
	for _, name := range o.only {
		if !slices.Contains(sectionNames(), name) {
			return fmt.Errorf("-only: there is no section %q", name)
		}
	}
	if o.write != "" && len(o.only) > 0 {
		return errors.New("-write is for a page with all sections, without -only")
	}
	srv, err := benchkit.StartRedis()
	if err != nil {
		return err
	}
	defer srv.Close()
	if o.old != "" {
		text, err := against(ctx, srv, o.old, 2*o.size.rounds+1, o.size.costOps)
		fmt.Print(text)
		return err
	}
	r, err := o.measure(ctx, srv)
	if err != nil {
		return err
	}
	return errors.Join(benchkit.Publish(r.page(), o.write), benchkit.Missed(r.musts()))
}

// sections are the parts of the measurement, in their order. Those that others could disturb come first.
var sections = []struct {
	name    string
	measure func(*results, context.Context, *benchkit.Redis) error
}{
	{"idle", (*results).idle},
	{"heartbeats", (*results).heartbeats},
	{"ops", (*results).ops},
	{"decisions", (*results).decisions},
	{"fleets", (*results).fleets},
	{"hot", (*results).hotKeys},
	{"survival", (*results).survival},
	{"churn", (*results).churn},
}

func sectionNames() (names []string) {
	for _, s := range sections {
		names = append(names, s.name)
	}
	return names
}

// measure runs the sections.
func (o options) measure(ctx context.Context, srv *benchkit.Redis) (r *results, err error) {
	r = &results{scale: o.size}
	if r.machine, err = thisMachine(ctx, srv); err != nil {
		return r, err
	}
	for _, s := range sections {
		if len(o.only) > 0 && !slices.Contains(o.only, s.name) {
			continue
		}
		if err := errors.Join(srv.Admin.FlushAll(ctx).Err(), s.measure(r, ctx, srv)); err != nil {
			return r, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	r.machine.loadAfter = benchkit.LoadAverage()
	return r, nil
}

// named has the modules whose version is relevant to the figures.
var named = []string{
	"github.com/redis/go-redis/v9", "github.com/go-redis/redis_rate/v10", "github.com/ulule/limiter/v3",
	"github.com/throttled/throttled/v2", "github.com/zeromicro/go-zero", "github.com/hashicorp/golang-lru/v2",
	"golang.org/x/time",
}

func thisMachine(ctx context.Context, srv *benchkit.Redis) (machine, error) {
	server, err := srv.Info(ctx, "server")
	memory, err2 := srv.Info(ctx, "memory")
	versions, modules := benchkit.Modules(), []string{}
	for _, path := range named {
		if v := versions[path]; v != "" {
			modules = append(modules, strings.TrimPrefix(path, "github.com/")+" "+v)
		}
	}
	about := fmt.Sprintf("%s, %d cores, GOMAXPROCS %d; %s/%s; %s; redis-server %s (%s, no persistence)",
		benchkit.CPU(), runtime.NumCPU(), runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, runtime.Version(),
		server["redis_version"], memory["mem_allocator"])
	m := machine{about: about, loadBefore: benchkit.LoadAverage(), modules: strings.Join(modules, ", ")}
	return m, errors.Join(err, err2)
}

// hush silences go-redis, which logs failed dials, and go-zero, which logs statistics every minute.
func hush() {
	redis.SetLogger(silence{})
	logx.Disable()
	logx.DisableStat()
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
