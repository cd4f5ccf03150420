package redistest

import (
	"bufio"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestMemLinkVerdicts checks the effect of each verdict on one INCR.
func TestMemLinkVerdicts(t *testing.T) {
	for _, tt := range []struct {
		v        Verdict
		err      func(error) bool
		took     time.Duration
		executed string // the counter, one minute later
	}{
		{Forward(), isNil, 0, "1"},
		{DropRequest(ThenClose), isEOF, 0, ""},
		{DropRequest(ThenHang), isTimeout, readTimeout, ""},
		{DropReply(ThenClose), isEOF, 0, "1"},
		{DropReply(ThenHang), isTimeout, readTimeout, "1"},
		{Duplicate(), isNil, 0, "2"},
		{Delay(20 * time.Millisecond), isNil, 20 * time.Millisecond, "1"},
		{DelayReply(20 * time.Millisecond), isNil, 20 * time.Millisecond, "1"},
		{Delay(10*time.Millisecond).Late(10*time.Millisecond, 5*time.Millisecond), isNil, 25 * time.Millisecond, "1"},
		{Delay(80 * time.Millisecond), isTimeout, readTimeout, "1"},
		{DelayReply(80 * time.Millisecond), isTimeout, readTimeout, "1"},
		{DropReply(ThenClose).Late(10*time.Millisecond, 10*time.Millisecond), isEOF, 20 * time.Millisecond, "1"},
		{DropRequest(ThenClose).Late(10*time.Millisecond, 10*time.Millisecond), isEOF, 20 * time.Millisecond, ""},
		{Duplicate().Late(10*time.Millisecond, 10*time.Millisecond), isNil, 20 * time.Millisecond, "2"},
	} {
		t.Run(tt.v.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBubble(t)
				l := b.Link()
				c := l.Client(impatient)
				l.Script(OnNth("INCR", 0, tt.v))
				start := time.Now()
				n, err := c.Incr(t.Context(), "k").Result()
				if took := time.Since(start); took != tt.took || !tt.err(err) || err == nil && n != 1 {
					t.Errorf("INCR = %d, %v after %s, want %s", n, err, took, tt.took)
				}
				time.Sleep(time.Minute)
				if got, _ := b.Mini.Get("k"); got != tt.executed {
					t.Errorf("the counter is %q, want %q", got, tt.executed)
				}
				want := Count{Seen: 1}
				want.Forwarded, _ = strconv.Atoi(tt.executed)
				if got := l.Count("incr"); got != want {
					t.Errorf("counted %+v, want %+v", got, want)
				}
				if err := c.Ping(t.Context()).Err(); err != nil {
					t.Errorf("the next command: %v", err)
				}
			})
		})
	}
}

// TestMemLinkPipelined checks the effect of each verdict on three pipelined
// requests. The verdict is for the second one.
func TestMemLinkPipelined(t *testing.T) {
	for _, tt := range []struct {
		v        Verdict
		executed string
		answered int
		seen     int
	}{
		{Forward(), "3", 3, 3},
		{Duplicate(), "4", 3, 3},
		{DropRequest(ThenClose), "1", 1, 2},
		{DropRequest(ThenHang), "1", 1, 2},
		{DropReply(ThenClose), "2", 1, 2},
		{DropReply(ThenHang), "3", 1, 3},
		{Delay(80 * time.Millisecond), "3", 1, 3},
		{DelayReply(80 * time.Millisecond), "3", 1, 3},
	} {
		t.Run(tt.v.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBubble(t)
				l := b.Link()
				l.Script(OnNth("INCR", 1, tt.v))
				// The test uses a plain connection: if a pipeline breaks, go-redis
				// gives its error to the answered commands as well.
				conn, err := l.Dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				conn.SetDeadline(time.Now().Add(readTimeout))
				for range 3 {
					conn.Write(encode([]string{"INCR", "k"}))
				}
				answered := 0
				for r := bufio.NewReader(conn); ; answered++ {
					if _, err := readReply(r); err != nil {
						break
					}
				}
				conn.Close()
				time.Sleep(time.Minute)
				if got, _ := b.Mini.Get("k"); got != tt.executed || answered != tt.answered {
					t.Errorf("executed %s, answered %d; want %s, %d", got, answered, tt.executed, tt.answered)
				}
				if got := l.Count("INCR").Seen; got != tt.seen {
					t.Errorf("seen %d, want %d", got, tt.seen)
				}
			})
		})
	}
}

// A client that retries, as go-redis does by default, repeats requests that were
// executed. This is why the library must not leave retries to the client.
func TestMemLinkRetryExecutesTwice(t *testing.T) {
	for _, v := range []Verdict{DropReply(ThenClose), DropReply(ThenHang), Delay(time.Second)} {
		t.Run(v.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBubble(t)
				l := b.Link()
				c := l.Client(func(o *redis.Options) { o.ReadTimeout = readTimeout })
				l.Script(OnNth("INCR", 0, v))
				if err := c.Incr(t.Context(), "k").Err(); err != nil {
					t.Errorf("INCR: %v", err)
				}
				time.Sleep(time.Minute)
				if got, _ := b.Mini.Get("k"); got != "2" {
					t.Errorf("executed %s times, want 2", got)
				}
			})
		})
	}
}

// Two runs of one seed have the same result, in every counter.
func TestMemLinkRepeatable(t *testing.T) {
	run := func(t *testing.T) (result []string) {
		synctest.Test(t, func(t *testing.T) {
			b := NewBubble(t)
			var all sync.WaitGroup
			for i := range 5 {
				l := b.Link()
				rng := rand.New(rand.NewPCG(1, uint64(i)))
				l.Script(func(n int, cmd []string) Verdict {
					v := []Verdict{Forward(), Forward(), Duplicate(), DropReply(ThenHang), DropRequest(ThenClose)}[rng.IntN(5)]
					return v.Late(time.Duration(rng.IntN(1e6)), time.Duration(rng.IntN(1e6)))
				})
				c := l.Client(func(o *redis.Options) {
					o.ReadTimeout = readTimeout
					// go-redis' own jitter comes from the global source.
					o.MaxRetries = -1
				})
				all.Go(func() {
					time.Sleep(time.Duration(i+1) * 137 * time.Microsecond)
					for range 40 {
						c.Incr(t.Context(), "k"+strconv.Itoa(i))
						time.Sleep(time.Millisecond)
					}
				})
			}
			all.Wait()
			result = append(result, time.Since(time.Time{}).String(), b.Mini.Dump())
		})
		return result
	}
	if a, b := run(t), run(t); !slices.Equal(a, b) {
		t.Errorf("two runs of one seed:\n%s\n%s", a, b)
	}
}
