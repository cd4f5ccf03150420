package ui

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// TestFirstScreenOfAPhone checks that the page of a phone is short at the start, that its
// first screen has the one primary button and the chart, and that sections unfold.
func TestFirstScreenOfAPhone(t *testing.T) {
	needBrowser(t)
	g := browse(t, start(t), phoneWidth, phoneHeight)
	g.wait(`document.querySelector("#chart .total")`)
	if high := value[int](g, `document.documentElement.scrollHeight`); high > 4000 || high < 2*phoneHeight {
		t.Errorf("the page is %d px high, want at most 4000", high)
	} else {
		t.Logf("the page is %d px high", high)
	}
	if says := value[[]string](g, `[...document.querySelectorAll(".primary")].filter((e) => e.checkVisibility()).map((e) => e.innerText)`); len(says) != 1 || says[0] != "Kill Redis for 10 seconds" {
		t.Errorf("the primary buttons are %q", says)
	}
	if at := value[float64](g, `document.querySelector("#chart").getBoundingClientRect().bottom`); at > phoneHeight {
		t.Errorf("the chart ends at %.0f px, below the first screen", at)
	}
	for _, hidden := range []string{"#processes", "#controls", "#flights-chart", "#cards", "#class-cards", "#attack", "#advanced"} {
		if value[bool](g, `document.querySelector(%q).checkVisibility({ contentVisibilityAuto: true })`, hidden) {
			t.Errorf("%s is unfolded", hidden)
		}
	}
	g.unfold("algorithms")
	g.click("#card-token-bucket .send")
	g.wait(`document.querySelector("#card-token-bucket").dataset.sent === "1"`)
	g.click("#algorithms summary h2")
	g.wait(`!document.querySelector("#cards").checkVisibility({ contentVisibilityAuto: true })`)
	g.unfold("algorithms") // by the same link again
	g.unfold("flights")
	g.wait(`document.querySelector("#flights-chart .limit")`) // drawn after it has a size

	// A larger window shows all.
	g.do(chromedp.EmulateViewport(1360, 900))
	g.wait(`[...document.querySelectorAll("details.fold")].every((d) => d.open)`)
}

// unfold follows the link to a section.
func (g *page) unfold(section string) {
	g.t.Helper()
	g.click(`nav a[href="#` + section + `"]`)
	g.wait(`document.querySelector("#%s > details").open`, section)
}

// TestOutageOfTenSeconds presses the one button of the page, and reads what it tells.
func TestOutageOfTenSeconds(t *testing.T) {
	needBrowser(t)
	g := browse(t, start(t), 1360, 1280)
	story := func(part string) {
		t.Helper()
		g.wait(`document.querySelector("#story").innerText.includes(%q)`, part)
	}
	g.wait(`document.querySelector("#figure-n").innerText === "4"`)
	story("See whether the blue area stays at the dashed line.")
	// The burst of a full bucket.
	g.wait(`[...document.querySelectorAll("#chart .peak")].some((e) => e.firstChild.data === "burst of 500")`)
	if text := g.text("#naive-about"); value[float64](g, `document.querySelector("#naive-about").getBoundingClientRect().top - document.querySelector("#chart").getBoundingClientRect().bottom`) > 20 ||
		text == "" {
		t.Errorf("count and push is not explained below its chart: %q", text)
	}
	// K, T, C, the overshoot and the mode are behind Advanced.
	for _, name := range []string{"#set-k", "#set-t_ms", "#set-overshoot", "#set-mode-auto", "#figure-credit", "[data-process] .advanced"} {
		if value[bool](g, `document.querySelector(%q).checkVisibility({ contentVisibilityAuto: true })`, name) {
			t.Errorf("%s can be seen at the start", name)
		}
	}
	g.click("#advanced summary")
	g.wait(`document.querySelector("#set-k").checkVisibility({ contentVisibilityAuto: true })`)
	g.wait(`document.querySelector("[data-process] .advanced").checkVisibility()`)

	g.click("#outage")
	g.wait(`document.querySelector("#redis-state").innerText === "dead"`)
	g.wait(`/^Redis comes back in \d+ s$/.test(document.querySelector("#outage").innerText)`)
	g.click("#outage") // does nothing now
	story("Each process now decides alone, with its share: 1/4 of the limit.")
	g.wait(`document.querySelector("#figure-breaker").innerText === "4 of 4 open"`)
	g.wait(`document.querySelector("#redis-state").innerText === "up"`)
	g.wait(`document.querySelector("#outage").innerText === "Kill Redis for 10 seconds"`)
	story("In the last outage the fleet admitted at most ")
	story(" units more than rate × time, and the promise is 500. Count and push: ")
	if n := value[int](g, `[...document.querySelectorAll("#events li")].filter((e) => e.innerText.includes("Redis is killed for 10 s")).length`); n != 1 {
		t.Errorf("the log has %d outages of 10 s", n)
	}
	g.click("#redis-hang")
	story("decides alone")
	g.click("#redis-restore")
	story("In the last outage")
	g.click(`label[for="set-naive"]`)
	g.wait(`document.querySelector("#naive-about").hidden`)
	g.wait(`!document.querySelector("#story").innerText.includes("Count and push")`)
}
