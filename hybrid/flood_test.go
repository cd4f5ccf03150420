//go:build !race

// Memory is measured without the race detector, which adds its own.

package hybrid_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

func heapNow() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// TestFloodWithARedisThatIsOfNoUse checks the same with a Redis that answers
// but does not help: full, refusing, slow.
func TestFloodWithARedisThatIsOfNoUse(t *testing.T) {
	answers := func(text string) func(b *redistest.Bubble, link *redistest.MemLink) {
		return func(b *redistest.Bubble, _ *redistest.MemLink) { b.Mini.SetError(text) }
	}
	for name, bring := range map[string]func(b *redistest.Bubble, link *redistest.MemLink){
		"full":               answers("OOM command not allowed when used memory > 'maxmemory'."),
		"without rights":     answers("NOPERM this user has no permissions to run the 'evalsha' command"),
		"loading":            answers("LOADING Redis is loading the dataset in memory"),
		"refuses each batch": answers("HLBATCH unreadable op 1"),
		"slower than SlowCall": func(_ *redistest.Bubble, link *redistest.MemLink) {
			link.Latency(100*time.Millisecond, 100*time.Millisecond)
		},
		"slower than time-outs": func(_ *redistest.Bubble, link *redistest.MemLink) {
			link.Latency(time.Second, time.Second)
		},
		"half of it is lost": func(_ *redistest.Bubble, link *redistest.MemLink) {
			link.Script(func(n int, cmd []string) redistest.Verdict {
				if n%2 == 0 && strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") {
					return redistest.DropReply(redistest.ThenClose)
				}
				return redistest.Forward()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := redistest.NewBubble(t)
				link := b.Link()
				const keys = 1000
				l := newLimiter(t, link.Client(nil), hybridlimit.TokenBucket(1000, time.Second, 10), hybrid.Config{MaxKeys: keys, MaxWait: time.Millisecond})
				time.Sleep(3 * time.Second)
				bring(b, link)
				flood := func(from, n int) {
					for i := range n {
						ask(t, l, fmt.Sprint("attacker-", from+i), 1)
						if i%500 == 499 {
							time.Sleep(10 * time.Millisecond)
						}
					}
				}
				flood(0, 4*keys)
				before := heapNow()
				flood(4*keys, 20*keys)
				now := heapNow()
				if now > before+3e6 {
					t.Errorf("the heap grew from %.0f to %.0f bytes", before, now)
				}
				if s := l.Stats(); s.Keys > keys || s.Evicted+s.Refused < 10*keys {
					t.Errorf("%d keys in memory, %d evicted, %d refused", s.Keys, s.Evicted, s.Refused)
				}
				time.Sleep(2 * time.Second)
			})
		})
	}
}
