package hybrid_test

import (
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
)

var moreOf = regexp.MustCompile(` more=(\d+)`)

// toldOf returns the number of denials of a limiter that the lines report:
// those with a line of their own, and those in the "more" of a line.
func toldOf(t *testing.T, lines []string, limiter string) (total int64) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(line, " limiter="+limiter+" ") {
			continue
		}
		one := strings.HasPrefix(line, "INFO hybridlimit: denied ")
		if !one && !strings.HasPrefix(line, "INFO hybridlimit: more denials ") {
			continue
		}
		if one {
			total++
		}
		if m := moreOf.FindStringSubmatch(line); m != nil {
			n, err := strconv.ParseInt(m[1], 10, 64)
			if err != nil || n < 1 {
				t.Errorf("more is not a positive number: %s", line)
			}
			total += n
		}
	}
	return total
}

func deniedBy(s hybrid.Stats) (total int64) {
	for _, n := range s.Denied {
		total += n
	}
	return total
}

// TestDenialLogIsExact checks that each denial is reported once: by its own
// line, or in the "more" of a later line. Two processes deny three calls in
// four, from memory and by Redis, for one unit and for several. When they have
// closed, the lines add up to the denials.
func TestDenialLogIsExact(t *testing.T) {
	t.Parallel()
	calls, least := 450, int64(40)
	if testenv.Full() {
		calls, least = 2000, 100
	}
	for _, every := range []time.Duration{time.Millisecond, 700 * time.Millisecond, 10 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			b := redistest.NewBubble(t)
			limit := hybridlimit.TokenBucket(10, time.Second, 20)
			var logs []capture
			var limiters [][2]*hybrid.Limiter
			for range 2 {
				log := newCapture()
				h := newHub(t, b.Client(nil), hybrid.HubConfig{Logger: slog.New(log)})
				l := add(t, h, limit, hybrid.Config{Name: "api", LogDenials: every})
				wide := add(t, h, limit, hybrid.Config{Name: "wide", LogDenials: every, Shadow: true})
				logs, limiters = append(logs, log), append(limiters, [2]*hybrid.Limiter{l, wide})
			}
			time.Sleep(2100 * time.Millisecond)
			var wg sync.WaitGroup
			for p, ls := range limiters {
				l, wide := ls[0], ls[1]
				wg.Go(func() {
					for i := range calls {
						key := fmt.Sprint("k", i%3)
						switch i % 7 {
						case 0:
							ask(t, l, key, 5)
						case 1:
							must(t)(l.AllowAtMost(t.Context(), key, 3))
						case 2:
							must(t)(hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: l, Key: key, N: 1}, hybridlimit.Ask{Limiter: wide, Key: key, N: 2}))
							must(t)(hybridlimit.AllowAll(t.Context(), hybridlimit.Ask{Limiter: l, Key: fmt.Sprint("new", i), N: 1}, hybridlimit.Ask{Limiter: wide, Key: "all", N: 9}))
						case 3:
							must(t)(l.Handle(key).AllowN(t.Context(), 2))
						case 4:
							must(t)(l.AllowLimit(t.Context(), "plan", 1, hybridlimit.Blocked()))
						default:
							ask(t, l, key, 1)
						}
						if i%50 == p {
							time.Sleep(100 * time.Millisecond)
						}
						time.Sleep(time.Millisecond)
					}
				})
			}
			wg.Wait()
			for p, ls := range limiters {
				for _, l := range ls {
					denied := deniedBy(l.Stats())
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
					if again := deniedBy(l.Stats()); again != denied {
						t.Fatalf("%d denials before Close, %d after", denied, again)
					}
					if told := toldOf(t, logs[p].all(), l.Name()); told != denied || denied < least {
						t.Errorf("LogDenials %v: process %d denied %d calls by %s, its log reports %d", every, p, denied, l.Name(), told)
					}
				}
			}
		})
	}
}
