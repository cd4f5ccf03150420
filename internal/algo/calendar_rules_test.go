package algo

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit"
)

// rulesOff are the rules of calendar.go that a run switches off, by the op or the state that Redis sees.
type rulesOff [5]bool

// apply runs an ask. The window of the op is In the limit.
func (off rulesOff) apply(l Window, s State, n, now int64) (State, Answer) {
	at, begin, end := now, l.Begin(l.Win), l.Begin(l.Win)+l.Period
	switch own := l.mine(now); {
	case off[1] && s.Born == 0 && !own: // the sender's counts all the same
		at = min(max(now, begin), end-1)
	case off[2] && s.Born != 0 && own && l.Win != s.Win: // the sender's window counts, whichever began later
		s = l.shift(s, l.Win)
		s.Period = l.Period
	case off[3] && s.Born != 0 && l.Win == s.Win: // the first end stays
		l.Period = s.Period
	case off[4] && s.Born != 0 && now >= l.end(&s) && !own: // the window that is over goes on
		at = l.end(&s) - 1
	}
	s, ans, _ := l.Apply(s, Op{Asks: []int64{n}}, at)
	return s, ans
}

// calendarRun is a run of three senders that ask for days. Its figures are the worst ones.
type calendarRun struct {
	off              rulesOff
	late             bool // most asks come within two hours of a border
	quiet            bool // all asks come just after a border
	zones            bool // a sender has the zone data of another hour, for ten days
	ends             bool // a sender believes that a day ends an hour early, for a day
	day, in23h, less int64
	asks, again      int
	stuck            int // asks that name the right window and are not decided
}

const ruleRate, ruleDay = 100, int64(86400)

func (c *calendarRun) run(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	l := WindowOf(hybridlimit.CalendarWindow(ruleRate, hybridlimit.Calendar{Unit: hybridlimit.Day}))
	span := func(sender int, at int64) Span { // at in s
		begin, length := at-at%ruleDay, ruleDay
		if c.zones && sender == 2 && at >= 10*ruleDay && at < 20*ruleDay {
			begin = (at+3600)/ruleDay*ruleDay - 3600
		}
		if c.ends && sender == 2 && at >= 5*ruleDay && at < 6*ruleDay && at < begin+ruleDay-3600 {
			length -= 3600
		}
		return Span{begin, length}
	}
	var s State
	days, hours := map[int64]int64{}, map[int64]int64{}
	for t := ruleDay - 3; t < 30*ruleDay; {
		into := t % ruleDay
		if near := into < 3 || into >= ruleDay-3; near {
			t++
		} else {
			t = min(t+1+r.Int64N(20*60), t-into+ruleDay-3)
		}
		if into = t % ruleDay; c.quiet && into > 3 || c.late && into > 7200 && into < ruleDay-7200 && r.IntN(50) > 0 {
			continue
		}
		if t%ruleDay == 0 && !c.zones && r.IntN(3) == 0 {
			s = State{} // expired
		}
		for _, sender := range r.Perm(3) {
			clock := int64(0) // its error
			if r.IntN(3) == 0 {
				clock = r.Int64N(3) - 1
			}
			n, now := 1+r.Int64N(40), t*second+r.Int64N(second)
			var ans Answer
			for try, at := 0, t+clock; try < 2; try, at = try+1, t {
				c.asks++
				if s, ans = c.off.apply(l.In(span(sender, at)), s, n, now); ans.Ends != 0 {
					break
				}
				c.again++
				if try > 0 {
					c.stuck++
				}
			}
			days[t/ruleDay] += ans.Granted
			hours[t/3600] += ans.Granted
		}
	}
	for day := int64(1); day < 30; day++ {
		c.day = max(c.day, days[day])
		c.less = max(c.less, ruleRate-days[day])
	}
	for h := int64(24); h < 700; h++ {
		sum := int64(0)
		for k := range int64(23) {
			sum += hours[h+k]
		}
		c.in23h = max(c.in23h, sum)
	}
}

