package hybrid_test

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/algo"
)

// reply is the outcome of one call.
type reply struct {
	at   time.Duration // of the scene
	took time.Duration
	res  hybridlimit.Result
	err  error
}

// allow makes calls, and shows equal answers in a row as one line. With the word sum it
// shows the number of answers of each kind.
func (s *scene) allow(c *command) {
	actors := s.actors(c)
	key, n, times, every := c.text("key", ""), c.int("n", 1), c.int("times", 1), c.duration("every", 0)
	within := c.duration("within", 0)
	sum := len(c.words) > 0 && c.words[0] == "sum"
	if sum {
		c.words = c.words[1:]
	}
	if c.nothing(); key == "" {
		c.bad("which key?")
	}
	replies := s.calls(actors, key, n, times, every)
	var allowed int
	for i, a := range actors {
		name := ""
		if len(actors) > 1 {
			name = a.name + ": "
		}
		for _, r := range replies[i] {
			if r.res.Allowed {
				allowed++
			}
		}
		if sum {
			fmt.Fprintf(&s.out, "%s%s\n", name, totals(replies[i]))
			continue
		}
		for _, run := range runs(replies[i]) {
			fmt.Fprintf(&s.out, "%s%s\n", name, describe(run, within))
		}
	}
	if sum && len(actors) > 1 {
		fmt.Fprintf(&s.out, "together: %d allowed, %d denied\n", allowed, int(times)*len(actors)-allowed)
	}
}

// calls makes one call after the other. With every, each process makes one call in that time,
// whether Redis has answered the last one or not. calls returns the replies by process.
func (s *scene) calls(actors []*actor, key string, n, times int64, every time.Duration) [][]reply {
	replies := make([][]reply, len(actors))
	for i := range actors {
		replies[i] = make([]reply, times)
	}
	var calls sync.WaitGroup
	start := s.now()
	for k := range times {
		for i, a := range actors {
			if every == 0 {
				synctest.Wait()
				replies[i][k] = s.call(a, key, n)
				continue
			}
			s.until(start + time.Duration(k)*every + time.Duration(i)*every/time.Duration(len(actors)))
			calls.Go(func() { replies[i][k] = s.call(a, key, n) })
			synctest.Wait()
		}
	}
	calls.Wait()
	return replies
}

func (s *scene) call(a *actor, key string, n int64) reply {
	r := reply{at: s.now()}
	r.res, r.err = a.AllowN(context.Background(), key, n)
	r.took = s.now() - r.at
	return r
}

// kind returns the text that equal answers in a row have in common.
func (r reply) kind() string {
	if r.err != nil {
		return r.err.Error()
	}
	word := "denied"
	if r.res.Allowed {
		word = "allowed"
	}
	return r.res.Source.String() + " " + word
}

func runs(replies []reply) (out [][]reply) {
	for i, r := range replies {
		if i == 0 || r.kind() != replies[i-1].kind() || r.took != replies[i-1].took {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], r)
	}
	return out
}

// describe returns a run as one line. With within, it shows the duration as a bound.
func describe(run []reply, within time.Duration) string {
	first, last := run[0], run[len(run)-1]
	text := first.kind()
	if len(run) > 1 {
		text = fmt.Sprintf("%d × %s", len(run), text)
	}
	switch {
	case first.err != nil:
	case first.res.Allowed:
		text += fmt.Sprintf(", remaining %d", last.res.Remaining)
	case first.res.RetryAfter == hybridlimit.Never:
		text += ", retry never"
	case short(first.res.RetryAfter) != short(last.res.RetryAfter):
		text += fmt.Sprintf(", retry in %s … %s", short(first.res.RetryAfter), short(last.res.RetryAfter))
	default:
		text += ", retry in " + short(first.res.RetryAfter)
	}
	switch {
	case within > 0 && first.took <= within:
		text += fmt.Sprintf(", within %v", within)
	case first.took > 0:
		text += ", after " + short(first.took)
	}
	return text
}

// totals returns the number of answers of each kind.
func totals(replies []reply) string {
	count := map[string]int{}
	for _, r := range replies {
		count[r.kind()]++
	}
	var kinds []string
	for k := range count {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	for i, k := range kinds {
		kinds[i] = fmt.Sprint(count[k], " ", k)
	}
	return strings.Join(kinds, ", ")
}

// redis shows the state of a key in Redis, as of now.
func (s *scene) redis(c *command) {
	key := c.text("key", "")
	if c.nothing(); key == "" {
		c.bad("which key?")
	}
	state := inRedis(s.t, s.watch, "api", key)
	if state.Born == 0 {
		fmt.Fprintln(&s.out, "nothing")
		return
	}
	now := time.Now().UnixMicro()
	limit := algo.LimitOf(s.limit)
	state = limit.Load(state, now)
	sub := state.Level
	if limit.Window.Period > 0 {
		sub = limit.Window.Level(state, now)
	}
	level := math.Floor(float64(sub)/float64(limit.Unit())*10) / 10
	fmt.Fprintf(&s.out, "level %s, debited %d", strconv.FormatFloat(level, 'f', -1, 64), state.Since)
	if out := state.Out[0] + state.Out[1]; out > 0 {
		fmt.Fprintf(&s.out, ", ledger %d", out)
	}
	if state.Slot > now {
		fmt.Fprintf(&s.out, ", next turn in %s", short(time.Duration(state.Slot-now)*time.Microsecond))
	}
	fmt.Fprintln(&s.out)
}

// stats shows figures of Stats and HubStats by name. "resynced>=1" is a bound, for a figure
// that depends on chance. "broken" shows whether the breaker is not closed, because it may be
// half-open at any moment.
func (s *scene) stats(c *command) {
	actors, names := s.actors(c), c.words
	c.words = nil
	c.nothing()
	for _, a := range actors {
		var shown []string
		sources := []reflect.Value{reflect.ValueOf(a.Stats()), reflect.ValueOf(a.Hub().Stats())}
		for _, w := range names {
			shown = append(shown, figure(c, sources, w))
		}
		fmt.Fprintf(&s.out, "%s: %s\n", a.name, strings.Join(shown, ", "))
	}
}

func figure(c *command, sources []reflect.Value, word string) string {
	if word == "broken" {
		return fmt.Sprint("broken ", figure(c, sources, "breaker") != "breaker closed")
	}
	name, bound := word, ""
	if i := strings.IndexAny(word, "<>"); i >= 0 {
		name, bound = word[:i], word[i:]
	}
	var v reflect.Value
	for _, s := range sources {
		if f := s.FieldByNameFunc(func(f string) bool { return strings.EqualFold(f, name) }); f.IsValid() {
			v = f
			break
		}
	}
	if !v.IsValid() {
		c.bad("no figure %q", name)
	}
	shown := fmt.Sprintf("%s %v", name, v.Interface())
	if bound == "" {
		return shown
	}
	n, err := strconv.ParseInt(strings.TrimLeft(bound, "<>="), 10, 64)
	if err != nil || !v.CanInt() {
		c.bad("%s is not a bound of a number", word)
	}
	if strings.HasPrefix(bound, ">=") && v.Int() >= n || strings.HasPrefix(bound, "<=") && v.Int() <= n {
		return word
	}
	return shown
}

// messages shows how many syncs each process has sent since the last messages command.
func (s *scene) messages(c *command) {
	s.each(c, func(a *actor) {
		a.mu.Lock()
		defer a.mu.Unlock()
		fmt.Fprintf(&s.out, "%s: %d\n", a.name, a.batches)
		a.batches = 0
	})
}
