package notice_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/local"
	"github.com/hybridlimit/hybridlimit/notice"
)

// crossed is a threshold of a key in a window.
type crossed struct {
	key   string
	begin time.Time
	at    float64
}

// use is what the test knows of the use of keys, by Peek of the limiter itself.
type use struct {
	limit hybridlimit.Limit
	at    []float64
	most  map[crossed]int64 // of a key in a window; at is 0
	last  map[string]int64  // of a key, at its last look
	must  map[crossed]bool  // that a Limiter must tell
	in    func() (begin time.Time)
}

func (u *use) need(at float64) int64 {
	return max(1, int64(math.Ceil(float64(u.limit.Rate)*at-1e-9)))
}

// look notes the units that are used now. seen: the Limiter sees them too.
func (u *use) look(t *testing.T, l *local.Limiter, key string, seen bool) {
	t.Helper()
	res, err := l.Peek(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	used, of := res.Limit-res.Remaining, crossed{key: key, begin: u.in()}
	if _, ok := u.most[of]; !ok && u.limit.Algorithm == hybridlimit.AlgSlidingWindow {
		u.most[of] = u.last[key] // the estimate at the border
	}
	u.most[of], u.last[key] = max(u.most[of], used), used
	for _, at := range u.at {
		if seen && used >= u.need(at) {
			u.must[crossed{key, of.begin, at}] = true
		}
	}
}

// TestToldIsWhatWasUsed runs calls, charges and refunds at random. Each threshold that a Result or the look after the
// last call shows is told once, and nothing is told that was never used.
func TestToldIsWhatWasUsed(t *testing.T) {
	seed := testenv.Seed(t)
	for i := range uint64(testenv.Runs(60, 3000)) {
		t.Run(fmt.Sprint("seed ", seed+i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playOne(t, rand.New(rand.NewPCG(seed+i, 1))) })
		})
	}
}

func playOne(t *testing.T, rng *rand.Rand) {
	period := time.Duration(10+rng.IntN(100)) * time.Second
	limit := hybridlimit.FixedWindow(1+rng.Int64N(30), period)
	if rng.IntN(2) == 0 {
		limit.Algorithm = hybridlimit.AlgSlidingWindow
	}
	u := &use{
		limit: limit, at: []float64{0.1 + 0.8*rng.Float64(), 1},
		most: map[crossed]int64{}, last: map[string]int64{}, must: map[crossed]bool{},
		in: func() time.Time { return time.Unix(0, time.Now().UnixNano()/int64(period)*int64(period)).UTC() },
	}
	var r told
	l := newLocal(t, limit, local.Config{})
	n := watch(t, l, notice.Config{At: u.at, On: r.on})
	ctx, keys := t.Context(), []string{"ann", "bob", "cid"}
	for range 400 {
		key := keys[rng.IntN(len(keys))]
		counts := ask(t, n, key, 1+rng.Int64N(3)).Source == hybridlimit.SourceLocal // not of a cost above the limit
		u.look(t, l, key, counts)
		for range rng.IntN(3) {
			var err error
			if rng.IntN(3) == 0 {
				_, err = l.Refund(ctx, key, 1+rng.Int64N(3))
			} else {
				_, err = l.Charge(ctx, key, 1+rng.Int64N(limit.Rate))
			}
			if err != nil {
				t.Fatal(err)
			}
			u.look(t, l, key, false)
		}
		begin := u.in()
		switch rng.IntN(3) {
		case 0:
			time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
		case 1: // the look comes, for this key
			time.Sleep(2*time.Second + 1)
			u.look(t, l, key, counts && u.in().Equal(begin) && limit.Algorithm == hybridlimit.AlgFixedWindow)
		default:
			time.Sleep(time.Duration(rng.Int64N(int64(period))))
		}
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	times := map[crossed]int{}
	for _, c := range r.take() {
		of := crossed{c.Key, c.Begin, c.At}
		if times[of]++; times[of] > 1 {
			t.Errorf("told %d times: %+v", times[of], c)
		}
		before := u.most[crossed{key: c.Key, begin: c.Begin.Add(-period)}]
		if most := u.most[crossed{key: c.Key, begin: c.Begin}]; most < c.Used && before < c.Used || c.Used < u.need(c.At) {
			t.Errorf("%+v, but at most %d units were used", c, most)
		}
	}
	for of := range u.must {
		if times[of] == 0 {
			t.Errorf("not told: %+v of %v", of, limit)
		}
	}
	if len(times) == 0 {
		t.Error("nothing was told")
	}
}
