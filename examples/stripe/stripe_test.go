package main

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// lasts is the time of a phase in the tests of virtual time: that of the program.
const lasts = 4 * time.Second

// rowsOf returns the rows of a phase by the names of its sources, with the limiters
// and without.
func rowsOf(results [][][]tally, i int) (with, without map[string]tally) {
	by := []map[string]tally{{}, {}}
	for j, rows := range results[i] {
		for k, row := range rows {
			by[j][phases[i].sources[k].name] = row
		}
	}
	return by[0], by[1]
}

// Each limiter does its work, on virtual time: the figures do not depend on the
// machine.
func TestEachLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results, alone, err := play(t.Context(), redistest.NewBubble(t).Client(nil), classOf, lasts)
		if err != nil || alone > 0 {
			t.Fatal(alone, err)
		}
		expect := func(ok bool, phase string, rows map[string]tally, what string) {
			t.Helper()
			if !ok {
				t.Errorf("%s: not %s: %+v", phase, what, rows)
			}
		}

		with, without := rowsOf(results, 0)
		greedy := with["listings, greedy user"]
		expect(greedy.served >= 55 && greedy.served <= 65 && greedy.shed == 0, "(a)", with, "about 20 + 4 s × 10/s of the greedy user")
		expect(with["payments"].served == 40 && with["listings"].served == 400, "(a)", with, "all others served")
		expect(without["payments"].served <= 20 && without["listings"].served <= 200, "(a)", without, "harmed")

		with, without = rowsOf(results, 1)
		paid := with["payments"].served + with["payments at once"].served
		expect(paid >= 99, "(b)", with, "99 % of the payments served")
		expect(paid+with["listings, flood"].served >= 600, "(b)", with, "the whole rate in use")
		expect(with["listings, flood"].denied >= 3000, "(b)", with, "listings denied")
		expect(without["payments"].served+without["payments at once"].served <= 50, "(b)", without, "harmed")

		with, without = rowsOf(results, 2)
		expect(with["payments"].served == 40 && with["listings"].served == 400, "(c)", with, "all others served")
		reports := with["reports"]
		expect(reports.served >= 72 && reports.served <= 120 && reports.denied == reports.sent-reports.served, "(c)", with, "about 8 users × 3 × 4 s / 1.3 s")
		expect(without["payments"].served <= 30, "(c)", without, "harmed")

		with, without = rowsOf(results, 3)
		expect(with["payments"].served == 40, "(d)", with, "all payments served")
		expect(with["listings"].shed >= 100 && with["listings"].denied == 0 && with["listings"].served > 0, "(d)", with, "listings shed")
		expect(without["payments"].served <= 20, "(d)", without, "harmed")
	})
}

// If all requests are of one class, payments are denied and shed as listings are. So
// the test above can fail.
func TestOneClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results, alone, err := play(t.Context(), redistest.NewBubble(t).Client(nil), func(string) string { return rest }, lasts/2)
		if err != nil || alone > 0 {
			t.Fatal(alone, err)
		}
		with, _ := rowsOf(results, 1)
		if paid := with["payments"].served + with["payments at once"].served; paid >= 50 {
			t.Errorf("%d of 50 payments served: %+v", paid, with)
		}
		if with, _ = rowsOf(results, 3); with["payments"].shed == 0 {
			t.Errorf("no payment shed: %+v", with)
		}
	})
}

// The README shows the output of the program. Only its figures depend on the run.
func TestREADME(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(page), "go run .\n")
	shown, _, _ = strings.Cut(shown, "```")
	var out strings.Builder
	var results [][][]tally
	for _, p := range phases {
		results = append(results, [][]tally{make([]tally, len(p.sources)), make([]tally, len(p.sources))})
	}
	table(&out, results)
	form := func(text string) string {
		text = regexp.MustCompile(`(?m) +\d+ +\d+ +\d+ +\d+ +\d+$`).ReplaceAllString(text, " figures")
		return strings.TrimSpace(text)
	}
	if got := form(out.String()); got != form(shown) {
		t.Errorf("the program prints\n%s\nthe README has\n%s", got, form(shown))
	}
}

// A request without a user is refused, and no header changes the class.
func TestWithoutAUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, err := hybrid.NewHub(redistest.NewBubble(t).Client(nil), hybrid.HubConfig{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer hub.Close()
		shared, err := newLimits(hub)
		if err != nil {
			t.Fatal(err)
		}
		h, err := protect(shared, nil, classOf, newService(newDependency()))
		if err != nil {
			t.Fatal(err)
		}
		a := answer{header: http.Header{}, status: http.StatusOK}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/listings", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if h.ServeHTTP(&a, r); a.status != http.StatusUnauthorized {
			t.Errorf("%d", a.status)
		}
	})
}
