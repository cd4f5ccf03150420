package limitfile

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/filepoll"
)

// Hub takes the settings of a file. *hybrid.Hub is one. A Hub of your own can set the limits of other limiters.
type Hub interface {
	// SetSettings replaces the settings of all limiters at once, by name. On an error it changes nothing.
	SetSettings(all map[string]hybrid.Settings) error
}

// Config configures a Set. The zero Config is ready to use.
type Config struct {
	// Every is the time between two reads of the file. At least 100 ms. Each read costs the reading of the file and a
	// SHA-256 of it. Zero: 2 s.
	Every time.Duration
	// Parse reads the content of the file. The name is the path. It must be a function of its arguments only. Nil: the
	// function Parse of this package, for JSON.
	Parse func(name string, data []byte) (*File, error)
	// MeterProvider receives the metrics of the file, listed in docs/metrics.md. The path is their attribute. Nil: no
	// metrics, at no cost.
	MeterProvider metric.MeterProvider
	// Logger receives one line per change of the settings, and one per different error. Nil: slog.Default().
	Logger *slog.Logger
}

const (
	defaultEvery = 2 * time.Second
	settle       = filepoll.Settle
	slowRead     = filepoll.SlowRead
	// closeWait is the time for which Close waits for a read and a Parse.
	closeWait = time.Second
	// firstTries is the number of times that Watch reads a file that keeps changing.
	firstTries = 20
)

// The lines of the log.
const (
	msgInForce  = "hybridlimit: the settings of a file are in force"
	msgValid    = "hybridlimit: the file with limits is valid again"
	msgUnusable = "hybridlimit: a file with limits cannot be used; the settings before stay in force; correct the file"
	msgMissing  = "hybridlimit: a file has settings of limiters that do not exist; they wait for limiters of these names; check the names"
)

func (c Config) violations(path string, hub Hub) (bad adapter.Violations) {
	bad.AddIf(path == "", "path", path, "is required")
	bad.AddIf(hub == nil, "hub", hub, "is required")
	if c.Every != 0 && c.Every < 100*time.Millisecond {
		bad.Add("Config.Every", c.Every, "must be at least 100ms, or 0 for 2s")
	}
	return bad
}

// Set is a file that is being watched. It is safe for concurrent use.
type Set struct {
	path string
	hub  Hub
	cfg  Config
	log  *slog.Logger

	file atomic.Pointer[File] // in force; nil only in Watch

	// These belong to the goroutine.
	poller filepoll.Poller[*File]
	logged map[string]bool // errors that were logged since the last good read

	mu   sync.Mutex // guards the fields below
	good time.Time  // of the last good read
	err  error      // of the last read; nil: it was good
	errs int64

	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	done      chan struct{} // closed when the goroutine has ended
	end       func() error  // ends the metrics
	closeOnce sync.Once
	closeErr  error
}

// Watch reads a file, gives its settings to the hub, and starts a goroutine that does the same after each change of the
// file. It fails if the file cannot be read, is not valid, or is refused by the hub; then nothing has changed and no
// goroutine runs. A read that takes longer than 10 s is an error.
//
// Make the limiters of the hub first. Settings that do not fit a limiter are then errors of the file, and a log line
// names the limiters in the file that do not exist. A limiter that is made later takes its settings from the file, or
// fails if they do not fit. Close the Set before the hub.
func Watch(path string, hub Hub, cfg Config) (*Set, error) {
	if err := cfg.violations(path, hub).Err(pkg); err != nil {
		return nil, err
	}
	return watch(path, hub, cfg, readFile)
}

