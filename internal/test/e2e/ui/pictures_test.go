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

const (
	pictureWidth, pictureHeight = 1360, 1280
	phoneWidth, phoneHeight     = 360, 780
)

// TestPictures takes the pictures of README and the documents: the fleet when the page is opened and while its Redis is
// dead, on a desktop and a phone, and the other sections.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("-pictures is not set")
	}
	needBrowser(t)
	g := browse(t, startAt(t, "127.0.0.1:0"), pictureWidth, pictureHeight)
	g.wait(`document.querySelector("#figure-n").innerText === "4"`)
	g.wait(`[...document.querySelectorAll("#chart .peak")].some((e) => e.textContent.startsWith("burst of 500"))`)
	g.both("start", g.stage)
	g.phone("start")

	g.click("#outage")
	time.Sleep(4 * time.Second)
	g.both("dead", g.stage)
	g.phone("dead")
	if state := g.text("#redis-state"); state != "dead" {
		t.Errorf("after the pictures of the outage, Redis is %s: they were too slow", state)
	}
	g.wait(`document.querySelector("#redis-state").innerText === "up"`)
	g.wait(`document.querySelector("#story").innerText.startsWith("In the last outage the fleet admitted at most")`)

	g.do(chromedp.EmulateViewport(pictureWidth, 5000)) // without scrolling, nothing covers anything
	g.flights()
	g.cards()
	g.click("#attack")
	g.wait(`document.querySelector("#boundary-last").innerText.includes("twice the limit")`)
	g.both("boundary", g.section("#boundary"))
}

// flights shows calls near their limit, a killed Redis, and a crash.
func (g *page) flights() {
	g.slide("call_load", 5) // 1.5 times the limit
	time.Sleep(12 * time.Second)
	g.click("#flights-redis-kill")
	time.Sleep(8 * time.Second)
	g.click("#flights-redis-restore")
	time.Sleep(14 * time.Second)
	g.click(`[data-flights="4"] [aria-label="Crash process 4"]`)
	time.Sleep(5 * time.Second)
	g.both("flights", g.section("#flights"))
	g.click(`[data-flights="4"] [aria-label="Start process 4"]`)
}

func (g *page) cards() {
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
	g.both("cards", g.section("#algorithms"))

	// A burst of each class, and a critical request in between.
	g.click(`#card-classes [data-class="batch"] .burst`)
	g.click(`#card-classes [data-class="critical"] .send`)
	time.Sleep(300 * time.Millisecond)
	g.click(`#card-classes [data-class="batch"] .burst`)
	g.both("classes", g.section("#classes"))
}

// both saves a picture in light and in dark.
func (g *page) both(name string, take func() []byte) {
	g.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		g.scheme(scheme)
		time.Sleep(300 * time.Millisecond)
		file := filepath.Join(*pictures, "playground-"+name+"-"+scheme+".png")
		if err := os.WriteFile(file, take(), 0o644); err != nil {
			g.t.Fatal(err)
		}
	}
}

// stage takes the top of the page, down to the end of the charts.
func (g *page) stage() []byte {
	g.t.Helper()
	bottom := value[float64](g, `document.querySelector(".stage").getBoundingClientRect().bottom + 8`)
	if bottom > pictureHeight {
		g.t.Fatalf("the fleet is %.0f px high, the window %d", bottom, pictureHeight)
	}
	shot, err := chromedp.Call(g.ctx, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{
		Clip: &cdppage.Viewport{Width: pictureWidth, Height: bottom, Scale: 1},
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return shot.Data
}

func (g *page) section(selector string) func() []byte {
	return func() []byte { return run(g, chromedp.Screenshot(chromedp.CSS(selector))) }
}

// phone takes what a phone shows first.
func (g *page) phone(name string) {
	g.t.Helper()
	g.do(chromedp.EmulateViewport(phoneWidth, phoneHeight, chromedp.EmulateScale(2)),
		chromedp.Evaluate[chromedp.Void](`scrollTo({ top: 0, behavior: "instant" })`))
	g.both("phone-"+name, func() []byte { return run(g, chromedp.CaptureScreenshot()) })
	g.do(chromedp.EmulateViewport(pictureWidth, pictureHeight))
}
