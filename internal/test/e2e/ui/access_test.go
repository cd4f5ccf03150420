package ui

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestEverybodyCanUseIt checks that the page fits a phone, that its texts are
// readable in dark and light, and that all controls can be reached by keyboard
// and screen reader, show the focus, and have names.
func TestEverybodyCanUseIt(t *testing.T) {
	needBrowser(t)
	p := start(t)
	g := browse(t, p, 360, 740)
	// Shows everything that may be on the page: answers, a problem, a denial, a
	// dead Redis.
	g.do(chromedp.Evaluate[chromedp.Void](`for (const d of document.querySelectorAll("details")) d.open = true`))
	for _, id := range []string{"token-bucket", "leaky-queue"} {
		g.click("#card-" + id + " .burst")
		g.click("#card-" + id + " .burst")
		g.wait(`document.querySelector("#card-%s .answer").innerText.includes("429")`, id)
	}
	g.click(`#card-classes [data-class="batch"] .burst`)
	g.wait(`document.querySelector("#card-classes .answer").innerText.includes("429")`)
	g.click("#redis-kill")
	g.wait(`document.querySelector("#redis-state").innerText === "dead"`)
	g.wait(`document.querySelector("#chart .limit")`)
	for _, width := range []int64{360, 768, 1360} {
		g.do(chromedp.EmulateViewport(width, 800))
		if got := value[int64](g, "document.documentElement.scrollWidth"); got > width {
			t.Errorf("at %d px the page is %d px wide; too wide: %s", width, got, value[string](g, tooWide, width))
		}
	}
	for _, scheme := range []string{"light", "dark"} {
		g.scheme(scheme)
		for _, line := range value[[]string](g, lowContrast) {
			t.Errorf("%s: %s", scheme, line)
		}
		for _, line := range value[[]string](g, faintLines) {
			t.Errorf("%s: %s", scheme, line)
		}
	}

	ctx := g.ctx
	tree, err := chromedp.Call(ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]int{}
	for _, node := range tree.Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		role := strings.Trim(string(node.Role.Value), `"`)
		if !slices.Contains([]string{"button", "slider", "checkbox", "radio", "spinbutton", "combobox", "image", "link", "log", "form", "group"}, role) {
			continue
		}
		if node.Name == nil || strings.Trim(string(node.Name.Value), `" `) == "" {
			if role != "group" { // a details element has no name
				t.Errorf("a %s without a name (node %v)", role, node.BackendDOMNodeID)
			}
			continue
		}
		named[role]++
	}
	for role, least := range map[string]int{"button": 25, "slider": 7, "radio": 4, "checkbox": 1, "image": 10, "log": 1} {
		if named[role] < least {
			t.Errorf("%d elements of role %s have names, want at least %d", named[role], role, least)
		}
	}

	// Tab reaches everything that a mouse can click, and the focus is visible.
	want := value[int](g, `[...document.querySelectorAll("button, summary, input:not([type=radio]), select, a[href]")].filter((e) => e.checkVisibility() && !e.disabled).length`)
	g.do(chromedp.Evaluate[chromedp.Void](`document.activeElement.blur()`))
	reached := 0
	for range 3 * want {
		g.do(chromedp.KeyEvent(kb.Tab))
		at := value[string](g, `(() => {
			const e = document.activeElement;
			if (e === document.body) return "end";
			const s = getComputedStyle(e.matches("[type=radio], .segments *") ? e.closest("label") : e);
			return s.outlineStyle === "none" || parseFloat(s.outlineWidth) < 2 ? "unseen " + e.outerHTML.slice(0, 80) : e.tagName;
		})()`)
		if at == "end" {
			break
		}
		if strings.HasPrefix(at, "unseen") {
			t.Errorf("the focus is not visible: %s", at)
		}
		reached++
	}
	if reached < want {
		t.Errorf("Tab reached %d of %d", reached, want)
	}
	// Enter works like a click.
	g.do(chromedp.Focus(chromedp.CSS("#redis-restore")), chromedp.KeyEvent(kb.Enter))
	g.wait(`document.querySelector("#redis-state").innerText === "up"`)
	// A pressed button keeps the focus, even if its action changes.
	stays := func(selector string) {
		t.Helper()
		if !value[bool](g, `document.activeElement === document.querySelector(%q)`, selector) {
			t.Errorf("the focus moved from %s to %s", selector, value[string](g, `document.activeElement.outerHTML.slice(0, 80)`))
		}
	}
	stays("#redis-restore")
	for _, b := range []struct{ place, label, state string }{
		{"first", "Resume", "paused"}, {"first", "Pause", "running"}, {"last", "Start", "crashed"}, {"last", "Crash", "running"},
	} {
		button := `[data-process="2"] button:` + b.place + `-child`
		g.do(chromedp.Focus(chromedp.CSS(button)), chromedp.KeyEvent(kb.Enter))
		g.wait(`document.querySelector('[data-process="2"] .pill').innerText === %q`, b.state)
		g.wait(`document.querySelector(%q).innerText === %q`, button, b.label)
		stays(button)
	}
	// Several arrow keys are one change, and nothing else moves the slider
	// meanwhile.
	g.do(chromedp.Focus(chromedp.CSS("#set-processes")))
	for range 3 {
		g.do(chromedp.KeyEvent(kb.ArrowRight))
	}
	if at := value[string](g, `document.querySelector("#set-processes").getAttribute("aria-valuetext")`); at != "7" {
		t.Errorf("after three steps from 4 the slider is at %s", at)
	}
	g.wait(`document.querySelectorAll("#processes li").length === 7`)
	if log := g.text("#events"); !strings.Contains(log, "7 processes instead of 4.") {
		t.Errorf("the log:\n%s", log)
	}
	stays("#set-processes")
	g.click("#attack")
	g.wait(`document.querySelector("#attack").getAttribute("aria-disabled") === "true"`)
	stays("#attack")
}

