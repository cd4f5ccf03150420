package ui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestCards checks for each card one request, a burst that is too large, the
// answer with its fields, a change of the limit, and a reset.
func TestCards(t *testing.T) {
	needBrowser(t)
	p := start(t)
	g := browse(t, p, 1360, 900)
	for _, c := range []struct {
		id       string
		capacity int
		policy   string
		denied   string // part of the text
	}{
		{"token-bucket", 10, `"token-bucket";q=10;w=5`, "the bucket is empty"},
		{"leaky-bucket", 10, `"leaky-bucket";q=10;w=5`, "would run over"},
		{"leaky-queue", 8, `"leaky-queue";q=8;w=4`, "the queue of 8 is full"},
		{"fixed-window", 10, `"fixed-window";q=10;w=5`, "of this window are used"},
		{"sliding-window", 10, `"sliding-window";q=10;w=5`, ""},
		{"sliding-log", 10, `"sliding-log";q=10;w=5`, "are in the log"},
	} {
		card := "#card-" + c.id
		data := func(name string) int {
			return value[int](g, "Number(document.querySelector(%q).dataset[%q])", card, name)
		}
		g.click(card + " .send")
		g.wait(`document.querySelector(%q).dataset.sent === "1"`, card)
		answer := g.text(card + " .answer")
		for _, want := range []string{"✓ 200 OK", "RateLimit-Policy: " + c.policy, `RateLimit: "` + c.id + `";r=` + strconv.Itoa(c.capacity-1)} {
			if !strings.Contains(answer, want) {
				t.Errorf("%s: the answer lacks %q:\n%s", c.id, want, answer)
			}
		}
		if data("passed") != 1 || data("remaining") != c.capacity-1 {
			t.Errorf("%s: %d admitted, %d remain", c.id, data("passed"), data("remaining"))
		}
		// After three bursts the last request is denied, even with the refill. If a
		// window ends right before the last burst, it has all of the next window,
		// and one more burst is denied.
		for n := range 5 {
			g.click(card + " .burst")
			g.wait(`document.querySelector(%q).dataset.sent === "%d"`, card, 11+10*n)
			if n >= 2 && strings.Contains(g.text(card+" .answer"), "✗ 429") {
				break
			}
		}
		if answer := g.text(card + " .answer"); !strings.Contains(answer, "✗ 429 Too Many Requests") ||
			!strings.Contains(answer, "Retry-After: ") || !strings.Contains(answer, "quota-exceeded") {
			t.Errorf("%s: the answer to a denied request:\n%s", c.id, answer)
		}
		if last := g.text(card + " .last"); !strings.Contains(last, "The last one: Denied: ") || !strings.Contains(last, c.denied) {
			t.Errorf("%s: the card says %q", c.id, last)
		}
		if n := data("passed"); n < c.capacity || n > 2*c.capacity+10 {
			t.Errorf("%s: %d of %d admitted", c.id, n, data("sent"))
		}
		if n := value[int](g, `document.querySelectorAll("%s .drawing > *").length`, card); n < 5 {
			t.Errorf("%s: %d shapes are drawn", c.id, n)
		}
		g.click(card + " .reset")
		g.wait(`document.querySelector(%q).dataset.sent === "0"`, card)
		if data("remaining") != c.capacity {
			t.Errorf("%s: %d remain after a reset", c.id, data("remaining"))
		}
	}
	g.click("#card-leaky-bucket summary")
	g.do(chromedp.SetValue(chromedp.CSS("#card-leaky-bucket form input"), "7"))
	g.click("#card-leaky-bucket form button")
	g.wait(`document.querySelector("#card-leaky-bucket .last").innerText.includes("The limit is 7 per 1s")`)
	// An empty field is not sent. The server explains its refusal in words.
	g.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("#card-leaky-bucket form input").value = ""`))
	g.click("#card-leaky-bucket form button")
	g.wait(`document.querySelector("#problem").innerText === "Units: enter a number"`)
	g.expect("400 (Bad Request)") // the browser's own message
	g.do(chromedp.SetValue(chromedp.CSS("#card-leaky-bucket form input"), "2.7"))
	g.click("#card-leaky-bucket form button")
	g.wait(`document.querySelector("#problem").innerText.includes("rate (2.7) must be a whole number")`)
	g.do(chromedp.SetValue(chromedp.CSS("#card-leaky-bucket form input"), "700"))
	g.click("#card-leaky-bucket form button")
	g.wait(`document.querySelector("#problem").innerText.includes("rate (700) must be 1 to 100")`)
	g.click("#card-token-bucket .send")
	g.wait(`document.querySelector("#card-token-bucket").dataset.sent === "1"`)
	g.wait(`document.querySelector("#problem").hidden`)
	g.click("#reset-all")
	g.wait(`[...document.querySelectorAll(".card")].every((c) => c.dataset.sent === "0")`)
}

// TestClasses checks that batch requests are denied at the floor, and that
// critical ones find the tokens below it. No step depends on the time between
// clicks: a burst of ten takes at once all tokens that its class may take, and a
// refill only adds tokens.
func TestClasses(t *testing.T) {
	needBrowser(t)
	g := browse(t, start(t), 1360, 900)
	const card = "#card-classes"
	sent := map[string]int{}
	passed := map[string]int{}
	send := func(class, button string, n int) {
		t.Helper()
		row := fmt.Sprintf(`%s [data-class="%s"]`, card, class)
		g.click(row + " " + button)
		sent[class] += n
		g.wait(`document.querySelector('%s').dataset.sent === "%d"`, row, sent[class])
		passed[class] = value[int](g, `Number(document.querySelector('%s').dataset.passed)`, row)
		if says, want := g.text(row+" .count"), fmt.Sprintf("%d of %d admitted", passed[class], sent[class]); says != want {
			t.Errorf("%s: the card says %q, want %q", class, says, want)
		}
	}
	answer := func(parts ...string) {
		t.Helper()
		all := g.text(card+" .answer") + "\n" + g.text(card+" .last")
		for _, want := range parts {
			if !strings.Contains(all, want) {
				t.Errorf("the answer lacks %q:\n%s", want, all)
			}
		}
	}
	// A full bucket has ten tokens. Batch requests get the eight above the floor.
	send("batch", ".burst", 10)
	answer("✗ 429 Too Many Requests", `RateLimit-Policy: "classes";q=8;w=16`, "Retry-After: ", "8 of 10 admitted", "Denied: batch leaves the last 2 tokens to critical requests")
	if passed["batch"] != 8 {
		t.Errorf("%d of 10 batch requests are admitted, want 8", passed["batch"])
	}
	g.wait(`[...document.querySelectorAll("%s .drawing text")].some((e) => e.textContent === "floor of batch: 2")`, card)
	if says := value[string](g, `document.querySelector("%s .drawing").getAttribute("aria-label")`, card); !strings.Contains(says, "batch with a floor of 2, 8 of 10 admitted; critical, 0 of 0 admitted") {
		t.Errorf("a screen reader says %q", says)
	}
	// The two tokens of the floor are there for critical requests, whatever batch does.
	send("critical", ".send", 1)
	answer("✓ 200 OK", `RateLimit-Policy: "classes";q=10;w=20`, "Admitted: critical took a token")
	send("batch", ".burst", 10)
	answer("✗ 429", "Denied: batch leaves the last 2 tokens")
	send("critical", ".send", 1)
	answer("✓ 200 OK")
	// Critical requests alone get all ten.
	g.click(card + " .reset")
	g.wait(`document.querySelector("%s").dataset.sent === "0"`, card)
	sent = map[string]int{}
	send("critical", ".burst", 10)
	answer("✓ 200 OK", "10 of 10 admitted")
	if commands := value[string](g, `document.querySelector("%s details").textContent`, card); !strings.Contains(commands, "/try/classes/batch") || !strings.Contains(commands, "/try/classes/critical") {
		t.Errorf("the card has no command of each class: %s", commands)
	}
}

// TestDrawingsStayInside checks that a drawing stays in its frame for any limit,
// also after a larger limit.
func TestDrawingsStayInside(t *testing.T) {
	needBrowser(t)
	g := browse(t, start(t), 1360, 900)
	order := func(method, path, body string) {
		t.Helper()
		ask := fmt.Sprintf(`fetch("api/cards/%s", { method: %q, body: %q }).then((r) => r.ok)`, path, method, body)
		if !run(g, chromedp.Evaluate[bool](ask, chromedp.EvalAwaitPromise)) {
			t.Fatalf("%s %s %s was refused", method, path, body)
		}
	}
	inside := func(card, shape string, least int) {
		t.Helper()
		g.wait(`document.querySelectorAll("#card-%s .drawing %s").length >= %d`, card, shape, least)
		for _, out := range value[[]string](g, `[...document.querySelectorAll("#card-%s .drawing > *")].filter((e) => {
			const b = e.getBBox();
			const frame = e.ownerSVGElement.viewBox.baseVal;
			return b.x < 0 || b.y < 0 || b.x + b.width > frame.width || b.y + b.height > frame.height;
		}).map((e) => e.outerHTML.slice(0, 100))`, card) {
			t.Errorf("%s: outside: %s", card, out)
		}
	}
	order("PUT", "sliding-log/limit", `{"rate":100,"period_ms":60000,"burst":0}`)
	order("POST", "sliding-log/send", `{"n":100}`)
	inside("sliding-log", ".bar", 100)
	order("PUT", "leaky-queue/limit", `{"rate":1,"period_ms":60000,"burst":40}`)
	order("POST", "leaky-queue/send", `{"n":40}`)
	order("PUT", "leaky-queue/limit", `{"rate":1,"period_ms":60000,"burst":5}`)
	inside("leaky-queue", ".item", 40)
	for _, card := range []string{"fixed-window", "sliding-window"} {
		order("POST", card+"/send", `{"n":10}`)
		inside(card, ".bar", 2)
	}
	// The mark of a request leaves the line after ten seconds, so each look sends
	// some.
	const marks = `(fetch("api/cards/classes/send", { method: "POST", body: '{"n":10,"class":"%[1]s"}' }),
		[...document.querySelectorAll("#card-classes .drawing .no")].some((e) => Math.abs(e.getBBox().y + e.getBBox().height / 2 - %[2]d) < 1))`
	for _, burst := range []int{100, 11, 10, 2, 1} {
		order("PUT", "classes/limit", fmt.Sprintf(`{"rate":100,"period_ms":60000,"burst":%d}`, burst))
		order("POST", "classes/reset", "")
		g.wait(`[...document.querySelectorAll("#card-classes .drawing text")].some((e) => e.textContent.endsWith("of %d tokens"))`, burst)
		g.wait(marks, "batch", 160)
		g.wait(marks, "critical", 182)
		floor := 1
		if burst == 1 {
			floor = 0
		}
		inside("classes", ".floor", floor)
		for _, both := range value[[]string](g, `(() => {
			const all = [...document.querySelectorAll("#card-classes .drawing text")].map((e) => ({ of: e.textContent, at: e.getBBox() })).map(({ of, at }) => ({ of, x: at.x, y: at.y, width: at.width, height: at.height }));
			return all.flatMap((a, i) => all.slice(i + 1).filter((b) =>
				a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height - 1 && b.y < a.y + a.height - 1).map((b) => a.of + " and " + b.of));
		})()`) {
			t.Errorf("with a burst of %d, texts overlap: %s", burst, both)
		}
	}
}

// TestFullBucketOfClasses checks that the number of tokens in a full bucket, which is
// the longest, stays clear of the text beside it, and that both stay in the frame.
// Before, four digits covered the start of the text.
func TestFullBucketOfClasses(t *testing.T) {
	needBrowser(t)
	g := browse(t, start(t), 1360, 900)
	const drawn = `import("/js/draw-classes.js").then(({ reserve }) => {
		const frame = document.querySelector("#card-classes .drawing").cloneNode();
		document.querySelector("#card-classes .drawing").after(frame);
		const wrong = [];
		for (const burst of [1, 10, 100]) {
			frame.replaceChildren(...reserve({ burst, used: 0, now: 0, rate: 100, period_ms: 60000, classes: [] }, 0).shapes);
			const [level, of] = frame.querySelectorAll("tspan");
			const apart = of.getStartPositionOfChar(0).x - level.getEndPositionOfChar(level.getNumberOfChars() - 1).x;
			const end = of.getEndPositionOfChar(of.getNumberOfChars() - 1).x;
			if (apart < 5 || apart > 15 || end > frame.viewBox.baseVal.width) {
				wrong.push(level.textContent + " " + of.textContent + ": " + apart + " apart, to " + end + " of " + frame.viewBox.baseVal.width);
			}
		}
		frame.remove();
		return wrong.join("\n");
	})`
	if got := run(g, chromedp.Evaluate[string](drawn, chromedp.EvalAwaitPromise)); got != "" {
		t.Error(got)
	}
}

// TestMarksAreInOrder checks that the marks of requests of one millisecond are in
// the order of the requests: the latest is at the right. Before, it was at the left.
func TestMarksAreInOrder(t *testing.T) {
	needBrowser(t)
	g := browse(t, start(t), 1360, 900)
	const marks = `import("/js/draw-dots.js").then(({ dots }) => {
		const dot = (allowed, at) => ({ at, allowed, delay_ms: 0, class: "batch" });
		const line = dots({ classes: [{ name: "batch" }], dots: [dot(true, 0), dot(true, 5), dot(true, 5), dot(false, 5)] }, 5).slice(2);
		const x = (e) => e.getAttribute("cx") ?? e.getAttribute("d").match(/M([\d.]+)/)[1];
		return line.sort((a, b) => x(a) - x(b)).map((e) => e.getAttribute("class")).join(" ");
	})`
	if got := run(g, chromedp.Evaluate[string](marks, chromedp.EvalAwaitPromise)); got != "yes yes yes no" {
		t.Errorf("from left to right the marks are %q", got)
	}
}

// TestBoundary checks the result of an attack. On a busy machine some requests of
// the first burst are after the border, and the page shows less than twice the
// limit. Then the attack is run again. The test of package main has no such
// machine.
func TestBoundary(t *testing.T) {
	needBrowser(t)
	g := browse(t, start(t), 1360, 900)
	// A look at intervals could miss a whole attack.
	g.do(chromedp.Evaluate[chromedp.Void](`(() => {
		window.attacks = 0;
		new MutationObserver((changes) => {
			for (const { oldValue, target } of changes) {
				if (oldValue === "true" && target.getAttribute("aria-disabled") === "false") window.attacks++;
			}
		}).observe(document.querySelector("#attack"), { attributeFilter: ["aria-disabled"], attributeOldValue: true });
	})()`))
	for attempts := 6; ; attempts-- {
		before := value[int](g, "window.attacks")
		g.click("#attack")
		g.wait("window.attacks > %d", before)
		says := g.text("#boundary-last")
		if strings.Contains(says, "twice the limit") {
			break
		}
		if attempts == 1 {
			t.Fatalf("after the last attack the page says %q", says)
		}
		t.Logf("a late attack: %q", says)
	}
	lanes := g.text("#lanes")
	if !strings.Contains(lanes, "20 in one window") || !strings.Contains(lanes, "10 in one window") {
		t.Errorf("the lanes show:\n%s", lanes)
	}
	if !value[bool](g, `document.querySelector("#attack").getAttribute("aria-disabled") === "false"`) {
		t.Error("it cannot be run again")
	}
}

// TestKillAndRecovery checks that the fleet survives the loss of its Redis, and
// then compares the figures of the page with the counts of the limiters.
func TestKillAndRecovery(t *testing.T) {
	needBrowser(t)
	p := start(t)
	g := browse(t, p, 1360, 900)
	total := func(source string) int64 {
		return value[int64](g, `Number(document.querySelector('[data-source="%s"]').dataset.total)`, source)
	}
	log := func(part string) {
		t.Helper()
		g.wait(`document.querySelector("#events").innerText.includes(%q)`, part)
	}
	g.wait(`document.querySelector("#figure-n").innerText === "4"`)
	g.wait(`Number(document.querySelector('[data-source="lease"]').dataset.total) > 500`)
	before := total("fallback")
	g.click("#redis-kill")
	g.wait(`document.querySelector("#redis-state").innerText === "dead"`)
	g.wait(`document.querySelector("#figure-breaker").innerText === "4 of 4 open"`)
	log("are decided locally, by each limiter's fallback; fallback share 1/4")
	g.wait(`Number(document.querySelector('[data-source="fallback"]').dataset.total) > %d`, before+500)
	g.wait(`document.querySelector('[data-bound="alone"]')`)
	g.click("#redis-restore")
	g.wait(`document.querySelector("#figure-breaker").innerText === "closed"`)
	log("Redis is back, with nothing in it")
	log("the shared limit holds for all keys again")
	log("units: the fleet has told Redis what it had lost; it counts")
	leases := total("lease")
	g.wait(`Number(document.querySelector('[data-source="lease"]').dataset.total) > %d`, leases+100)
	for _, bound := range []string{"shared", "alone"} {
		if text := g.text(`[data-bound="` + bound + `"]`); strings.Contains(text, "✗") {
			t.Errorf("%s: %s", bound, text)
		}
	}
	g.wait(`document.querySelector("#chart .total").getAttribute("d").split("L").length > 8`) // in half seconds
	if value[int](g, `document.querySelectorAll("#chart .band.dead").length`) == 0 {
		t.Error("the chart does not show when Redis was dead")
	}

	g.click("#run")
	g.wait(`document.querySelector("#run").innerText === "Start the load"`)
	settled := func() bool {
		lib := p.stats(t)
		for source, both := range lib.Sources {
			if source != "unknown" && total(source) != both[0]+both[1] {
				return false
			}
		}
		return true
	}
	figure := func(name string) int64 {
		return value[int64](g, `Number(document.querySelector("#figure-%s").dataset.total)`, name)
	}
	for deadline := time.Now().Add(patience); !settled(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the page has %s, the library %+v", g.text("#sources"), p.stats(t))
		}
	}
	var all, admitted int64
	for _, source := range []string{"lease", "credit", "redis", "deny_cache", "fallback", "timeout"} {
		all += total(source)
	}
	messages := figure("messages") // heartbeats continue, so the page's count is between two counts of the library
	lib := p.stats(t)
	g.wait(`Number(document.querySelector("#figure-messages").dataset.total) >= %d`, lib.Messages)
	if messages > lib.Messages || messages < lib.Messages-100 {
		t.Errorf("%d messages on the page, then %d in the library", messages, lib.Messages)
	}
	var want int64
	for _, both := range lib.Sources {
		want += both[0] + both[1]
		admitted += both[0]
	}
	if got := figure("admitted"); got != admitted {
		t.Errorf("%d admitted on the page, %d in the library", got, admitted)
	}
	// A heartbeat between two looks may change N and C, so the page has until its next message.
	agree := func() (differs string) {
		for _, l := range p.stats(t).Processes {
			of := value[[]string](g, `(({ n, credit, breaker }) => [n, credit, breaker])(document.querySelector('[data-process="%d"]').dataset)`, l.Number)
			if want := []string{fmt.Sprint(l.N), fmt.Sprint(l.Credit), l.Breaker}; !slices.Equal(of, want) || l.N != 4 {
				differs += fmt.Sprintf("process %d: N, C and breaker are %v on the page, %v in the library\n", l.Number, of, want)
			}
		}
		return differs
	}
	for deadline := time.Now().Add(patience); agree() != ""; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(agree())
		}
	}
	if all != want || all < 1000 || lib.Messages == 0 || lib.Messages > all/5 {
		t.Errorf("%d decisions on the page, %d in the library, with %d messages", all, want, lib.Messages)
	}

	// The chart has a gap where there were no calls.
	const span = 3 * time.Second
	time.Sleep(span) // the length of the gap: when the figures are zero, the chart has none yet
	g.click("#run")
	g.wait(`document.querySelector("#chart .total").getAttribute("d").split("M").length === 3`)

	// Without load the program and the page use little CPU: a twentieth of the time. A
	// machine that is slow for the moment is measured by the load: then it is half of
	// the program's time under load, and a third of the page's. Processor time includes
	// the machine's other work, a collection of garbage and what follows the last calls.
	// All of these only add to it, so the least of some spans is compared.
	used := func() (program, page time.Duration) {
		before, _ := p.cpu()
		worked := g.worked()
		time.Sleep(span)
		after, _ := p.cpu()
		return after - before, g.worked() - worked
	}
	if _, ok := p.cpu(); ok {
		program, page := used()
		most := [2]time.Duration{max(span/20, program/2), max(span/20, page/3)}
		g.click("#run")
		g.wait(`document.querySelector("#run").innerText === "Start the load"`)
		least := [2]time.Duration{span, span} // the program's, the page's
		for range 20 {                        // on a busy machine most spans are too long
			program, page := used()
			least = [2]time.Duration{min(least[0], program), min(least[1], page)}
			if least[0] <= most[0] && least[1] <= most[1] {
				break
			}
		}
		for i, what := range []string{"the program", "the page, untouched,"} {
			if least[i] > most[i] {
				t.Errorf("without load %s used %v in %v, want at most %v", what, least[i], span, most[i])
			}
		}
	}
}

// TestFleetButtons checks the buttons for faults and processes by their visible
// effects.
func TestFleetButtons(t *testing.T) {
	long(t)
	needBrowser(t)
	g := browse(t, start(t), 1360, 900)
	g.wait(`document.querySelector("#figure-n").innerText === "4"`)
	state := func(n int, want string) {
		t.Helper()
		g.wait(`document.querySelector('[data-process="%d"] .pill').innerText === %q`, n, want)
	}
	g.click(`[aria-label="Pause process 2"]`)
	state(2, "paused")
	g.click(`[aria-label="Crash process 4"]`)
	state(4, "crashed")
	g.wait(`document.querySelector("#figure-n").innerText === "2"`)
	g.click(`[aria-label="Resume process 2"]`)
	state(2, "running")
	g.click(`[aria-label="Start process 4"]`)
	state(4, "running")
	g.wait(`document.querySelector("#figure-n").innerText === "4"`)
	g.click("#redis-hang")
	g.wait(`document.querySelector("#figure-breaker").innerText === "4 of 4 open"`)
	g.click("#redis-restore")
	g.wait(`document.querySelector("#figure-breaker").innerText === "closed"`)
	g.do(chromedp.SetValue(chromedp.CSS("#redis-slow-by"), "150"))
	g.click("#redis-slow")
	g.wait(`document.querySelector("#redis-state").innerText === "slow by 150 ms"`)
	g.wait(`document.querySelector("#figure-breaker").innerText !== "closed"`)
	g.click("#redis-restore")
	g.wait(`document.querySelector("#figure-breaker").innerText === "closed"`)
	g.click("#redis-wipe")
	g.wait(`document.querySelector("#events").innerText.includes("Redis is wiped")`)
	g.click("#advanced summary")
	g.click(`label:has(#set-mode-strict)`)
	g.wait(`document.querySelector("#events").innerText.includes("mode strict")`)
	g.wait(`document.querySelector("#figure-credit").innerText === "0"`)
	g.click(`label[for="set-naive"]`)
	g.wait(`!document.querySelector('[data-bound="naive"]')`)
	g.click("#recount")
	// A value beyond the chart has a label. Without load the figures are zero.
	g.slide("load", 11)
	g.wait(`/^offered [\d,]+\/s ↑$/.test(document.querySelector("#chart .beyond-offered")?.textContent)`)
	g.slide("rate", 4)
	g.wait(`document.querySelector("#chart .limit-label").textContent === "limit 200/s"`)
	g.wait(`document.querySelector("#chart .limit").getAttribute("d").match(/V([\d.]+)/g).filter((v, i, all) => v !== all[0]).length > 0`)
	g.slide("load", 0)
	g.wait(`document.querySelector("#figure-admitted").innerText === "0/s"`)
	g.wait(`document.querySelector('[data-process="1"] .rate').innerText === "0/s"`)
}
