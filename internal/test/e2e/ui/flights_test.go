package ui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// slide moves a slider of the page to a place.
func (g *page) slide(name string, place int) {
	g.t.Helper()
	g.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(
		`(() => { const e = document.querySelector("#set-%s"); e.value = %d; e.dispatchEvent(new Event("change")); })()`, name, place)))
}

// TestCallInFlight sends a call that takes 3 s, and sees it run and end. Then it takes
// all permits.
func TestCallInFlight(t *testing.T) {
	needBrowser(t)
	g := browse(t, start(t), 1360, 900)
	const row = `[data-flights="2"]`
	g.wait(`document.querySelector("#flights-figures").innerText.includes("of 12")`)
	g.wait(`document.querySelector("#flights-chart .share")`)
	g.wait(`Number(document.querySelector('[data-flights="1"]').dataset.running) > 0`)
	g.slide("call_load", 0)
	g.wait(`document.querySelector("#flights-running").innerText === "0 of 12"`)
	g.wait(`document.querySelector("#flights-uncounted").innerText === "0"`)

	g.click(row + " .send")
	sent := time.Now()
	g.wait(`document.querySelector('%s').dataset.running === "1"`, row)
	if got := g.text("#flights-running"); got != "1 of 12" {
		t.Errorf("the fleet runs %q", got)
	}
	g.wait(`document.querySelector("#flights-last").innerText.startsWith("Process 2: admitted")`)
	if says := g.text("#flights-last"); !strings.HasSuffix(says, "The call takes 3.0 s.") {
		t.Errorf("the answer: %q", says)
	}
	if n := value[int](g, `document.querySelectorAll('%s .permits .shared').length`, row); n != 1 {
		t.Errorf("%d marks of running calls", n)
	}
	g.wait(`document.querySelector("#flights-holders").innerText.startsWith("1 process holds ")`)
	g.wait(`document.querySelector('%s').dataset.running === "0"`, row)
	if took := time.Since(sent); took < 2800*time.Millisecond {
		t.Errorf("the call ended after %v", took)
	}

	g.slide("call_ms", 5) // 30 s
	g.wait(`document.querySelector('%s .send').title.includes("30 s")`, row)
	for range 3 {
		g.click(row + " .burst")
	}
	g.wait(`document.querySelector("#flights-running").innerText === "12 of 12"`)
	g.wait(`document.querySelector("#flights-last").innerText.includes("the fleet uses all 12 permits")`)
	if says := g.text(`[data-bound="permits"]`); !strings.Contains(says, "12 ≤ 12 ✓") {
		t.Errorf("the bound: %q", says)
	}
	// A crash ends the calls, and others can have the permits.
	g.click(row + ` [aria-label="Crash process 2"]`)
	crashed := time.Now()
	g.wait(`document.querySelector("#flights-running").innerText === "0 of 12"`)
	g.wait(`document.querySelector("#events").innerText.includes("Its 12 calls in flight have ended")`)
	for range 3 {
		g.click(`[data-flights="1"] .burst`)
		g.wait(`document.querySelector("#flights-waiting").innerText !== "0" || Number(document.querySelector('[data-flights="1"]').dataset.running) > 0`)
		g.wait(`document.querySelector("#flights-waiting").innerText === "0"`) // all calls are answered
	}
	g.wait(`Number(document.querySelector('[data-flights="1"]').dataset.running) > 0`)
	t.Logf("permits of the crashed process run other calls after %v at most", time.Since(crashed))
	g.click(row + ` [aria-label="Start process 2"]`)
	g.wait(`document.querySelector('%s .pill').innerText === "running"`, row)
	if says := g.text(`[data-bound="permits"]`); strings.Contains(says, "✗") {
		t.Errorf("the bound: %q", says)
	}
}

// TestCallsWithoutRedis kills Redis under calls in flight, and brings it back.
func TestCallsWithoutRedis(t *testing.T) {
	needBrowser(t)
	g := browse(t, start(t), 1360, 900)
	g.slide("call_load", 6) // twice the limit
	g.wait(`document.querySelector("#flights-running").innerText === "12 of 12"`)
	g.click("#flights-redis-kill")
	g.wait(`document.querySelector("#flights-redis-state").innerText === "dead"`)
	g.wait(`document.querySelector("#redis-state").innerText === "dead"`)
	g.wait(`document.querySelector("#flights-booked").innerText === "–"`)
	g.wait(`Number(document.querySelector("#flights-running").dataset.alone) > 0`)
	g.wait(`document.querySelectorAll("#flights-processes .permits .alone").length > 0`)
	g.wait(`document.querySelector("#flights-uncounted").className === "warn"`)
	g.wait(`document.querySelector('[data-flights="1"]').innerText.includes("not a member")`)
	g.wait(`document.querySelector("#flights-chart .band.dead")`)
	g.click("#flights-redis-restore")
	g.wait(`document.querySelector("#flights-redis-state").innerText === "up"`)
	g.wait(`document.querySelector("#flights-uncounted").innerText === "0"`)
	g.wait(`document.querySelector("#flights-running").innerText === "12 of 12"`)
	if says := g.text(`[data-bound="permits"]`); !strings.Contains(says, "12 ≤ 12 ✓") || !strings.Contains(says, "of the fallback") {
		t.Errorf("the bound: %q", says)
	}
	decided := value[map[string]string](g, `({ ...document.querySelector("#flights-decided").dataset })`)
	if decided["fallback"] == "0" || decided["denied"] == "0" || !g.hidden("#flights-errors") {
		t.Errorf("decided: %v", decided)
	}
}

func (g *page) hidden(selector string) bool {
	g.t.Helper()
	return value[bool](g, "document.querySelector(%q).hidden", selector)
}
