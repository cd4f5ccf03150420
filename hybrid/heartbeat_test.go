package hybrid_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/breaker"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/news"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/lua"
)

var fleetNames = lua.Names{Prefix: "hl", Tags: lua.DefaultTags}

// hubOf returns a hub with limiters.
func hubOf(t *testing.T, b *redistest.Bubble, limiters ...string) *hybrid.Hub {
	t.Helper()
	h := newHub(t, b.Client(nil), hybrid.HubConfig{})
	for _, name := range limiters {
		add(t, h, hybridlimit.PerSecond(1000), hybrid.Config{Name: name})
	}
	return h
}

// sizes returns N of each limiter of a hub, as text.
func sizes(h *hybrid.Hub) string {
	var out []string
	for _, l := range h.Limiters() {
		out = append(out, fmt.Sprint(l.Name(), " ", l.Stats().Fleet))
	}
	return strings.Join(out, ", ")
}

// TestOneHeartbeatForAllLimiters checks that a hub sends one message a second, and has one
// goroutine, with one limiter and with a hundred.
func TestOneHeartbeatForAllLimiters(t *testing.T) {
	for _, n := range []int{1, 100, 150} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				h := hubOf(t, b, keysOf("limiter", n)...)
				if err := h.Ready(t.Context()); err != nil {
					t.Fatal(err)
				}
				// A heartbeat that joins a group, the batch script, the second heartbeat, and the settings.
				if got, most := h.Stats().Messages, uint64(3+(n+99)/100); got > most {
					t.Errorf("%d messages until %d limiters are ready, want at most %d", got, n, most)
				}
				if got := ours(); len(got) != 1 {
					t.Errorf("%d goroutines of the library, want one:\n%s", len(got), strings.Join(got, "\n\n"))
				}
				time.Sleep(500 * time.Millisecond) // between two heartbeats
				before := h.Stats().Messages
				time.Sleep(20 * time.Second)
				if got := h.Stats().Messages - before; got != 20 {
					t.Errorf("%d messages in 20 s", got)
				}
			})
		})
	}
}

// TestProcessesShareSomeLimiters checks N of each limiter in a deployment whose processes
// have different limiters, while limiters come and go.
func TestProcessesShareSomeLimiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		web, web2 := hubOf(t, b, "api", "login"), hubOf(t, b, "api", "login")
		batch, mail := hubOf(t, b, "api", "export"), hubOf(t, b, "mail")
		want := func(when string, h *hybrid.Hub, want string) {
			t.Helper()
			if got := sizes(h); got != want {
				t.Errorf("%s: N is %s, want %s", when, got, want)
			}
		}
		time.Sleep(2500 * time.Millisecond)
		want("running", web, "api 3, login 2")
		want("running", batch, "api 3, export 1")
		want("running", mail, "mail 1")

		add(t, mail, hybridlimit.PerSecond(1000), hybrid.Config{Name: "api"})
		time.Sleep(1100 * time.Millisecond)
		want("mail has a limiter more", mail, "api 4, mail 1")
		want("mail has a limiter more", web, "api 4, login 2")
		want("mail has a limiter more", batch, "api 4, export 1")

		for _, l := range web.Limiters() {
			if l.Name() == "login" {
				shutdown(t, l)
			}
		}
		time.Sleep(4 * time.Second) // a fleet shrinks after three counts
		want("a limiter has left", web, "api 4")
		want("a limiter has left", web2, "api 4, login 1")

		if err := batch.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := mail.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Second)
		if b.Mini.Exists(heartbeatsOf(hybridlimit.PerSecond(1000), "api", "export")) {
			t.Error("the process that shut down is still counted")
		}
		time.Sleep(4 * time.Second)
		want("two processes have ended", web, "api 2")
		want("two processes have ended", web2, "api 2, login 1")
	})
}

