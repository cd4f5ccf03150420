package hybrid_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

func inspect(t *testing.T, l *hybrid.Limiter, key string) hybrid.Inspection {
	t.Helper()
	i, err := l.Inspect(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if i.String() != i.Sentence || strings.Contains(i.Sentence, "\n") || i.Key != key || len(i.Digest) != 22 {
		t.Errorf("%+v", i)
	}
	return i
}

// sentence checks the text of a sentence. A "…" in want matches anything, for
// example a random time.
func sentence(t *testing.T, i hybrid.Inspection, want string) {
	t.Helper()
	rest, ok := i.Sentence, true
	for n, part := range strings.Split(want, "…") {
		at := strings.Index(rest, part)
		if at < 0 || n == 0 && at > 0 {
			ok = false
			break
		}
		rest = rest[at+len(part):]
	}
	if !ok || rest != "" && !strings.HasSuffix(want, "…") {
		t.Errorf("sentence =\n%s, want\n%s", i.Sentence, want)
	}
}

// linked is a Redis and the limiter's link to it.
type linked struct {
	*redistest.Bubble
	link *redistest.MemLink
}

// TestInspectionSentences checks the sentence of each case. The bubble's clock
// begins at midnight.
func TestInspectionSentences(t *testing.T) {
	per := hybridlimit.TokenBucket
	for name, c := range map[string]struct {
		limit hybridlimit.Limit
		cfg   hybrid.Config
		run   func(t *testing.T, b linked, l *hybrid.Limiter) // after 2.1 s
	}{
		"an unused key": {per(1000, time.Second, 2000), hybrid.Config{}, func(t *testing.T, _ linked, l *hybrid.Limiter) {
			sentence(t, inspect(t, l, "k"), "the next call asks Redis, for 20ms at most, because this process knows nothing of the key, and a key that it does not know may be empty")
			time.Sleep(10 * time.Second)
			sentence(t, inspect(t, l, "k"), "allowed on credit because up to 100 units may be admitted before Redis hears of them, and a key that this process does not know is full by now")
		}},
		"a lease": {per(1000, time.Second, 2000), hybrid.Config{}, func(t *testing.T, _ linked, l *hybrid.Limiter) {
			for range 300 {
				ask(t, l, "k", 1)
				time.Sleep(time.Millisecond)
			}
			i := inspect(t, l, "k")
			sentence(t, i, fmt.Sprintf("allowed because %d units are in hand, leased until 00:00:03.…", i.Leased))
			if i.Leased == 0 || i.Source != hybridlimit.SourceLease || i.LeaseUntil.IsZero() {
				t.Errorf("%+v", i)
			}
		}},
		"credit": {per(1, time.Hour, 2000), hybrid.Config{Mode: hybrid.ModeDeferred, SyncEvery: 100}, func(t *testing.T, b linked, l *hybrid.Limiter) {
			ask(t, l, "k", 1)
			sentence(t, inspect(t, l, "k"), "allowed on credit because up to 100 units may be admitted before Redis hears of them, and Redis said the bucket has 1999 units left 0 ms ago")
			ask(t, l, "k", 7)
			time.Sleep(40 * time.Millisecond)
			i := inspect(t, l, "k")
			sentence(t, i, "allowed on credit because up to 93 units may be admitted before Redis hears of them, and Redis said the bucket has 1999 units left 40 ms ago; 7 units are owed by this process")
			if i.Owed != 7 || i.ViewLeft != 1999 || i.ViewAge != 40*time.Millisecond || i.Credit != 100 || !i.FleetKnown || i.Fleet != 1 {
				t.Errorf("%+v", i)
			}
			b.link.Pause() // else Redis may have heard of the units before the inspection
			ask(t, l, "k", 93)
			sentence(t, inspect(t, l, "k"), "the next call asks Redis, for 20ms at most, because nothing is leased, and the credit of 100 units is used up; 100 units are owed by this process")
			b.link.Resume()
		}},
		"a proof of debt": {per(5, time.Second, 10), hybrid.Config{Mode: hybrid.ModeDeferred}, func(t *testing.T, _ linked, l *hybrid.Limiter) {
			ask(t, l, "k", 10)
			must(t)(l.Charge(t.Context(), "k", 3))
			time.Sleep(100 * time.Millisecond) // Redis hears of the charge after 50 ms
			i := inspect(t, l, "k")
			sentence(t, i, "denied until 00:00:0….… UTC because Redis said the bucket is 3 units in debt 50 ms ago")
			if i.Outcome != hybrid.OutcomeDeny || i.DenyUntil.Sub(i.At) <= 0 || i.DenyUntil.Sub(i.At) > 800*time.Millisecond || i.ViewLeft != -3 {
				t.Errorf("%+v", i)
			}
		}},
		"a proof by what is owed": {per(1, time.Hour, 10), hybrid.Config{Mode: hybrid.ModeDeferred}, func(t *testing.T, _ linked, l *hybrid.Limiter) {
			ask(t, l, "k", 7)
			ask(t, l, "k", 3)
			sentence(t, inspect(t, l, "k"), "denied until 00:00:0….… UTC because Redis said the bucket has 3 units left 0 ms ago, and since then 3 units are owed by this process; then Redis is asked again, which may have been reset")
		}},
		"an empty bucket": {per(1, time.Hour, 10), hybrid.Config{}, func(t *testing.T, _ linked, l *hybrid.Limiter) {
			ask(t, l, "k", 10)
			sentence(t, inspect(t, l, "k"), "denied until 00:00:0….… UTC because Redis said the bucket is empty 0 ms ago; then Redis is asked again, which may have been reset")
		}},
		"shadow": {per(1, time.Hour, 10), hybrid.Config{Shadow: true}, func(t *testing.T, _ linked, l *hybrid.Limiter) {
			ask(t, l, "k", 10)
			sentence(t, inspect(t, l, "k"), "denied until … because Redis said the bucket is empty 0 ms ago; then Redis is asked again, which may have been reset; nobody is denied all the same, because the limit is in shadow")
		}},
		"strict": {per(1, time.Hour, 10), hybrid.Config{Mode: hybrid.ModeStrict}, func(t *testing.T, b linked, l *hybrid.Limiter) {
			sentence(t, inspect(t, l, "k"), "the next call asks Redis, for 20ms at most, because this process knows nothing of the key, and mode strict gives no credit")
		}},
		"no overshoot": {per(1, time.Hour, 10), hybrid.Config{Overshoot: -1}, func(t *testing.T, b linked, l *hybrid.Limiter) {
			ask(t, l, "k", 1)
			sentence(t, inspect(t, l, "k"), "the next call asks Redis, for 20ms at most, because nothing is leased, and Overshoot gives no credit")
		}},
		"credit below one unit": {per(1, time.Hour, 10), hybrid.Config{}, func(t *testing.T, b linked, l *hybrid.Limiter) {
			ask(t, l, "k", 1)
			sentence(t, inspect(t, l, "k"), "the next call asks Redis, for 20ms at most, because nothing is leased, and credit is 0 units: Overshoot 0.05 × burst 10 / 1 is below one, and an Overshoot of 0.1 gives 1")
		}},
		"Redis dead, a share": {per(1, time.Hour, 2), hybrid.Config{}, func(t *testing.T, b linked, l *hybrid.Limiter) {
			b.Kill()
			time.Sleep(10 * time.Second)
			sentence(t, inspect(t, l, "k"), "allowed because the fallback (share) decides since Redis does not answer: this process has 2 of its 2 units left")
			ask(t, l, "k", 2)
			i := inspect(t, l, "k")
			sentence(t, i, "denied until 01:00:1….… UTC because the fallback (share) decides since Redis does not answer: this process has 0 of its 2 units left; 2 units are owed by this process")
			if i.Breaker == "closed" || i.Fallback != 2 {
				t.Errorf("%+v", i)
			}
		}},
		"Redis dead, deny all": {per(1, time.Hour, 2), hybrid.Config{Fallback: hybrid.FallbackDenyAll}, func(t *testing.T, b linked, l *hybrid.Limiter) {
			b.Kill()
			time.Sleep(10 * time.Second)
			sentence(t, inspect(t, l, "k"), "denied because the fallback (deny_all) decides since Redis does not answer")
		}},
		"Redis dead, allow all": {per(1, time.Hour, 2), hybrid.Config{Fallback: hybrid.FallbackAllowAll}, func(t *testing.T, b linked, l *hybrid.Limiter) {
			b.Kill()
			time.Sleep(10 * time.Second)
			sentence(t, inspect(t, l, "k"), "allowed because the fallback (allow_all) decides since Redis does not answer")
		}},
		"Redis silent, the breaker closed": {per(1, time.Hour, 2), patientWith(hybrid.Config{Mode: hybrid.ModeStrict, MaxWait: 30 * time.Millisecond}), func(t *testing.T, b linked, l *hybrid.Limiter) {
			b.Kill()
			ask(t, l, "k", 1)
			sentence(t, inspect(t, l, "k"), "the next call asks Redis, for 30ms at most, because its answer to an earlier question is on its way")
			time.Sleep(15 * time.Millisecond)
			sentence(t, inspect(t, l, "k"), "denied because Redis has kept calls for this key waiting for 45 ms, and mode strict admits nothing without its word")
		}},
		"never wait": {per(1, time.Hour, 2), hybrid.Config{MaxWait: -1}, func(t *testing.T, b linked, l *hybrid.Limiter) {
			sentence(t, inspect(t, l, "k"), "allowed because the fallback (share) decides since calls do not wait for Redis (MaxWait is negative), and this process knows nothing of the key, and credit is 0 units: Overshoot 0.05 × burst 2 / 1 is below one, and an Overshoot of 0.5 gives 1: this process has 2 of its 2 units left")
		}},
		"switches": {per(1, time.Hour, 2), hybrid.Config{}, func(t *testing.T, b linked, l *hybrid.Limiter) {
			flipFleet(t, l, hybrid.SwitchDenyAll)
			sentence(t, inspect(t, l, "k"), "denied because the switch of the fleet is deny_all")
			flip(t, l, hybrid.SwitchAllowAll)
			i := inspect(t, l, "k")
			sentence(t, i, "allowed because the switch of this process is allow_all: no limit counts")
			if i.Switch != "allow_all" || !i.SwitchOwn {
				t.Errorf("%+v", i)
			}
			flip(t, l, hybrid.SwitchLocalOnly)
			sentence(t, inspect(t, l, "k"), "allowed because the fallback (share) decides since the switch of this process is local_only: this process has 2 of its 2 units left")
			flip(t, l, hybrid.SwitchShadow)
			sentence(t, inspect(t, l, "k"), "the next call asks Redis, for 20ms at most, because this process knows nothing of the key, and credit is 0 units: Overshoot 0.05 × burst 2 / 1 is below one, and an Overshoot of 0.5 gives 1; nobody is denied all the same, because the limit is in shadow")
		}},
		"exact": {per(1, time.Hour, 2), hybrid.Config{Mode: hybrid.ModeExact}, func(t *testing.T, b linked, l *hybrid.Limiter) {
			sentence(t, inspect(t, l, "k"), "the next call asks Redis, for 20ms at most, because in mode exact it decides each call")
		}},
		"unlimited": {hybridlimit.Unlimited(), hybrid.Config{}, func(t *testing.T, b linked, l *hybrid.Limiter) {
			sentence(t, inspect(t, l, "k"), "allowed because the limit is unlimited")
		}},
		"blocked": {hybridlimit.Blocked(), hybrid.Config{}, func(t *testing.T, b linked, l *hybrid.Limiter) {
			sentence(t, inspect(t, l, "k"), "denied because the limit is blocked: it admits nobody")
		}},
		"a window": {hybridlimit.FixedWindow(10, time.Hour), hybrid.Config{}, func(t *testing.T, b linked, l *hybrid.Limiter) {
			ask(t, l, "k", 10)
			sentence(t, inspect(t, l, "k"), "denied until 00:00:0….… UTC because Redis said the window is used up 0 ms ago; then Redis is asked again, which may have been reset")
		}},
		"the end of a window": {hybridlimit.FixedWindow(10, 3*time.Second), hybrid.Config{}, func(t *testing.T, b linked, l *hybrid.Limiter) {
			ask(t, l, "k", 10)
			sentence(t, inspect(t, l, "k"), "denied until 00:00:03.000 UTC because Redis said the window is used up 0 ms ago")
			time.Sleep(time.Second)
			sentence(t, inspect(t, l, "k"), "the next call asks Redis, for 20ms at most, because nothing is leased, and credit is 0 units: Overshoot 0.05 × burst 10 / 1 is below one, and an Overshoot of 0.1 gives 1")
		}},
		"a window that is over": {hybridlimit.FixedWindow(1000, 3*time.Second), hybrid.Config{}, func(t *testing.T, b linked, l *hybrid.Limiter) {
			ask(t, l, "k", 10)
			time.Sleep(2 * time.Second)
			sentence(t, inspect(t, l, "k"), "the next call asks Redis, for 20ms at most, because nothing is leased, and what Redis said was of a window that is over")
		}},
		"a queue": {hybridlimit.LeakyQueue(1, time.Hour, 3), hybrid.Config{}, func(t *testing.T, b linked, l *hybrid.Limiter) {
			sentence(t, inspect(t, l, "k"), "the next call asks Redis, for 20ms at most, because this process knows nothing of the key, and only Redis knows when the queue serves a call")
			ask(t, l, "k", 3)
			sentence(t, inspect(t, l, "k"), "denied until 00:00:0….… UTC because Redis said the queue is full 0 ms ago; then Redis is asked again, which may have been reset")
		}},
		"a log": {hybridlimit.SlidingLog(2, time.Hour), hybrid.Config{}, func(t *testing.T, b linked, l *hybrid.Limiter) {
			sentence(t, inspect(t, l, "k"), "the next call asks Redis, for 20ms at most, because under a sliding log it decides each call")
			ask(t, l, "k", 2)
			ask(t, l, "k", 1)
			sentence(t, inspect(t, l, "k"), "denied until 00:00:0….… UTC because Redis said that the log has no room for 1 unit")
		}},
		"a date": {hybridlimit.FixedWindow(1, 240*time.Hour), patientWith(hybrid.Config{Fallback: hybrid.FallbackShare}), func(t *testing.T, b linked, l *hybrid.Limiter) {
			flip(t, l, hybrid.SwitchLocalOnly)
			ask(t, l, "k", 1)
			sentence(t, inspect(t, l, "k"), "denied until 2000-01-04 00:00:00 UTC because the fallback (share) decides since the switch of this process is local_only: this process has 0 of its 1 units left; 1 unit is owed by this process")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link := b.Link()
				l := newLimiter(t, link.Client(nil), c.limit, c.cfg)
				time.Sleep(2100 * time.Millisecond)
				c.run(t, linked{b, link}, l)
			})
		})
	}
}

