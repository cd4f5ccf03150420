package region

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/moves"
	"github.com/hybridlimit/hybridlimit/internal/sometimes"
)

// Limiter applies a limit that some regions share, in one of them. It is safe for concurrent use.
type Limiter struct {
	cfg      Config
	here     *hybrid.Limiter
	receiver moves.Receiver // of here
	permits  *hybrid.ConcurrencyLimiter
	others   []*other // sorted by name
	home     moves.Home
	notes    notes
	count    counts
	terms    atomic.Pointer[terms]
	limit    atomic.Pointer[hybridlimit.Limit] // of all regions together
	setting  sync.Mutex                        // held by SetLimit
	measured func() error                      // ends the metrics

	start   time.Time // of the mover's clock
	ctx     context.Context
	cancel  context.CancelFunc // ends the mover at once
	closing chan struct{}      // closed by Shutdown: the mover ends what is under way
	stop    sync.Once          // closes closing
	events  chan event         // for the mover
	wg      sync.WaitGroup     // the mover and its messages
	shut    sync.Once
	failed  error // of Close
}

// other is another region.
type other struct {
	name    string
	limiter *global.Limiter
	donor   moves.Donor
	line    *sometimes.Line // about its failures

	// These belong to the mover.
	warm    bool  // its Redis has answered and has the script
	warming bool  // a message about that is in flight
	again   int64 // ns; none is sent before
}

var (
	_ hybridlimit.Limiter = (*Limiter)(nil)
	_ adapter.Describer   = (*Limiter)(nil)
)

// New returns the limiter of the region Config.Here. limit is that of all regions together: a token bucket or a leaky
// bucket. It adds two limiters to the hub, and connects to no other region before a key is denied. An unreachable Redis
// is no error.
//
// The error is a *hybridlimit.InvalidError with all violations of limit and cfg, or wraps hybridlimit.ErrUnsupported for
// another algorithm, or is that of Hub.Limiter.
func New(limit hybridlimit.Limit, cfg Config) (*Limiter, error) {
	parts, err := cfg.parts(limit)
	if err != nil {
		return nil, err
	}
	l := &Limiter{
		cfg: cfg, home: moves.HomeOf(cfg.Hub), closing: make(chan struct{}), events: make(chan event, 64), start: time.Now(),
		measured: func() error { return nil }, notes: notes{added: make(chan struct{}, 1)},
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.limit.Store(&limit)
	if err := l.build(parts); err != nil {
		return nil, errors.Join(err, l.dismantle())
	}
	l.terms.Store(l.termsOf(parts))
	l.wg.Add(1)
	go l.move()
	return l, nil
}

// build makes the limiters. After an error, dismantle closes those that were made.
func (l *Limiter) build(parts map[string]part) (err error) {
	own := l.cfg.Limiter
	own.Name, own.MaxLease = l.cfg.Name, longestFree
	if own.Mode == hybrid.ModeAuto && own.Overshoot == 0 {
		own.Overshoot = defaultOvershoot
	}
	if l.here, err = l.cfg.Hub.Limiter(parts[l.cfg.Here].limit, own); err != nil {
		return err
	}
	l.receiver = moves.ReceiverOf(l.here)
	l.permits, err = l.cfg.Hub.Concurrency(hybridlimit.Concurrent(1), hybrid.ConcurrencyConfig{
		Name: l.cfg.Name + permitsName, Mode: hybrid.ModeExact, MaxKeys: 2 * mostNotes, MaxKeyBytes: own.MaxKeyBytes,
		Fallback: hybrid.FallbackDenyAll, // without Redis, no process knows that it moves alone
		TagBy:    func(string) string { return "" },
	})
	if err != nil {
		return err
	}
	for _, name := range l.cfg.names() {
		if name == l.cfg.Here {
			continue
		}
		limiter, err := global.New(l.cfg.Others[name], parts[name].limit, global.Config{
			Prefix: l.home.Prefix, Tags: l.home.Tags, Name: l.cfg.Name, Timeout: askFor, MaxKeyBytes: own.MaxKeyBytes,
			TagBy: own.TagBy, HashKeys: l.home.HashKeys, Functions: l.home.Functions,
		})
		if err != nil {
			return fmt.Errorf("region: Config.Others[%q]: %w", name, err)
		}
		l.others = append(l.others, &other{name: name, limiter: limiter, donor: moves.DonorOf(limiter), line: sometimes.Every(logEvery)})
	}
	l.measured, err = l.measure(l.home.Meters)
	return err
}

// dismantle closes the limiters that build has made.
func (l *Limiter) dismantle() error {
	var errs []error
	for _, o := range l.others {
		errs = append(errs, o.limiter.Close())
	}
	if l.permits != nil {
		errs = append(errs, l.permits.Close())
	}
	if l.here != nil {
		errs = append(errs, l.here.Close())
	}
	return errors.Join(append(errs, l.measured())...)
}

// termsOf returns what the mover needs of a division.
func (l *Limiter) termsOf(parts map[string]part) *terms {
	here := parts[l.cfg.Here]
	t := &terms{burst: here.limit.Burst, under: here.under}
	for _, o := range l.others {
		limit := parts[o.name].limit
		floor := limit.Burst / 4
		t.donors = append(t.donors, donorTerms{floor: floor, spare: limit.Burst - floor, perNs: float64(limit.Rate) / float64(limit.Period)})
	}
	return t
}

// Allow is AllowN with a cost of 1. It is written out, because it is the fast path.
func (l *Limiter) Allow(ctx context.Context, key string) (res hybridlimit.Result, err error) {
	res, err = l.here.Allow(ctx, key)
	if !res.Allowed || res.Shadowed {
		l.denied(key, 1, res.Source, err)
	}
	return res, err
}

// AllowN takes n units of key from this region's share of the limit, as hybrid.Limiter.AllowN does. Result.Limit is the
// burst of this region: an n above it is denied for ever. A denial lets units of other regions come, for later calls.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (res hybridlimit.Result, err error) {
	res, err = l.here.AllowN(ctx, key, n)
	if !res.Allowed || res.Shadowed {
		l.denied(key, n, res.Source, err)
	}
	return res, err
}

