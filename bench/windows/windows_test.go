package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
	"github.com/hybridlimit/hybridlimit/local"
)

// committed returns the rows of the committed documentation.
var committed = sync.OnceValue(func() []row { return measureAll(1) })

// TestCommittedFiguresAreWhatIsPrinted checks that the figures in the
// documentation are those that the command prints.
func TestCommittedFiguresAreWhatIsPrinted(t *testing.T) {
	old, err := os.ReadFile("../../docs/windows.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := splice(string(old), page(committed()))
	if err != nil {
		t.Fatal(err)
	}
	if string(old) != want {
		t.Errorf("docs/windows.md differs from the output of: cd bench && go run ./windows -write\n%s", want)
	}
	drawn, err := os.ReadFile("../../docs/" + figureFile)
	if err != nil || string(drawn) != string(figure()) {
		t.Errorf("docs/%s differs from the figure of (error: %v): cd bench && go run ./windows -write", figureFile, err)
	}
}

// TestWhatThePageSays checks the statements of the page about the figures in
// its tables.
func TestWhatThePageSays(t *testing.T) {
	for _, r := range committed() {
		tr := r.traffic
		sliding, fixed := r.detector[0], r.detector[1]
		if wrong := sliding.over + sliding.under; wrong*3 > fixed.over+fixed.under {
			t.Errorf("%s: counting every call, the sliding window is wrong %d times and the fixed one %d times, want at most a third", tr.name, wrong, fixed.over+fixed.under)
		}
		if fixed.under != 0 {
			t.Errorf("%s: counting every call, a fixed window has %d false alarms, want 0", tr.name, fixed.under)
		}
		wrong := float64(sliding.over+sliding.under) / float64(sliding.calls)
		off := sliding.off / float64(sliding.calls)
		switch tr.name {
		case "bursts":
			if wrong > 1.0/18 || off > 0.25 {
				t.Errorf("%s: %.3f wrong, off by %.3f", tr.name, wrong, off)
			}
		case "steady", "Poisson", "Zipf", "Zipf, light":
			if wrong > 0.014 || off < 0.01 || off > 0.08 {
				t.Errorf("%s: %.4f wrong, off by %.3f", tr.name, wrong, off)
			}
		}
		sliding, fixed = r.limiter[0], r.limiter[1]
		if fixed.under != 0 {
			t.Errorf("%s: a fixed window has denied %d calls that a log would have admitted, want 0", tr.name, fixed.under)
		}
		if attacked := tr.name == "burst, then flood"; !attacked && (float64(sliding.admitted) > 1.03*float64(r.log) || sliding.admitted < r.log) {
			t.Errorf("%s: %d admitted, %d by a log", tr.name, sliding.admitted, r.log)
		}
		if sliding.most >= 2*rate || fixed.most > 2*rate {
			t.Errorf("%s: %d and %d in a minute", tr.name, sliding.most, fixed.most)
		}
	}
}

// TestAttacksReachTheBounds checks that the attack reaches each bound to the
// unit, except that of the bucket, which it misses by one.
func TestAttacksReachTheBounds(t *testing.T) {
	for _, v := range victims {
		got := int64(most(v.admitted(attack()), minute))
		short := int64(0)
		if v.limit.Algorithm == hybridlimit.AlgTokenBucket {
			short = 1
		}
		if got != v.bound-short {
			t.Errorf("%s: %d in a minute, bound %d", v.name, got, v.bound)
		}
	}
}

// TestTrailIsTheLog checks that the trail decides like the log of the library.
func TestTrailIsTheLog(t *testing.T) {
	l := algo.LogOf(hybridlimit.SlidingLog(rate, time.Minute))
	r := rand.New(rand.NewPCG(1, 1))
	at := slices.Compact(onOff(r, 0, epoch))
	allow, denied := logged(), 0
	var log []algo.Entry
	for _, now := range at {
		var ans algo.Answer
		log, ans, _ = l.Apply(log, algo.Op{Asks: []int64{1}}, now)
		got := allow(now)
		if got != (ans.Granted == 1) {
			t.Fatalf("%d µs in: %t, the log says %+v", now-epoch, got, ans)
		}
		if !got {
			denied++
		}
	}
	if denied == 0 || denied == len(at) {
		t.Fatalf("%d of %d denied", denied, len(at))
	}
}

// TestLocalDecidesTheSame checks that the measured algorithms decide like
// package local, decision by decision.
func TestLocalDecidesTheSame(t *testing.T) {
	for _, v := range victims[:3] {
		synctest.Test(t, func(t *testing.T) {
			l, err := local.New(v.limit, local.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			at := slices.Compact(bursts(rand.New(rand.NewPCG(1, 3)), 0, time.Now().UnixMicro()))
			allow, denied := counted(algo.LimitOf(v.limit)), 0
			if v.limit.Algorithm == hybridlimit.AlgSlidingLog {
				allow = logged()
			}
			for _, now := range at {
				time.Sleep(time.Until(time.UnixMicro(now)))
				res, err := l.Allow(t.Context(), "k")
				if want := allow(now); err != nil || res.Allowed != want {
					t.Fatalf("%s: %+v, %v, want %t", v.name, res, err, want)
				}
				if !res.Allowed {
					denied++
				}
			}
			if denied == 0 || denied == len(at) {
				t.Fatalf("%s: %d of %d denied", v.name, denied, len(at))
			}
		})
	}
}

func TestUpdateWritesBoth(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "windows.md")
	if err := update(dir, "x"); err == nil {
		t.Error("no error without a page")
	}
	for old, want := range map[string]string{
		"a\n" + begin + "b\n" + end + "c\n": "a\n" + begin + "\nx\n" + end + "c\n",
		"a\n" + begin + "b\n":               "",
		"a\n":                               "",
	} {
		if err := os.WriteFile(file, []byte(old), 0o600); err != nil {
			t.Fatal(err)
		}
		err := update(dir, "x")
		got, _ := os.ReadFile(file)
		if want == "" && (err == nil || string(got) != old) || want != "" && (err != nil || string(got) != want) {
			t.Errorf("%q became %q, %v", old, got, err)
		}
	}
	if svg, err := os.ReadFile(filepath.Join(dir, figureFile)); err != nil || len(svg) == 0 {
		t.Error("no figure:", err)
	}
}

func TestFigureIsXML(t *testing.T) {
	d := xml.NewDecoder(strings.NewReader(string(figure())))
	for {
		switch _, err := d.Token(); {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			t.Fatal(err)
		}
	}
}