// watch is Watch with a function that reads the file.
func watch(path string, hub Hub, cfg Config, read func(path string) ([]byte, error)) (*Set, error) {
	if cfg.Every == 0 {
		cfg.Every = defaultEvery
	}
	if cfg.Parse == nil {
		cfg.Parse = Parse
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Set{
		path: path, hub: hub, cfg: cfg, log: cfg.Logger.With(slog.String("file", path)),
		logged: map[string]bool{}, good: time.Now(), done: make(chan struct{}),
	}
	s.poller = filepoll.Poller[*File]{
		Read:  func() ([]byte, error) { return read(path) },
		Parse: func(data []byte) (*File, error) { return cfg.Parse(path, data) },
		Apply: s.apply,
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	var err error
	if s.end, err = s.measure(cfg.MeterProvider); err != nil {
		s.cancel()
		return nil, err
	}
	err = errUnsettled
	for try := 0; try < firstTries && errors.Is(err, errUnsettled); try++ {
		err = s.look()
	}
	if err != nil {
		s.cancel()
		return nil, errors.Join(err, s.end())
	}
	s.note(nil)
	go s.run()
	return s, nil
}

// run polls until Close.
func (s *Set) run() {
	defer close(s.done)
	tick := time.NewTicker(s.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
			s.poll()
		}
	}
}

// poll reads the file once, and notes the result.
func (s *Set) poll() {
	if err := s.look(); s.ctx.Err() == nil && !errors.Is(err, errUnsettled) {
		s.note(err)
	}
}

// Errors of a look at the file, besides those of reading it.
var (
	errUnsettled = fmt.Errorf("limitfile: %w", filepoll.ErrUnsettled)
	errSlow      = filepoll.ErrSlow
)

// look reads the file, and applies new content.
func (s *Set) look() error {
	err := s.poller.Look(s.ctx)
	switch {
	case errors.Is(err, filepoll.ErrUnsettled):
		return errUnsettled
	case errors.Is(err, errSlow):
		return fmt.Errorf("limitfile: %s: %w", s.path, err)
	}
	return err
}

// apply gives the settings of new content to the hub. A hub that has refused them is asked again with each poll,
// because its limiters may change.
func (s *Set) apply(f *File, hash [sha256.Size]byte) error {
	was := s.file.Load()
	if was == nil || was.String() != f.String() {
		if err := s.hub.SetSettings(f.Settings()); err != nil {
			return f.refused(err)
		}
		s.log.Info(msgInForce,
			slog.Int("limiters", len(f.limiters)), slog.String("sha256", fmt.Sprintf("%x", hash[:6])))
		if names := missing(s.hub, f); len(names) > 0 {
			s.log.Warn(msgMissing,
				slog.Any("names", names[:min(len(names), maxLogged)]))
		}
	}
	s.file.Store(f)
	return nil
}

// missing returns the limiters of a file that a hub does not have. A misspelled name has no other effect.
func missing(hub Hub, f *File) []string {
	h, ok := hub.(interface {
		Limiters() []*hybrid.Limiter
		ConcurrencyLimiters() []*hybrid.ConcurrencyLimiter
		RateLeaseLimiters() []*hybrid.RateLeaseLimiter
	})
	if !ok {
		return nil
	}
	names := without(f.Limiters(), h.Limiters())
	return without(without(names, h.ConcurrencyLimiters()), h.RateLeaseLimiters())
}

// without returns the sorted names that no limiter has.
func without[L interface{ Name() string }](names []string, limiters []L) []string {
	for _, l := range limiters {
		if at, ok := slices.BinarySearch(names, l.Name()); ok {
			names = slices.Delete(names, at, at+1)
		}
	}
	return names
}

// note keeps and logs the result of a read.
func (s *Set) note(err error) {
	s.mu.Lock()
	was := s.err
	if s.err = err; err == nil {
		s.good = time.Now()
	} else {
		s.errs++
	}
	s.mu.Unlock()
	switch {
	case err == nil && was != nil:
		clear(s.logged)
		s.log.Info(msgValid)
	case err != nil && !s.logged[err.Error()] && len(s.logged) < maxLogged:
		s.logged[err.Error()] = true
		s.log.Warn(msgUnusable, brief(err)...)
	}
}

// maxLogged is the number of different errors that are logged until the file is valid again, and of names in a line.
const maxLogged = 20

// brief returns the attributes of an error: its first violations, and their number.
func brief(err error) []any {
	const most = 5
	invalid, ok := errors.AsType[*hybridlimit.InvalidError](err)
	if !ok || len(invalid.Violations) <= most {
		return []any{slog.Any("error", err)}
	}
	return []any{slog.Any("error", adapter.Violations(invalid.Violations[:most]).Err(invalid.Package)), slog.Int("more", len(invalid.Violations)-most)}
}

// File returns the content in force.
func (s *Set) File() *File { return s.file.Load() }

// Plan returns a plan of a limiter from the content in force. ok is false if there is no such plan. It is for limits
// that a request brings: AllowLimit, and package httplimit. It costs two lookups in maps.
func (s *Set) Plan(limiter, plan string) (limit hybridlimit.Limit, ok bool) {
	return s.file.Load().Plan(limiter, plan)
}

// Err returns the error of the last read; nil: the file is in force as it was read. It is for health checks.
func (s *Set) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the goroutine and waits for it. From then on the hub gets no settings; those in force stay. Close is
// idempotent.
//
// A read from a file system that hangs cannot be interrupted, and a Parse neither. Close waits a second for them and
// returns. Their goroutines end when they do, and change nothing. There is at most one of each.
func (s *Set) Close() error {
	s.closeOnce.Do(func() {
		s.cancel()
		<-s.done
		s.poller.Wait(closeWait)
		s.closeErr = s.end()
	})
	return s.closeErr
}

// scope is the instrumentation scope of OpenTelemetry.
const scope = "github.com/hybridlimit/hybridlimit/limitfile"

// attrFile is the path of the file.
const attrFile = attribute.Key("rate_limiting.config.file")

// measure starts the metrics, and returns the function that ends them.
func (s *Set) measure(provider metric.MeterProvider) (end func() error, err error) {
	if provider == nil {
		return func() error { return nil }, nil
	}
	m := provider.Meter(scope)
	age, err1 := m.Float64ObservableGauge("rate_limiting.config.age", metric.WithUnit("s"),
		metric.WithDescription("Time since the file was last read and found to be the one in force; it grows while the file is missing or invalid."))
	failures, err2 := m.Int64ObservableCounter("rate_limiting.config.errors", metric.WithUnit("{error}"),
		metric.WithDescription("Reads of the file that failed, or found invalid settings."))
	var reg metric.Registration
	err = cmp.Or(err1, err2)
	if err == nil {
		of := metric.WithAttributeSet(attribute.NewSet(attrFile.String(s.path)))
		reg, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
			s.mu.Lock()
			good, errs := s.good, s.errs
			s.mu.Unlock()
			o.ObserveFloat64(age, time.Since(good).Seconds(), of)
			o.ObserveInt64(failures, errs, of)
			return nil
		}, age, failures)
	}
	if err != nil {
		return nil, fmt.Errorf("limitfile: Config.MeterProvider: %w", err)
	}
	return reg.Unregister, nil
}

// readFile reads a file of at most MaxSize bytes. It refuses all that is no regular file before it opens it: opening a
// pipe waits for a writer.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("limitfile: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("limitfile: %w", &fs.PathError{Op: "read", Path: path, Err: errors.New("is not a regular file, but " + describe(info.Mode()))})
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("limitfile: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("limitfile: %w", err)
	case len(data) > MaxSize:
		var bad adapter.Violations
		bad.Add(path+":1", asWritten("the file"), fmt.Sprintf("is longer than %d bytes", MaxSize))
		return nil, bad.Err(pkg)
	}
	return data, nil
}

// describe names a kind of file.
func describe(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	}
	return "of mode " + m.String()
}