// patientWith is patient with the MaxWait of cfg.
func patientWith(cfg hybrid.Config) hybrid.Config {
	wait := cfg.MaxWait
	cfg = patient(cfg)
	cfg.MaxWait = wait
	return cfg
}

// TestInspectionOfTurns checks the sentence of a process that stays away for
// its turn, because units are scarce and several processes want them.
func TestInspectionOfTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		var ls []*hybrid.Limiter
		for range 4 {
			ls = append(ls, newLimiter(t, b.Client(nil), hybridlimit.TokenBucket(50, time.Second, 50), hybrid.Config{}))
		}
		time.Sleep(2100 * time.Millisecond)
		seen := false
		for range 2000 {
			for _, l := range ls {
				ask(t, l, "k", 1)
				if i := inspect(t, l, "k"); strings.Contains(i.Sentence, "scarce") {
					sentence(t, i, "denied until 00:00:… UTC because units are scarce and other processes have their turn first; Redis said the bucket …")
					seen = true
				}
			}
			time.Sleep(2 * time.Millisecond)
		}
		if !seen {
			t.Error("no process stayed away for its turn")
		}
	})
}

// TestInspectionOfPlaces checks the sentence of places in a queue that are
// leased to a process, because several processes share the queue.
func TestInspectionOfPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		var ls []*hybrid.Limiter
		for range 4 {
			ls = append(ls, newLimiter(t, b.Client(nil), hybridlimit.LeakyQueue(200, time.Second, 400), hybrid.Config{}))
		}
		time.Sleep(3 * time.Second)
		seen := false
		for n := 0; n < 2000; n++ {
			l := ls[n%4]
			ask(t, l, "k", 1)
			if i := inspect(t, l, "k"); i.Leased > 1 {
				sentence(t, i, fmt.Sprintf("allowed because %d places of the queue are leased to this process, the next of them served at 00:00:….… UTC", i.Leased))
				seen = true
			}
			time.Sleep(4 * time.Millisecond)
		}
		if !seen {
			t.Error("no places were leased")
		}
	})
}