// TestANewGroupIsCountedBeforeItGivesCredit checks that no process gives credit with an N
// that lacks a process which gives credit too, when processes with other limiters start.
func TestANewGroupIsCountedBeforeItGivesCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		var hubs []*hybrid.Hub
		most := 0
		for i := range 6 {
			hubs = append(hubs, hubOf(t, b, "api", fmt.Sprint("own", i)))
			for range 300 {
				time.Sleep(10 * time.Millisecond)
				givers, least := 0, int64(1000)
				for _, h := range hubs {
					if s := h.Limiters()[0].Stats(); s.Credit > 0 {
						givers, least = givers+1, min(least, s.Fleet)
					}
				}
				if int64(givers) > least {
					t.Fatalf("%d processes give credit, and one of them counts %d", givers, least)
				}
				most = max(most, givers)
			}
		}
		if most != len(hubs) {
			t.Errorf("at most %d of %d processes gave credit at a time", most, len(hubs))
		}
	})
}

// TestTooManyGroups checks a process whose group finds no room in the directory. No other
// process counts it, so it gives no credit. It decides by Redis all the same, and the log says why.
func TestTooManyGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := redistest.NewBubble(t), newCapture()
		text := "1 5"
		for i := range 500 {
			text += fmt.Sprintf(" group%d %d", i, time.Now().Add(time.Minute).UnixMicro())
		}
		if err := b.Mini.Set(fleetNames.Groups(), text); err != nil {
			t.Fatal(err)
		}
		l := newLimiter(t, b.Client(nil), hybridlimit.PerSecond(1000), hybrid.Config{Hub: hybrid.HubConfig{Logger: slog.New(log)}})
		for range 500 {
			if res := ask(t, l, "k", 1); res.Source == hybridlimit.SourceCredit || res.Source == hybridlimit.SourceFallback {
				t.Fatalf("%+v", res)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if s := l.Stats(); s.Credit != 0 || s.Breaker != breaker.Closed {
			t.Errorf("%+v", s)
		}
		if lines := strings.Join(log.all(), "\n"); !strings.Contains(lines, "Redis refuses this process's heartbeats") || !strings.Contains(lines, "too many groups") {
			t.Errorf("log: %s", lines)
		}
		time.Sleep(time.Minute) // the groups expire
		if s := l.Stats(); s.Credit == 0 {
			t.Errorf("with room in the directory: %+v", s)
		}
	})
}

