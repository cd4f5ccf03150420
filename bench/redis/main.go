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
	"os"
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
	timing, paced                      int           // calls a second: while single calls are timed, and of the slow load on many keys
	idleKeys                           int
	settle                             time.Duration
	beats                              time.Duration // for which the messages of an idle hub are counted
	churnKeys, churnEach, churnOnRedis int
	survivalKeys, survivalCalls        int
	fleets                             []fleetSize
	fleetRounds                        int
}

var whole = scale{
	rounds: 6, costOps: 8192, lasts: 400 * time.Millisecond, timing: 4000, paced: 50_000,
	idleKeys: 100_000, settle: 12 * time.Second, beats: 5 * time.Second,
	churnKeys: 1_000_000, churnEach: 200_000, churnOnRedis: 40_000,
	survivalKeys: 100_000, survivalCalls: 20_000,
	fleets: fleetLoads(1), fleetRounds: 5,
}

// fleetLoads returns the loads of fleets, or a part of them: keys, calls and times divided.
func fleetLoads(part int) []fleetSize {
	services := kindsOf("hybrid", "global", "redis_rate")
	second := func(s float64) time.Duration { return time.Duration(s*float64(time.Second)) / time.Duration(part) }
	service := fleetSize{members: 3, keys: 10_000 / part, limit: hybridlimit.PerSecond(100), kinds: services, perSecond: 2000 / part, lasts: second(2), settle: second(0.5)}
	with := func(name string, change func(*fleetSize)) fleetSize {
		load := service
		load.name = name
		change(&load)
		return load
	}
	return []fleetSize{
		with("2000 calls a second", func(l *fleetSize) { l.kinds = modeKinds }),
		with("500 calls a second", func(l *fleetSize) { l.perSecond, l.lasts = 500/part, second(3) }),
		with("20 000 calls a second", func(l *fleetSize) { l.perSecond, l.lasts = 20_000/part, second(1) }),
		with("Zipf", func(l *fleetSize) { l.zipf = true }),
		with("two limits", func(l *fleetSize) { l.two = true }),
		{
			name: "few calls", kinds: services, members: 10, keys: 50_000 / part, limit: hybridlimit.PerMinute(100), perSecond: 2500 / part,
			lasts: second(3), settle: second(1.5),
		},
	}
}

// short is a scale for a look during development. Its fleets make fewer calls, so
// that a busy machine does not delay them until they fail.
var short = scale{
	rounds: 3, costOps: 2048, lasts: 200 * time.Millisecond, timing: 4000, paced: 50_000,
	idleKeys: 10_000, settle: 3 * time.Second, beats: 2 * time.Second,
	churnKeys: 100_000, churnEach: 20_000, churnOnRedis: 5000,
	survivalKeys: 10_000, survivalCalls: 2000,
	fleets: fleetLoads(2), fleetRounds: 2,
}

// results has the figures of the page. Those of sections that were not measured are zero.
type results struct {
	scale     scale
	machine   machine
	costs     []costRow
	idle      idleRows
	beats     []*beatRow
	decisions []*decisionRow
	survival  []survivalRow
	churn     []churnRow
	fleets    []*fleetTable
}

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
	only := flag.String("only", "", "measure only these `sections`, separated by commas: "+strings.Join(sectionNames(), ", "))
	rounds := flag.Int("rounds", 0, fmt.Sprintf("number of interleaved rounds; 0: %d, with -short %d", whole.rounds, short.rounds))
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
	o.size.fleets = slices.DeleteFunc(slices.Clone(o.size.fleets), func(f fleetSize) bool { return !strings.Contains(f.name, *load) })
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	if err := o.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "redis:", err)
		os.Exit(1)
	}
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
	srv, err := startServer()
	if err != nil {
		return err
	}
	defer srv.close()
	if o.old != "" {
		text, err := against(ctx, srv, o.old, 2*o.size.rounds+1, o.size.costOps)
		fmt.Print(text)
		return err
	}
	r, err := o.measure(ctx, srv)
	if err != nil {
		return err
	}
	text := r.page()
	fmt.Print(text)
	if o.write != "" {
		if err := os.WriteFile(o.write, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return r.missed()
}

// sections are the parts of the measurement, in their order. Those that others could disturb come first.
var sections = []struct {
	name    string
	measure func(*results, context.Context, *server) error
}{
	{"idle", func(r *results, ctx context.Context, srv *server) (err error) {
		r.idle, err = idle(ctx, srv, r.scale.rounds, r.scale.idleKeys, r.scale.settle)
		return err
	}},
	{"heartbeats", func(r *results, ctx context.Context, srv *server) (err error) {
		r.beats, err = beats(ctx, srv, r.scale.rounds, r.scale.beats)
		return err
	}},
	{"ops", func(r *results, ctx context.Context, srv *server) (err error) {
		r.costs, err = costs(ctx, srv, r.scale.rounds, r.scale.costOps)
		return err
	}},
	{"decisions", func(r *results, ctx context.Context, srv *server) (err error) {
		r.decisions, err = decisions(ctx, srv, r.scale.rounds, r.scale.lasts, r.scale.timing, r.scale.paced)
		if err != nil {
			return err
		}
		rows, err := exact(ctx, r.scale.rounds, r.scale.lasts)
		r.decisions = append(r.decisions, rows...)
		return err
	}},
	{"fleets", func(r *results, ctx context.Context, _ *server) (err error) {
		for _, load := range r.scale.fleets {
			rows, err := fleets(ctx, r.scale.fleetRounds, load)
			if err != nil {
				return fmt.Errorf("%s: %w", load.name, err)
			}
			r.fleets = append(r.fleets, &fleetTable{load, rows})
		}
		return nil
	}},
	{"survival", func(r *results, ctx context.Context, _ *server) (err error) {
		r.survival, err = survival(ctx, r.scale.rounds, r.scale.survivalKeys, r.scale.survivalCalls)
		return err
	}},
	{"churn", func(r *results, ctx context.Context, srv *server) (err error) {
		r.churn, err = churns(ctx, srv, r.scale.rounds, r.scale.churnKeys, r.scale.churnEach, r.scale.churnOnRedis)
		return err
	}},
}

func sectionNames() (names []string) {
	for _, s := range sections {
		names = append(names, s.name)
	}
	return names
}

// measure runs the sections.
func (o options) measure(ctx context.Context, srv *server) (r results, err error) {
	r.scale = o.size
	if r.machine, err = thisMachine(ctx, srv); err != nil {
		return r, err
	}
	for _, s := range sections {
		if len(o.only) > 0 && !slices.Contains(o.only, s.name) {
			continue
		}
		if err := s.measure(&r, ctx, srv); err != nil {
			return r, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	r.machine.loadAfter = benchkit.LoadAverage()
	return r, nil
}

// hush silences go-redis, which logs failed dials, and go-zero, which logs statistics every minute.
func hush() {
	redis.SetLogger(silence{})
	logx.Disable()
	logx.DisableStat()
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
