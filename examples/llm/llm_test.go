package main

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
	"github.com/hybridlimit/hybridlimit/spend"
)

// TestStart runs the whole program with its stand-ins, in real time.
func TestStart(t *testing.T) {
	var out strings.Builder
	if err := start(t.Context(), &out); err != nil {
		t.Fatalf("%v; it printed:\n%s", err, out.String())
	}
	if n := strings.Count(out.String(), "the fleet used"); n != windows {
		t.Errorf("%d windows, want %d:\n%s", n, windows, out.String())
	}
}

// TestPlayOnVirtualTime runs the fleet in virtual time. It leaves the stranger his part, uses most of the rest, and is
// seldom refused. The estimates of the calls that run are a tenth of such a short window.
func TestPlayOnVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		counted, err := play(t.Context(), &out, redistest.NewBubble(t).Client(nil))
		if err != nil {
			t.Fatalf("%v; it printed:\n%s", err, out.String())
		}
		t.Log(out.String())
		for i, w := range counted {
			if free := limit - w.stranger; w.fleet < free*80/100 || w.refused*100 > w.served || w.stranger < limit*stranger*9/10 {
				t.Errorf("window %d: %+v", i, w)
			}
		}
	})
}

// TestReading reads requests and responses, also those that say nothing.
func TestReading(t *testing.T) {
	for body, want := range map[string]int64{
		`{"usage":{"total_tokens":70}}`:                                    70,
		"data: {\"text\":\"a\"}\n\ndata: {\"usage\":{\"total_tokens\":9}}": 9,
		`{"text":"no"}`: -1, `{"usage":`: -1, "": -1,
	} {
		costs, err := spend.NewEstimator(spend.EstimatorConfig{})
		if err != nil {
			t.Fatal(err)
		}
		r, _ := http.NewRequest(http.MethodPost, "https://llm.example.com", bytes.NewReader([]byte(`{"model":"m","max_tokens":500}`)))
		if got := estimate(costs, r); got != 500 {
			t.Errorf("the first estimate is %d, want what the request permits", got)
		}
		if got := used(costs, &http.Response{Request: r}, []byte(body)); got != want {
			t.Errorf("%q: %d tokens, want %d", body, got, want)
		}
	}
	costs, _ := spend.NewEstimator(spend.EstimatorConfig{})
	r, _ := http.NewRequest(http.MethodPost, "https://llm.example.com", strings.NewReader("nonsense"))
	if got := estimate(costs, r); got != 1 {
		t.Errorf("an unreadable request costs %d", got)
	}
}
