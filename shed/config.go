package shed

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/hybridlimit/hybridlimit/adapter"
)

// The defaults of Config.
const (
	DefaultName        = "shed"
	DefaultMaxInFlight = 200
	DefaultMaxWait     = 100 * time.Millisecond
	DefaultStep        = 0.05
)

// maxClasses is the first class and one for each priority of failsafe-go.
const maxClasses = 6

// Config configures a Shedder. Classes and Healthy are required.
type Config struct {
	// Classes has the names of the classes, the most important first. There are 2 to 6, and the names differ. A name
	// has 1 to 128 of the characters A-Z a-z 0-9 _ . -. Calls of the first class are never shed and never wait. The
	// last class is shed first, and an unknown class counts as the last one. Take the class of a call from its route or
	// its authentication. A client that may choose its class chooses the first one.
	Classes []string
	// Healthy is a time that calls of a healthy process do not take: at most one in ten is slower. While more are
	// slower, the limit does not rise, so that a long incident is never taken for the normal state. Choose several
	// times the 90th percentile of a normal day. There is no default, because a value below the normal times would keep
	// the limit from rising for ever.
	Healthy time.Duration
	// MaxInFlight is the largest number of calls that run at once before calls below the first class wait. Choose the
	// size of the scarcest pool of the process, such as its database connections, less the part that calls of the first
	// class may need during an incident. Below it the limit follows the durations of calls. Zero: 200.
	MaxInFlight int
	// MinInFlight is the number below which the limit does not fall. Zero: a tenth of MaxInFlight, and at least 1. If
	// it is too small, a burst after a quiet time waits. If it is too large, a slow process takes more calls than it
	// can do.
	MinInFlight int
	// MaxWait is the longest wait for a place, for calls below the first class. A call that waits holds its goroutine
	// and its connection. The wait puts calls that arrive together in the order of their classes. A short wait sheds
	// bursts. Zero: 100 ms.
	MaxWait time.Duration
	// Step is the part of the calls below the first class by which the shed part rises in a second of a lasting
	// overload. It falls by as much, or faster: by twice as much after every 2 s in which most places are free. A
	// larger Step reacts sooner and swings more. With a smaller one, calls of a shed class wait in vain for longer.
	// Range: above 0, at most 1. Zero: 0.05, so that all calls are shed after 25 s of overload, and come back within
	// about 6 s.
	Step float64
	// Name is the policy's name in results, metrics and log lines. It has the form of a class. Shedders of one process
	// need different names, because their metrics would overwrite each other. Empty: "shed".
	Name string
	// Logger receives a line when a class begins to be shed, and one when it is served again. Nil: slog.Default().
	Logger *slog.Logger
	// MeterProvider receives the metrics; docs/metrics.md lists them. Nil: no metrics, at no cost.
	MeterProvider metric.MeterProvider
}

// checked returns the Config with its defaults, or an error with all violations.
func checked(cfg Config) (Config, error) {
	var bad adapter.Violations
	if n := len(cfg.Classes); n < 2 || n > maxClasses {
		bad.Add("Config.Classes", cfg.Classes, fmt.Sprintf("must have 2 to %d names", maxClasses))
	}
	seen := map[string]int{}
	for i, name := range cfg.Classes {
		field := fmt.Sprintf("Config.Classes[%d]", i)
		if !adapter.CheckName(name) {
			bad.Add(field, name, "must match [A-Za-z0-9_.-]{1,128}")
		} else if first, twice := seen[name]; twice {
			bad.Add(field, name, fmt.Sprintf("must be another name, because Config.Classes[%d] has it too", first))
		} else {
			seen[name] = i
		}
	}
	if cfg.Healthy <= 0 {
		bad.Add("Config.Healthy", cfg.Healthy, "must be above 0: a time that calls of a healthy process do not take")
	}
	bad.AddIf(cfg.MaxInFlight < 0, "Config.MaxInFlight", cfg.MaxInFlight, "must not be negative")
	most := cmp.Or(cfg.MaxInFlight, DefaultMaxInFlight)
	if cfg.MinInFlight < 0 || cfg.MaxInFlight >= 0 && cfg.MinInFlight > most {
		bad.Add("Config.MinInFlight", cfg.MinInFlight, fmt.Sprintf("must be 0 to MaxInFlight (%d)", most))
	}
	bad.AddIf(cfg.MaxWait < 0, "Config.MaxWait", cfg.MaxWait, "must not be negative")
	if !(cfg.Step >= 0 && cfg.Step <= 1) { // written so that NaN is a violation too
		bad.Add("Config.Step", cfg.Step, "must be 0 to 1")
	}
	if cfg.Name != "" && !adapter.CheckName(cfg.Name) {
		bad.Add("Config.Name", cfg.Name, "must match [A-Za-z0-9_.-]{1,128}")
	}
	cfg.MaxInFlight = most
	cfg.MinInFlight = cmp.Or(cfg.MinInFlight, max(1, most/10))
	cfg.MaxWait = cmp.Or(cfg.MaxWait, DefaultMaxWait)
	cfg.Step = cmp.Or(cfg.Step, DefaultStep)
	cfg.Name = cmp.Or(cfg.Name, DefaultName)
	return cfg, bad.Err("shed")
}
