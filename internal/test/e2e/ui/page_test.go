package ui

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
)

// needBrowser returns the path of a Chromium. Without one the test is skipped
// with a loud message, or fails if CI is set.
func needBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("no chromium in PATH, and CI is set: scripts/install-chromium.sh installs one")
	}
	t.Skip("SKIPPED: NO CHROMIUM IN PATH: NOBODY LOOKS AT THE PLAYGROUND'S PAGE. Run scripts/install-chromium.sh")
	return ""
}

// page is a tab with the playground in it.
type page struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	console  []string // errors and warnings on the console
	expected []string // parts of messages that the test provokes
}

// patience is a time-out for steps that take up to three seconds on an idle
// machine.
const patience = 40 * time.Second

// browse opens the playground in its own browser, which ends with the test.
func browse(t *testing.T, p *playground, width, height int64) *page {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(needBrowser(t)), chromedp.NoSandbox) // the sandbox does not work for root, and the page is ours
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	return (&page{t: t, ctx: ctx}).open(p, width, height)
}

// tab opens the playground in another tab of the same browser.
func (g *page) tab(p *playground, width, height int64) *page {
	g.t.Helper()
	ctx, cancel := chromedp.NewContext(g.ctx)
	g.t.Cleanup(cancel)
	return (&page{t: g.t, ctx: ctx}).open(p, width, height)
}

func (g *page) open(p *playground, width, height int64) *page {
	t, ctx := g.t, g.ctx
	t.Helper()
	// The first call starts the browser, which ends with this context.
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, height)); err != nil {
		t.Fatal(err)
	}
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.IsException() || m.Type == "error" || m.Type == "warning" || m.Type == "assert" {
				g.mu.Lock()
				g.console = append(g.console, m.String())
				g.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, line := range g.console {
			known := false
			for _, part := range g.expected {
				known = known || strings.Contains(line, part)
			}
			if !known {
				t.Errorf("the page's console: %s", line)
			}
		}
	})
	g.do(chromedp.Navigate(p.url))
	g.wait(`document.documentElement.dataset.ready === "yes"`)
	return g
}

// do runs steps without results. run runs a step with a result.
func (g *page) do(steps ...chromedp.Action[chromedp.Void]) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		g.t.Fatal(err)
	}
}

func run[T any](g *page, a chromedp.Action[T]) T {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		g.t.Fatal(err)
	}
	return v
}

// value returns the value of an expression on the page.
func value[T any](g *page, format string, args ...any) T {
	g.t.Helper()
	return run(g, chromedp.Evaluate[T](fmt.Sprintf(format, args...)))
}

// wait waits until an expression is true.
func (g *page) wait(format string, args ...any) {
	g.t.Helper()
	expression := fmt.Sprintf(format, args...)
	deadline := time.Now().Add(patience)
	for !run(g, chromedp.Evaluate[bool]("Boolean("+expression+")")) {
		if time.Now().After(deadline) {
			g.t.Fatalf("after %v it is still false: %s\nThe log: %s", patience, expression, value[string](g, `document.querySelector("#events").innerText`))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// click clicks a visible element with the mouse. The page scrolls smoothly to the section of a link, and a click at that
// moment would miss the element: so the scrolling is ended first.
func (g *page) click(selector string) {
	g.t.Helper()
	g.wait(`(document.querySelector(%q)?.scrollIntoView({ behavior: "instant", block: "center" }), true)`, selector)
	g.do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

func (g *page) text(selector string) string {
	g.t.Helper()
	return value[string](g, "document.querySelector(%q).innerText", selector)
}

func (g *page) scheme(name string) {
	g.t.Helper()
	_, err := chromedp.Call(g.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
	if err != nil {
		g.t.Fatal(err)
	}
}

// worked returns the busy time of the page's main thread.
func (g *page) worked() time.Duration {
	g.t.Helper()
	if _, err := chromedp.Call(g.ctx, performance.Enable, performance.EnableParams{}); err != nil {
		g.t.Fatal(err)
	}
	all, err := chromedp.Call(g.ctx, performance.GetMetrics, cdp.Empty{})
	if err != nil {
		g.t.Fatal(err)
	}
	for _, m := range all.Metrics {
		if m.Name == "TaskDuration" {
			return time.Duration(m.Value * float64(time.Second))
		}
	}
	g.t.Fatal("the browser has no metric TaskDuration")
	return 0
}

// hide makes the page believe that it is hidden, or visible again.
func (g *page) hide(hidden bool) {
	g.t.Helper()
	g.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(() => {
		Object.defineProperty(document, "hidden", { configurable: true, get: () => %t });
		document.dispatchEvent(new Event("visibilitychange"));
	})()`, hidden)))
}

// expect permits console messages that contain part.
func (g *page) expect(part string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expected = append(g.expected, part)
}