// broken returns the promises that the run did not keep.
func (c *calendarRun) broken() (promises []string) {
	note := func(is bool, what string) {
		if is {
			promises = append(promises, what)
		}
	}
	equal := !c.zones && !c.ends
	note(equal && c.day > ruleRate, "a day has more than the limit")
	note(equal && c.less > 40, "a day has less than it was asked for") // the last ask may be too large
	note(c.in23h > 2*ruleRate, "23 hours have more than twice the limit")
	note(!c.quiet && c.again*1000 > 4*c.asks || c.stuck > 0, "senders ask again and again")
	return promises
}

// Senders whose clocks are a second off keep the limit in each day. Where zone data differ, 23 hours hold at most twice the
// limit. Each rule that is switched off breaks a promise.
func TestCalendarRules(t *testing.T) {
	for off := range 5 {
		found := false
		for _, world := range []struct{ late, quiet, zones, ends bool }{
			{}, {quiet: true}, {zones: true}, {ends: true}, {late: true, zones: true},
		} {
			c := calendarRun{late: world.late, quiet: world.quiet, zones: world.zones, ends: world.ends}
			c.off[off] = off > 0
			for seed := range uint64(40) {
				c.run(seed)
			}
			broken := c.broken()
			t.Logf("rule %d off, %+v: at most %d a day, %d in 23 h, %d less; %d of %d asks repeated, %d not decided: %v",
				off, world, c.day, c.in23h, c.less, c.again, c.asks, c.stuck, broken)
			found = found || len(broken) > 0
		}
		if found != (off > 0) {
			t.Errorf("with rule %d switched off, a promise is broken: %v", off, found)
		}
	}
}

// A window from the first use begins with an op and ends by itself. After a loss, the earlier of two windows counts.
func TestWindowFromUse(t *testing.T) {
	l := WindowOf(hybridlimit.WindowFromUse(10, time.Hour))
	ask := func(s State, w Window, n, now int64) (State, Answer) {
		s, ans, _ := w.Apply(s, Op{Asks: []int64{n}}, now)
		return s, ans
	}
	const start = 1_763_000_000 * second
	s, ans := ask(State{}, l, 4, start+7)
	if ans.Granted != 4 || ans.Ends != 3600*second-7 || ans.Refill != start/second {
		t.Fatalf("the first use: %+v, %+v", s, ans)
	}
	later := start + 2*3600*int64(second)
	if s, ans = ask(s, l, 10, later); ans.Granted != 10 || s.Win != later/second {
		t.Errorf("the next use begins a window: %+v, %+v", s, ans)
	}
	told := l.In(Span{later / second, 3600})
	fresh, _ := ask(State{}, l, 3, later+60*second) // after a loss
	if fresh, ans = ask(fresh, told, 1, later+61*second); fresh.Win != later/second || ans.Ends != (3600-61)*second {
		t.Errorf("a sender names the window from before the loss: %+v, %+v", fresh, ans)
	}
	if fresh, _ = ask(fresh, l, 1, later+62*second); fresh.Win != later/second {
		t.Errorf("a sender that names none: %+v", fresh)
	}
	empty, _, _ := l.Apply(fresh, Op{Refund: 5, RefundAt: fresh.Win}, later+63*second)
	if empty, _ = ask(empty, l, 1, later+100*second); empty.Win != later/second+100 {
		t.Errorf("without a used unit, the next use begins a window: %+v", empty)
	}
}

// A state lives to the end of the next period, also if that is longer: of a month for up to 78 days.
func TestCalendarTTL(t *testing.T) {
	l := WindowOf(hybridlimit.CalendarWindow(10, hybridlimit.Calendar{Unit: hybridlimit.Month}))
	most := int64(0)
	for at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2029; at = at.AddDate(0, 1, 0) {
		now := at.UnixMicro()
		w := l.At(now)
		s, _, _ := w.Apply(State{}, Op{Asks: []int64{1}}, now)
		ttl := w.TTL(s, now)
		if least := at.AddDate(0, 2, 0).Sub(at).Milliseconds(); ttl < least {
			t.Errorf("%v: %d ms, but the next month ends in %d", at, ttl, least)
		}
		most = max(most, ttl)
	}
	if days := float64(most) / 86_400_000; days > 78 || days < 77 {
		t.Errorf("%v days at most", days)
	}
}
