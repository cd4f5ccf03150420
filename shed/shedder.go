package shed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/priority"

	"github.com/hybridlimit/hybridlimit"
)

// Shedder protects one process. It is safe for concurrent use, and is a hybridlimit.Shedder. Close it when the server
// has stopped.
type Shedder struct {
	cfg     Config
	classes []*class // the most important first
	byName  map[string]*class
	limiter adaptivelimiter.AdaptiveLimiter[any]
	room    *room
	cut     *cut
	health  *health
	running atomic.Int64 // permits that are not released
	metrics *metrics     // nil without a provider

	closing sync.Once
	closed  atomic.Bool
	stop    chan struct{} // closed by Close
	stopped chan struct{} // closed by the end of watch
}

var _ hybridlimit.Shedder = (*Shedder)(nil)

// class is one class of calls.
type class struct {
	name                  string
	index                 int               // 0 for the most important
	priority              priority.Priority // of failsafe-go; not used by index 0
	allowed, shed, noRoom atomic.Int64      // calls

	log shedding // of watch
}

// New returns a Shedder that watches the calls of this process. The limit begins at MaxInFlight, so that a process that
// starts under load sheds nothing without a reason. It then comes down to five times the calls in flight, or
// MinInFlight. New starts one goroutine, which wakes ten times a second and ends with Close. A Shedder takes about 100
// KB. The error (ErrInvalid) lists all violations of cfg, or comes from the MeterProvider.
func New(cfg Config) (*Shedder, error) {
	cfg, err := checked(cfg)
	if err != nil {
		return nil, err
	}
	s := &Shedder{
		cfg:     cfg,
		byName:  map[string]*class{},
		cut:     newCut(cfg.Step, len(cfg.Classes)-1),
		health:  newHealth(cfg.Healthy, cfg.MaxInFlight),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	for i, name := range cfg.Classes {
		c := &class{name: name, index: i, priority: priority.Priority(len(cfg.Classes) - 1 - i)}
		s.classes = append(s.classes, c)
		s.byName[name] = c
	}
	s.limiter = adaptivelimiter.NewBuilder[any]().
		WithLimits(uint(cfg.MinInFlight), uint(cfg.MaxInFlight), uint(cfg.MaxInFlight)).
		WithMaxLimitFunc(s.health.most).
		Build()
	s.room = newRoom(s.limiter, len(s.classes))
	if s.metrics, err = newMetrics(cfg.MeterProvider, s); err != nil {
		return nil, err
	}
	go s.watch()
	return s, nil
}

// Acquire asks for a place for one call. The Permit is nil unless the call is allowed; release it when the call ends.
// The time between is the duration that the limit follows, so a wait for the client does not belong there.
//
// A call of the first class is always allowed, and at once. Any other call is shed at once if its class is within the
// shed part. Otherwise it waits for a place, at most MaxWait. It is shed if none is free by then. No call of a class
// below takes a place while it waits.
//
// The Result has the SourceShed. Its Limit is the number of calls that may run at once, and Remaining the number of
// free places. RetryAfter is an estimate of the time until the class is served again, with jitter of up to a half, so
// that clients do not return together. It is longer for lower classes.
//
// The errors are ErrClosed and the error of ctx. An unknown class counts as the last one.
func (s *Shedder) Acquire(ctx context.Context, class string) (hybridlimit.Permit, hybridlimit.Result, error) {
	if err := ctx.Err(); err != nil {
		return hybridlimit.Permit{}, hybridlimit.Result{}, err
	}
	if s.closed.Load() {
		return hybridlimit.Permit{}, hybridlimit.Result{}, errClosed
	}
	c := s.byName[class]
	if c == nil {
		c = s.classes[len(s.classes)-1]
	}
	if c.index == 0 {
		permit, _ := s.limiter.TryAcquirePermit() // without a free place it runs beside the limit
		return s.allow(c, permit)
	}
	if s.cut.sheds(c.priority.RandomLevel()) {
		return s.deny(c, s.cut.back(c.priority.MaxLevel()+1))
	}
	permit, err := s.room.enter(ctx, c.index, s.cfg.MaxWait, s.full)
	switch {
	case err == nil:
		return s.allow(c, permit)
	case errors.Is(err, errNoRoom):
		s.cut.noRoom.Add(1)
		c.noRoom.Add(1)
		return s.deny(c, s.cut.back(c.priority.MaxLevel()+1))
	case errors.Is(err, hybridlimit.ErrClosed):
		return hybridlimit.Permit{}, hybridlimit.Result{}, errClosed
	}
	return hybridlimit.Permit{}, hybridlimit.Result{}, err
}

var errClosed = fmt.Errorf("shed: %w", hybridlimit.ErrClosed)

// allow returns the permit of a call. place is nil for a call beside the limit.
func (s *Shedder) allow(c *class, place adaptivelimiter.Permit) (hybridlimit.Permit, hybridlimit.Result, error) {
	c.allowed.Add(1)
	s.running.Add(1)
	res := s.result()
	free := res.Remaining
	if place != nil {
		free++ // its own
	}
	s.cut.note(free, res.Limit)
	res.Allowed, res.Granted = true, 1
	return hybridlimit.NewPermit(&call{s, place, time.Now()}, 1), res, nil
}

// full notes a call that begins to wait.
func (s *Shedder) full() { s.cut.note(0, 0) }

// call is a running call.
type call struct {
	s     *Shedder
	place adaptivelimiter.Permit // nil: beside the limit
	began time.Time
}

// ReleasePermits implements hybridlimit.PermitHolder.
func (c *call) ReleasePermits(int64) {
	c.s.running.Add(-1)
	c.s.health.note(time.Since(c.began))
	if c.place != nil {
		c.s.room.leave(c.place)
	}
}

// deny returns the answer to a call that is shed. retry is the earliest time.
func (s *Shedder) deny(c *class, retry time.Duration) (hybridlimit.Permit, hybridlimit.Result, error) {
	c.shed.Add(1)
	res := s.result()
	s.cut.note(res.Remaining, res.Limit)
	res.RetryAfter = retry + time.Duration(rand.Float64()/2*float64(retry))
	return hybridlimit.Permit{}, res, nil
}

// result returns the fields that all answers have.
func (s *Shedder) result() hybridlimit.Result {
	limit := s.limiter.Limit()
	return hybridlimit.Result{
		Limit:     int64(limit),
		Remaining: int64(max(0, limit-s.limiter.Inflight())),
		Source:    hybridlimit.SourceShed,
		Policy:    s.cfg.Name,
	}
}

// watch moves the cut and writes the log lines until Close.
func (s *Shedder) watch() {
	defer close(s.stopped)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
			s.cut.move(s.limiter.CanAcquirePermit())
			s.health.judge(s.limiter)
			s.report()
		}
	}
}