// foretold inspects a key, and checks that the next call gets the answer that
// Inspect foretold. A budget of credit outlives the fleet size that it was
// computed for, by at most a tick: see Hub.watch.
func foretold(t *testing.T, l *hybrid.Limiter, key, where string) hybrid.Inspection {
	t.Helper()
	synctest.Wait() // else a sync of this very instant may end between Inspect and the call
	i := inspect(t, l, key)
	if again := inspect(t, l, key); again.Sentence != i.Sentence {
		t.Fatalf("%s: inspected twice:\n%s\n%s", where, i, again)
	}
	was := time.Now()
	res := ask(t, l, key, 1)
	outlived := !i.FleetKnown && time.Since(was) == 0 && res.Source == hybridlimit.SourceCredit
	switch i.Outcome {
	case hybrid.OutcomeAllow, hybrid.OutcomeDeny:
		if outlived && i.Outcome == hybrid.OutcomeDeny {
			break
		}
		if res.Allowed != (i.Outcome == hybrid.OutcomeAllow) || res.Source != i.Source || time.Since(was) != 0 {
			t.Fatalf("%s: told %q, got %+v", where, i, res)
		}
		// The clock of the fast path is up to a tick behind.
		if until := i.DenyUntil.Sub(i.At); i.Outcome == hybrid.OutcomeDeny && !i.DenyUntil.IsZero() && (res.RetryAfter <= 0 || res.RetryAfter > until+5*time.Millisecond+time.Microsecond) {
			t.Fatalf("%s: told %q, got RetryAfter %v", where, i, res.RetryAfter)
		}
	case hybrid.OutcomeAsk:
		if res.Source == hybridlimit.SourceDenyCache || res.Source == hybridlimit.SourceCredit && !outlived || res.Source == hybridlimit.SourceStatic {
			t.Fatalf("%s: told %q, got %+v", where, i, res)
		}
	}
	if i.Limit.BurstSize() != res.Limit {
		t.Fatalf("%s: told of %v, the limit was %d", where, i.Limit, res.Limit)
	}
	return i
}

