package hybrid_test

import (
	"os"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// TestInspectionAfterSetLimit checks the sentences after SetLimit. Inspect
// converts the state of the key as the next call does.
func TestInspectionAfterSetLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		l := newLimiter(t, b.Client(nil), still(10), hybrid.Config{})
		time.Sleep(2100 * time.Millisecond)
		ask(t, l, "k", 10)
		set := func(limit hybridlimit.Limit) {
			t.Helper()
			if err := l.SetLimit(limit); err != nil {
				t.Fatal(err)
			}
		}
		set(hybridlimit.Blocked())
		sentence(t, inspect(t, l, "k"), "denied because the limit is blocked: it admits nobody")
		set(hybridlimit.Unlimited())
		sentence(t, inspect(t, l, "k"), "allowed because the limit is unlimited")
		set(still(20))
		if i := inspect(t, l, "k"); i.Limit != still(20) || i.Outcome != hybrid.OutcomeAsk {
			t.Errorf("%v: %s", i.Limit, i)
		}
		must(t)(l.AllowLimit(t.Context(), "k", 1, hybridlimit.Blocked()))
		if i := inspect(t, l, "k"); i.Limit != still(20) {
			t.Errorf("after a call with a limit of its own: %v: %s", i.Limit, i)
		}
		set(still(5))
		i, err := l.InspectRedis(t.Context(), "k")
		if err != nil || i.Redis == nil || i.Limit != still(5) {
			t.Errorf("%v, %+v", err, i)
		}
	})
}

// TestInspectionOfOverflow checks a key that finds no memory, because all keys
// in memory owe. Redis decides each of its calls. Without Redis the allowance
// of the fallback for such keys decides.
func TestInspectionOfOverflow(t *testing.T) {
	for fallback, want := range map[hybrid.Fallback]string{
		hybrid.FallbackShare:    "allowed because the fallback (share) decides since Redis does not answer, and memory is full of keys that owe: there is none to count this one in, and of its share of 2000 units 2000 are left",
		hybrid.FallbackAllowAll: "allowed because the fallback (allow_all) decides since Redis does not answer, and memory is full of keys that owe: there is none to count this one in",
	} {
		for mode := hybrid.ModeAuto; mode <= hybrid.ModeExact; mode++ {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				l := newLimiter(t, b.Client(nil), still(2000), hybrid.Config{Mode: mode, Overshoot: map[hybrid.Mode]float64{hybrid.ModeAuto: 0.5}[mode], MaxKeys: 1, Fallback: fallback})
				time.Sleep(2100 * time.Millisecond)
				if mode == hybrid.ModeDeferred {
					ask(t, l, "a", 1)
					ask(t, l, "a", 7)
					i := foretold(t, l, "b", "Redis up")
					sentence(t, i, "the next call asks Redis, for 20ms at most, because memory is full of keys that owe Redis, so that it decides each call for a key that is not there")
					if s := l.Stats(); s.Refused == 0 {
						t.Errorf("memory was not full: %+v", s)
					}
				}
				time.Sleep(time.Second)
				b.Kill()
				for range 30 {
					ask(t, l, "a", 1)
					time.Sleep(100 * time.Millisecond)
				}
				if i := inspect(t, l, "a"); i.Breaker == "closed" || i.Owed == 0 {
					t.Fatalf("%+v", i)
				}
				sentence(t, foretold(t, l, "b", mode.String()), want)
				if s := l.Stats(); s.Overflow == 0 {
					t.Errorf("the key found memory: %+v", s)
				}
			})
		}
	}
}

// TestSentencesOfTheDocuments checks the form of the sentences in README and
// docs/operations.md. Their figures are made up.
func TestSentencesOfTheDocuments(t *testing.T) {
	shape := func(sentence string) string {
		sentence = regexp.MustCompile(`\d\d:\d\d:\d\d\.\d+`).ReplaceAllString(sentence, "TIME")
		sentence = regexp.MustCompile(`\d[\dhm.]*(ms|s)\b`).ReplaceAllString(sentence, "DURATION")
		return regexp.MustCompile(`\d+`).ReplaceAllString(sentence, "N")
	}
	said := map[string]bool{}
	synctest.Test(t, func(t *testing.T) {
		b := redistest.NewBubble(t)
		link := b.Link()
		l := newLimiter(t, link.Client(nil), hybridlimit.TokenBucket(5, time.Second, 10), hybrid.Config{Mode: hybrid.ModeDeferred})
		time.Sleep(2100 * time.Millisecond)
		link.Latency(time.Millisecond, time.Millisecond) // so that the last charge is still owed when it is inspected
		ask(t, l, "k", 10)
		must(t)(l.Charge(t.Context(), "k", 3))
		time.Sleep(100 * time.Millisecond) // Redis hears of the charge after 50 ms
		i, err := l.InspectRedis(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		said[shape(i.Sentence)] = true
		must(t)(l.Charge(t.Context(), "k", 812))
		said[shape(inspect(t, l, "k").Sentence)] = true
	})
	for _, page := range []string{"../README.md", "../docs/operations.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`(?m)^denied until .*$`).FindAllString(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s shows no sentence", page)
		}
		for _, sentence := range found {
			if !said[shape(sentence)] {
				t.Errorf("%s shows\n%s\nof the form\n%s\nInspect has the forms %v", page, sentence, shape(sentence), said)
			}
		}
	}
}