// Close ends the waits of calls with ErrClosed, the export of metrics, and the goroutine. It does not wait for running
// calls; their permits may be released later. Close is idempotent, and safe beside all other methods.
func (s *Shedder) Close() error {
	var err error
	s.closing.Do(func() {
		s.closed.Store(true)
		s.room.end()
		close(s.stop)
		err = s.metrics.close()
	})
	<-s.stopped
	return err
}

// calm is the time without a shed call after which a class is reported as served again. It bounds the log to two lines
// per class in that time.
const calm = 5 * time.Second

// shedding is the state of one class in the log.
type shedding struct {
	on    bool
	seen  int64     // shed calls at the last tick
	first int64     // shed calls before this time of shedding
	since time.Time // its begin
	last  time.Time // the last tick with a shed call
}

// report writes a line for each class that begins to be shed, or is served again. It is called once per tick, by one
// goroutine.
func (s *Shedder) report() {
	now := time.Now()
	for _, c := range s.classes[1:] {
		l, shed := &c.log, c.shed.Load()
		switch {
		case shed > l.seen:
			l.last = now
			if !l.on {
				l.on, l.since, l.first = true, now, l.seen
				s.write(slog.LevelWarn, "shed: the process is overloaded; calls of a class are shed", c,
					"limit", s.limiter.Limit(), "in_flight", s.running.Load(),
					"remedy", "find the slow dependency; the class is served again when calls find places")
			}
		case l.on && now.Sub(l.last) >= calm && int64(c.priority.MinLevel()) >= s.cut.below.Load():
			l.on = false
			s.write(slog.LevelInfo, "shed: calls of a class are served again", c,
				"shed", shed-l.first, "lasted", l.last.Sub(l.since).Round(tick))
		}
		l.seen = shed
	}
}

// write writes a line. The default logger is looked up at each line, because a program may set it later.
func (s *Shedder) write(level slog.Level, text string, c *class, args ...any) {
	to := s.cfg.Logger
	if to == nil {
		to = slog.Default()
	}
	to.Log(context.Background(), level, text, append([]any{"policy", s.cfg.Name, "class", c.name}, args...)...)
}