// TestTabsAndReload checks that two tabs show the same state, and that a reload
// loses nothing.
func TestTabsAndReload(t *testing.T) {
	needBrowser(t)
	p := start(t)
	one := browse(t, p, 1000, 800)
	two := one.tab(p, 1000, 800)
	one.click("#card-sliding-log .burst")
	two.wait(`document.querySelector("#card-sliding-log").dataset.sent === "10"`)
	two.click("#redis-hang")
	one.wait(`document.querySelector("#redis-state").innerText === "hung"`)
	lines := value[int](one, `document.querySelectorAll("#events li").length`)
	one.do(chromedp.Reload())
	one.wait(`document.documentElement.dataset.ready === "yes"`)
	one.wait(`document.querySelector("#card-sliding-log").dataset.sent === "10"`)
	one.wait(`document.querySelector("#redis-state").innerText === "hung"`)
	if got := value[int](one, `document.querySelectorAll("#events li").length`); got < lines {
		t.Errorf("%d lines in the log, %d before the reload", got, lines)
	}
	time.Sleep(time.Second)
	if value[int](one, `document.querySelectorAll("#chart .total").length`) != 1 {
		t.Error("the chart has lost its data")
	}
	two.click("#redis-restore")
	one.wait(`document.querySelector("#redis-state").innerText === "up"`)
}

// tooWide lists the elements that are wider than the page.
const tooWide = `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > %d).map((e) => e.tagName + "." + e.className).slice(0, 5).join(", ")`

// lowContrast lists the texts below WCAG's level AA: a contrast of 4.5, or 3 in
// large type. A canvas converts colours of any notation to sRGB.
const lowContrast = contrast + `
	const out = [];
	for (const e of document.querySelectorAll("body *")) {
		const says = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
		if (!says || !e.checkVisibility() || e.disabled || e.closest("noscript, .skip, option")) continue;
		const style = getComputedStyle(e);
		const ratio = against(e, e instanceof SVGElement ? style.fill : style.color);
		const size = parseFloat(style.fontSize), large = size >= 24 || size >= 18.66 && style.fontWeight >= 700;
		if (ratio < (large ? 3 : 4.5)) out.push(ratio.toFixed(2) + " " + name(e) + " " + e.textContent.trim().slice(0, 30));
	}
	return out;
})()`

// faintLines lists controls, and lines with a meaning, whose contrast to the
// background is below 3.
const faintLines = contrast + `
	const out = [];
	const look = (selector, of, from) => {
		const all = [...document.querySelectorAll(selector)];
		if (all.length === 0) out.push("there is no " + selector);
		for (const e of all) {
			const ratio = against(from(e), getComputedStyle(e)[of]);
			if (ratio < 3) out.push(ratio.toFixed(2) + " " + name(e));
		}
	};
	look(".drawing .place, .drawing .axis, .drawing .vessel, .drawing .floor, .bounds .track, .bounds .mark, #chart .limit, #chart .total", "stroke", (e) => e.parentElement);
	look("button:not(.primary, .on), input[type=number], select, .segments", "borderTopColor", (e) => e.parentElement);
	return out;
})()`

// contrast is the common begin of both functions.
const contrast = `(() => {
	const name = (e) => e.tagName + "." + (e.getAttribute("class") ?? "");
	const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
	const rgb = (...layers) => {
		pen.clearRect(0, 0, 1, 1);
		for (const layer of layers) { pen.fillStyle = layer; pen.fillRect(0, 0, 1, 1); }
		return pen.getImageData(0, 0, 1, 1).data;
	};
	const light = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, w, i) => {
		const v = c[i] / 255;
		return sum + w * (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
	}, 0);
	const against = (e, colour) => {
		const behind = [];
		for (let b = e; b; b = b.parentElement) behind.unshift(getComputedStyle(b).backgroundColor);
		const back = light(rgb(...behind)), front = light(rgb(...behind, colour));
		return (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05);
	};`
