package hybrid_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// scene is a fleet and its Redis in a bubble. In a bubble, events at one instant happen in
// any order. So the scene acts when all other goroutines are blocked, and its processes
// start at different times.
type scene struct {
	t      *testing.T
	out    strings.Builder
	bubble *redistest.Bubble
	watch  *redis.Client // reads Redis, without latency
	limit  hybridlimit.Limit
	cfg    hybrid.Config
	start  time.Time
	cast   []*actor
}

// actor is one process and its link to Redis.
type actor struct {
	name string
	*hybrid.Limiter
	link *redistest.MemLink

	mu      sync.Mutex
	next    []redistest.Verdict // for the next syncs
	batches int                 // since the last command "messages"
}

const (
	oneWay = 500 * time.Microsecond // a round trip takes 1 ms
	// phase is the time between the starts of two processes. It is a multiple of none of
	// their periods (5 ms of the clock, 12.5 ms of the syncs, 1 s of the heartbeat).
	phase = 1700 * time.Microsecond
	// readyAt is the time at which a fleet has sent two heartbeats and its scenario begins.
	readyAt = 1100 * time.Millisecond
)

// now returns the time of the scene, which is also the time of Redis. The bubble begins at
// a whole second, so the ledger's generations end at t=1s, 2s, and so on.
func (s *scene) now() time.Duration { return time.Since(s.start) }

func (s *scene) sayTime() { fmt.Fprintf(&s.out, "t=%v\n", s.now().Round(time.Millisecond)) }

// until sleeps until a time of the scene, and then lets all other goroutines run first.
func (s *scene) until(t time.Duration) {
	time.Sleep(t - s.now())
	synctest.Wait()
}

func (s *scene) fleet(c *command) {
	processes := c.int("processes", 1)
	s.limit = c.limit()
	s.cfg = hybrid.Config{
		SyncInterval: c.duration("sync-interval", 0), MaxKeys: int(c.int("max-keys", 0)),
	}
	mode := c.text("mode", "auto")
	for s.cfg.Mode.String() != mode {
		if s.cfg.Mode++; s.cfg.Mode > hybrid.ModeExact {
			c.bad("no mode %q", mode)
		}
	}
	s.cfg.Overshoot = parsed(c, "overshoot", 0, func(percent string) (float64, error) {
		f, err := strconv.ParseFloat(strings.TrimSuffix(percent, "%"), 64)
		return f / 100, err
	})
	c.nothing()
	s.start, s.bubble = time.Now(), redistest.NewBubble(s.t)
	s.watch = s.bubble.Client(nil)
	for i := range processes {
		s.enter(fmt.Sprint("p", i+1))
		time.Sleep(phase)
	}
	s.until(readyAt)
	for _, a := range s.cast {
		if err := a.Ready(s.t.Context()); err != nil {
			c.bad("%s: %v", a.name, err)
		}
	}
	fmt.Fprintf(&s.out, "t=%v, N=%d\n", s.now(), s.cast[0].Stats().Fleet)
}

// enter starts a process.
func (s *scene) enter(name string) {
	a := &actor{name: name, link: s.bubble.Link()}
	a.link.Latency(oneWay, oneWay)
	a.link.Script(a.meet)
	a.Limiter = newLimiter(s.t, a.link.Client(nil), s.limit, s.cfg)
	s.cast = append(s.cast, a)
}

// meet counts batches, and returns the verdicts of those with an envelope. These have more keys than the others here.
func (a *actor) meet(_ int, cmd []string) redistest.Verdict {
	if !strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") || cmd[2] == "0" || ofTheFleet(cmd[1]) {
		return redistest.Forward()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.batches++
	if cmd[2] == "1" || len(a.next) == 0 {
		return redistest.Forward()
	}
	v := a.next[0]
	a.next = a.next[1:]
	return v
}

// actors returns the processes that a command names: "p1", "p1,p3" or "all".
func (s *scene) actors(c *command) []*actor {
	if len(c.words) == 0 {
		c.bad("which process?")
	}
	names := strings.Split(c.words[0], ",")
	if c.words = c.words[1:]; names[0] == "all" {
		return s.cast
	}
	var found []*actor
	for _, name := range names {
		i := slices.IndexFunc(s.cast, func(a *actor) bool { return a.name == name })
		if i < 0 {
			c.bad("no process %q", name)
		}
		found = append(found, s.cast[i])
	}
	return found
}

// each calls do for each process that a command names.
func (s *scene) each(c *command, do func(*actor)) {
	for _, a := range s.actors(c) {
		c.nothing()
		do(a)
	}
}

// join starts a process with a new name.
func (s *scene) join(c *command) {
	name := c.words[0]
	c.words = c.words[1:]
	c.nothing()
	s.enter(name)
}

// leave ends processes with Shutdown.
func (s *scene) leave(c *command) {
	s.each(c, func(a *actor) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		before := s.now()
		if err := a.Shutdown(ctx); err != nil {
			fmt.Fprintf(&s.out, "%s: %v\n", a.name, err)
		}
		fmt.Fprintf(&s.out, "%s left after %s\n", a.name, short(s.now()-before))
	})
}

// crash ends processes that cannot reach Redis any more.
func (s *scene) crash(c *command) {
	s.each(c, func(a *actor) {
		a.link.Refuse(true)
		a.link.CutAll()
		a.Close()
	})
}

// wait sleeps for a duration or, with until=, until a time of the scene. The second form
// removes the effect of a random pause before it.
func (s *scene) wait(c *command) {
	t := c.duration("until", 0)
	if t == 0 && len(c.words) > 0 {
		d, err := time.ParseDuration(c.words[0])
		if err != nil {
			c.bad("%v", err)
		}
		t, c.words = s.now()+d, c.words[1:]
	}
	if c.nothing(); t < s.now() {
		c.bad("that was %v ago", s.now()-t)
	}
	s.until(t)
	s.sayTime()
}

func (s *scene) fault(c *command, v redistest.Verdict) {
	s.each(c, func(a *actor) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.next = append(a.next, v)
	})
}

// loseReply drops the answer to the next sync and closes its connection.
func (s *scene) loseReply(c *command) { s.fault(c, redistest.DropReply(redistest.ThenClose)) }

// loseRequest drops the next sync itself.
func (s *scene) loseRequest(c *command) { s.fault(c, redistest.DropRequest(redistest.ThenClose)) }

// hang pauses the link between a process and Redis, and resume ends the pause.
func (s *scene) hang(c *command)   { s.each(c, func(a *actor) { a.link.Pause() }) }
func (s *scene) resume(c *command) { s.each(c, func(a *actor) { a.link.Resume() }) }

func (s *scene) killRedis(c *command)    { c.nothing(); s.bubble.Kill() }
func (s *scene) restartRedis(c *command) { c.nothing(); s.bubble.Restart() }

// wipe empties Redis, which keeps running.
func (s *scene) wipe(c *command) { c.nothing(); s.bubble.Mini.FlushAll() }

// short returns a duration with its first digits, which a reader checks.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Minute:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
