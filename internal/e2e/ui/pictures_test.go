package ui

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

var pictures = flag.String("pictures", "", "write the pictures of the documents to this `directory`")

// TestPictures takes the pictures of README and the documents: a fleet that has
// lost its Redis and found it again, its calls in flight, the cards, the classes, the boundary, and a phone.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("-pictures is not set")
	}
	needBrowser(t)
	const width, height = 1360, 1220
	p := start(t)
	g := browse(t, p, width, height)
	g.scheme("light")
	g.wait(`document.querySelector("#figure-n").innerText === "4"`)
	load := value[int](g, `(() => { const e = document.querySelector("#set-load"); e.value = 9; e.dispatchEvent(new Event("change")); return Number(e.value); })()`)
	if load != 9 {
		t.Fatal("the load's slider has no tenth place")
	}
	g.wait(`document.querySelector("#controls").innerText.includes("5 × limit")`)
	time.Sleep(14 * time.Second)
	g.click("#redis-kill")
	time.Sleep(9 * time.Second)
	g.click("#redis-restore")
	g.wait(`document.querySelector("#events").innerText.includes("of 500 units as used")`)
	time.Sleep(16 * time.Second)
	both := func(name string, take func() []byte) {
		for _, scheme := range []string{"light", "dark"} {
			g.scheme(scheme)
			time.Sleep(600 * time.Millisecond)
			save(t, "playground-"+name+"-"+scheme+".png", take())
		}
	}
	view := func() []byte { return run(g, chromedp.CaptureScreenshot()) }
	// The log shows the beginning of the outage, however many lines its end has: the breakers of the processes close one by one.
	g.do(chromedp.Evaluate[chromedp.Void](`{
		const list = document.querySelector("#events"), items = [...list.querySelectorAll("li")]
		const killed = items.find((e) => e.innerText.includes("Redis is killed"))
		list.scrollTop += Math.ceil(killed.getBoundingClientRect().bottom - list.getBoundingClientRect().bottom)
	}`))
	// The figures, the charts and the panels beside them, down to the gap below.
	both("fleet", func() []byte {
		bottom := value[float64](g, `document.querySelector(".stage").getBoundingClientRect().bottom + 8`)
		if bottom > height {
			t.Fatalf("the fleet is %.0f px high, the window %d", bottom, height)
		}
		shot, err := chromedp.Call(g.ctx, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{
			Clip: &cdppage.Viewport{Width: width, Height: bottom, Scale: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		return shot.Data
	})
	for _, want := range []string{"Redis is killed", "fallback share 1/4"} {
		if !value[bool](g, `[...document.querySelectorAll("#events li")].some((e) => e.innerText.includes(%q) && e.getBoundingClientRect().bottom <= e.parentElement.getBoundingClientRect().bottom)`, want) {
			t.Errorf("the picture of the fleet's log does not show %q", want)
		}
	}

	g.do(chromedp.EmulateViewport(width, 5000)) // without scrolling, nothing covers anything
	// Calls in flight near their limit, a killed Redis, and a crash.
	g.slide("call_load", 5) // 1.5 times the limit
	time.Sleep(12 * time.Second)
	g.click("#flights-redis-kill")
	time.Sleep(8 * time.Second)
	g.click("#flights-redis-restore")
	time.Sleep(14 * time.Second)
	g.click(`[data-flights="4"] [aria-label="Crash process 4"]`)
	time.Sleep(5 * time.Second)
	both("flights", func() []byte { return run(g, chromedp.Screenshot(chromedp.CSS("#flights"))) })
	g.click(`[data-flights="4"] [aria-label="Start process 4"]`)

	for _, burst := range []string{"token-bucket", "leaky-bucket", "leaky-queue"} {
		g.click("#card-" + burst + " .burst")
	}
	for _, burst := range []string{"fixed-window", "sliding-window", "sliding-log"} {
		g.click("#card-" + burst + " .burst")
		time.Sleep(300 * time.Millisecond)
	}
	time.Sleep(1200 * time.Millisecond)
	for _, one := range []string{"leaky-queue", "sliding-window", "token-bucket", "sliding-log"} {
		g.click("#card-" + one + " .send")
	}
	both("cards", func() []byte { return run(g, chromedp.Screenshot(chromedp.CSS("#algorithms"))) })

	// A burst of each class, and a critical request in between.
	g.click(`#card-classes [data-class="batch"] .burst`)
	g.click(`#card-classes [data-class="critical"] .send`)
	time.Sleep(300 * time.Millisecond)
	g.click(`#card-classes [data-class="batch"] .burst`)
	both("classes", func() []byte { return run(g, chromedp.Screenshot(chromedp.CSS("#classes"))) })

	g.click("#attack")
	g.wait(`document.querySelector("#boundary-last").innerText.includes("twice the limit")`)
	both("boundary", func() []byte { return run(g, chromedp.Screenshot(chromedp.CSS("#boundary"))) })

	g.scheme("dark")
	g.do(chromedp.EmulateViewport(360, 780, chromedp.EmulateScale(2)),
		chromedp.Evaluate[chromedp.Void](`scrollTo({ top: 0, behavior: "instant" })`))
	time.Sleep(time.Second)
	save(t, "playground-phone.png", view())
}

func save(t *testing.T, name string, png []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(*pictures, name), png, 0o644); err != nil {
		t.Fatal(err)
	}
}