// TestInspectRedis checks that InspectRedis asks Redis and Inspect does not,
// and that the answer agrees with the state in Redis.
func TestInspectRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		h := newHub(t, b.Client(nil), hybrid.HubConfig{})
		l := add(t, h, still(10), hybrid.Config{Name: "api"})
		time.Sleep(2100 * time.Millisecond)
		ask(t, l, "k", 4)
		messages := h.Stats().Messages
		for range 10 {
			if i := inspect(t, l, "k"); i.Redis != nil || i.RedisError != "" {
				t.Errorf("%+v", i)
			}
		}
		if n := h.Stats().Messages - messages; n != 0 {
			t.Errorf("Inspect sent %d messages", n)
		}
		look := func() hybrid.Inspection {
			t.Helper()
			i, err := l.InspectRedis(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			return i
		}
		i := look()
		sentence(t, i, "…; Redis now: allowed because the bucket has 6 of 10 units left")
		if i.Redis == nil || i.Redis.Left != 6 || i.Redis.Debited != 4 || !i.Redis.Found {
			t.Errorf("%+v", i.Redis)
		}
		if n := h.Stats().Messages - messages; n != 3 {
			t.Errorf("InspectRedis counts %d messages, want 3", n)
		}
		text, err := json.Marshal(i)
		if err != nil || !strings.Contains(string(text), `"limit":"1/h burst 10"`) || !strings.Contains(string(text), `"redis":{`) || strings.Contains(string(text), "deny_until") {
			t.Errorf("%s, %v", text, err)
		}
		// InspectRedis also asks while the switch keeps decisions away from
		// Redis, and while Redis does not answer.
		flip(t, l, hybrid.SwitchLocalOnly)
		sentence(t, look(), "…; Redis now: allowed because the bucket has 6 of 10 units left")
		b.Kill()
		i = look()
		sentence(t, i, "…; Redis, asked now, did not answer")
		if i.Redis != nil || i.RedisError == "" {
			t.Errorf("%+v", i)
		}
	})
}

func TestInspectBadInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), still(1), hybrid.Config{LimitFor: func(key string) hybridlimit.Limit {
			if key == "bad" {
				return hybridlimit.Limit{}
			}
			return hybridlimit.Blocked()
		}})
		for key, want := range map[string]error{"": hybridlimit.ErrEmptyKey, strings.Repeat("k", 513): hybridlimit.ErrKeyTooLong, "bad": hybridlimit.ErrInvalid} {
			if _, err := l.Inspect(t.Context(), key); !errors.Is(err, want) {
				t.Errorf("%.10q: %v, want %v", key, err, want)
			}
			if _, err := l.InspectRedis(t.Context(), key); !errors.Is(err, want) {
				t.Errorf("%.10q: %v, want %v", key, err, want)
			}
		}
		sentence(t, inspect(t, l, "own"), "denied because the limit is blocked: it admits nobody")
		l.Close()
		if _, err := l.Inspect(t.Context(), "k"); !errors.Is(err, hybridlimit.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestExactAfterAnOutage checks that in ModeExact Redis decides each call, also
// for a key that the fallback has admitted and that has paid since. Cause: the
// answer to that sync was taken for a view, and denied calls from memory.
func TestExactAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), still(5), hybrid.Config{Mode: hybrid.ModeExact})
		time.Sleep(2100 * time.Millisecond)
		b.Kill()
		ask(t, l, "k", 5)
		b.Restart()
		for range 100 {
			if res := ask(t, l, "k", 1); res.Source != hybridlimit.SourceRedis && res.Source != hybridlimit.SourceFallback {
				t.Fatalf("%+v", res)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if s := l.Stats(); s.Denied[hybridlimit.SourceRedis] < 20 || s.Owed != 0 {
			t.Errorf("%+v", s)
		}
	})
}