// TestIdleHubOfALargeFleetBeatsSeldom checks the pace of heartbeats in a fleet of 1200
// processes. A hub beats once a second while it is in use and until its keys are full, and
// then every three seconds. A call brings a heartbeat at once, and credit 1.5 s later.
func TestIdleHubOfALargeFleetBeatsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), hybridlimit.TokenBucket(100_000, time.Second, 2_000_000), hybrid.Config{Mode: hybrid.ModeDeferred})
		group := heartbeatsOf(l.Limit(), "api")
		stop := make(chan struct{})
		defer close(stop)
		go func() { // the others
			for {
				for i := range 1199 {
					b.Mini.ZAdd(group, float64(time.Now().Add(30*time.Second).UnixMicro()), fmt.Sprint("other", i))
				}
				select {
				case <-time.After(10 * time.Second):
				case <-stop:
					return
				}
			}
		}()
		time.Sleep(5 * time.Second)
		beats := func(d time.Duration) uint64 {
			before := l.Hub().Stats().Messages
			time.Sleep(d)
			return l.Hub().Stats().Messages - before
		}
		ask(t, l, "k", 1)
		time.Sleep(100 * time.Millisecond)
		if got := beats(20 * time.Second); got < 19 || got > 22 { // it takes 20 s until the bucket is full
			t.Errorf("%d messages in the 20 s after a call", got)
		}
		time.Sleep(5 * time.Second)
		if got := beats(30 * time.Second); got < 9 || got > 11 {
			t.Errorf("%d messages in 30 s of an idle hub, want 10", got)
		}
		if s := l.Stats(); s.Fleet != 1200 || s.Credit != 0 {
			t.Errorf("an idle hub: N is %d, C is %d", s.Fleet, s.Credit)
		}
		tool := hubOf(t, b)
		if err := tool.SetFleetSwitch(t.Context(), "api", hybrid.SwitchShadow); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3100 * time.Millisecond)
		if s, _ := l.Switch(); s != hybrid.SwitchShadow {
			t.Errorf("an idle hub has the switch %v", s)
		}
		for before := l.Hub().Stats().Messages; l.Hub().Stats().Messages == before; {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(2 * time.Second) // the next one is due in a second
		before := l.Hub().Stats().Messages
		ask(t, l, "other", 1)
		time.Sleep(100 * time.Millisecond)
		if got := l.Hub().Stats().Messages - before; got < 2 {
			t.Errorf("%d messages right after a call, want an ask and a heartbeat", got)
		}
		for i := range 30 { // the count of before is stale
			if s := l.Stats(); s.Credit != 0 && i < 13 {
				t.Fatalf("C is %d %d ms after the hub woke up", s.Credit, i*100)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if s := l.Stats(); s.Credit == 0 {
			t.Error("no credit 3 s after the hub woke up")
		}
		if got := beats(10 * time.Second); got < 10 || got > 12 {
			t.Errorf("%d messages in 10 s of a hub that is in use again", got)
		}
		time.Sleep(40 * time.Second) // idle again
		before = l.Hub().Stats().Messages
		for _, key := range []string{"a", "b"} { // the second one just after a heartbeat
			if err := news.Of(l).Pause(t.Context(), key, time.Minute); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(600 * time.Millisecond)
		if got := l.Hub().Stats().Messages - before; got < 2 {
			t.Errorf("%d messages of an idle hub that pauses two keys", got)
		}
	})
}

// TestAHubWithoutLimitersIsSilent checks that a hub sends nothing before its first limiter
// and after its last one, and that it can shut down in both cases.
func TestAHubWithoutLimitersIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		h := hubOf(t, b)
		silent := func(when string) {
			t.Helper()
			before := h.Stats().Messages
			time.Sleep(5 * time.Second)
			if got := h.Stats().Messages - before; got != 0 {
				t.Errorf("%s: %d messages", when, got)
			}
		}
		silent("before")
		l := add(t, h, hybridlimit.PerSecond(1000), hybrid.Config{Name: "api"})
		time.Sleep(2500 * time.Millisecond)
		shutdown(t, l)
		if b.Mini.Exists(heartbeatsOf(hybridlimit.PerSecond(1000), "api")) || b.Mini.Exists(fleetNames.Groups()) {
			t.Error("the last process has left its group in Redis")
		}
		silent("after")
		l = add(t, h, hybridlimit.PerSecond(1000), hybrid.Config{Name: "api"})
		if err := l.Ready(t.Context()); err != nil || sizes(h) != "api 1" {
			t.Errorf("a limiter after that: %v, N is %s", err, sizes(h))
		}
		if err := h.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := hubOf(t, b).Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestALostMoveCountsOnce checks a process whose message to another group was applied, and
// whose reply was lost, before it gets one limiter more: it is counted in one group.
func TestALostMoveCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link := b.Link()
		h := newHub(t, link.Client(nil), hybrid.HubConfig{})
		add(t, h, hybridlimit.PerSecond(1000), hybrid.Config{Name: "a"})
		time.Sleep(2500 * time.Millisecond)
		var lose atomic.Bool
		lose.Store(true)
		link.Script(func(_ int, cmd []string) redistest.Verdict {
			if lose.Load() && len(cmd) > 1 && cmd[1] == lua.Fleet.SHA {
				return redistest.DropReply(redistest.ThenClose)
			}
			return redistest.Forward()
		})
		add(t, h, hybridlimit.PerSecond(1000), hybrid.Config{Name: "b"})
		time.Sleep(100 * time.Millisecond)
		lose.Store(false)
		add(t, h, hybridlimit.PerSecond(1000), hybrid.Config{Name: "c"})
		time.Sleep(100 * time.Millisecond)
		for group, want := range map[string]bool{"a": false, "a b": false, "a b c": true} {
			if got := b.Mini.Exists(heartbeatsOf(hybridlimit.PerSecond(1000), strings.Fields(group)...)); got != want {
				t.Errorf("the group %q is there: %v", group, got)
			}
		}
		time.Sleep(3 * time.Second)
		if got := sizes(h); got != "a 1, b 1, c 1" {
			t.Errorf("N is %s", got)
		}
	})
}