// denied notes a call that Redis or the deny cache has denied. Units of other regions do not help against another
// denial.
func (l *Limiter) denied(key string, n int64, by hybridlimit.Source, err error) {
	if err == nil && (by == hybridlimit.SourceDenyCache || by == hybridlimit.SourceRedis) {
		l.notes.add(key, n)
	}
}

// Name returns Config.Name.
func (l *Limiter) Name() string { return l.cfg.Name }

// Policy returns the limit of all regions together. It is the same for each key.
func (l *Limiter) Policy(key string) hybridlimit.Policy {
	p := l.here.Policy(key)
	p.Limit = *l.limit.Load()
	return p
}

// Here returns the limiter of this region's share, for its other methods, such as Wait, Refund, Inspect and Stats. Their
// denials let no units come. Close it by Limiter.Close only. Its Stats count units that came from other regions as
// Returned.
func (l *Limiter) Here() *hybrid.Limiter { return l.here }

// Unwrap returns Here, for adapters and package spend.
func (l *Limiter) Unwrap() hybridlimit.Limiter { return l.here }

// Ready waits until the limiter of this region is ready, as hybrid.Limiter.Ready does. It does not ask other regions.
func (l *Limiter) Ready(ctx context.Context) error { return l.here.Ready(ctx) }

// SetLimit replaces the limit of all regions together, in this process. It changes this region's share at once, and
// the shares that this process takes from in others. Used units stay used, as with hybrid.Limiter.SetLimit. Call it in
// all processes of all regions. Until all have it, the promise is that of the largest limit.
//
// It fails and changes nothing for a limit that New would refuse, and for one of another algorithm.
func (l *Limiter) SetLimit(limit hybridlimit.Limit) error {
	l.setting.Lock()
	defer l.setting.Unlock()
	parts, err := l.cfg.parts(limit)
	if err != nil {
		return err
	}
	// All limiters have the same algorithm, so the first one refuses a limit that another would refuse.
	if err := l.here.SetLimit(parts[l.cfg.Here].limit); err != nil {
		return err
	}
	var errs []error
	for _, o := range l.others {
		errs = append(errs, o.limiter.SetLimit(parts[o.name].limit))
	}
	l.limit.Store(&limit)
	l.terms.Store(l.termsOf(parts))
	return errors.Join(errs...)
}

// Close stops decisions and transfers at once, and waits for all goroutines. Units under way are lost, and units that
// are owed as with hybrid.Limiter.Close. The names of its limiters become free. Close is idempotent.
func (l *Limiter) Close() error {
	l.shut.Do(func() {
		l.cancel()
		l.wg.Wait()
		l.failed = l.dismantle()
	})
	return l.failed
}

// Shutdown lets the units under way come, for at most 300 ms, sends the owed units to Redis, and then closes the limiter.
// It stops waiting when ctx ends. Calls are decided until the transfers have ended.
func (l *Limiter) Shutdown(ctx context.Context) error {
	l.stop.Do(func() { close(l.closing) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.wg.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		l.cancel()
		<-done
	}
	return errors.Join(l.here.Shutdown(ctx), l.Close())
}
