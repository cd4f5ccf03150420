package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/global"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/internal/test/redistest"
)

// aclOf returns the rights that a Redis user needs by SECURITY.md: the words of the ACL line,
// and from the table below it the additional rights for functions and for a cluster.
func aclOf(t *testing.T) (line, functions, cluster []string) {
	t.Helper()
	text, err := os.ReadFile("../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	rest := func(pattern string) []string {
		m := regexp.MustCompile(pattern).FindSubmatch(text)
		if m == nil {
			t.Fatalf("SECURITY.md has no %s", pattern)
		}
		return strings.Fields(string(m[1]))
	}
	return rest(`(?m)^ACL SETUSER limiter (.*)$`), rest("(?m)^\\| `Functions` \\| `(.*)` \\|$"), rest("(?m)^\\| a cluster \\| `(.*)` \\|$")
}

// TestACLHoldsNoMore checks that the ACL line has only the commands that the scripts use, the
// commands that run a script, and HELLO.
func TestACLHoldsNoMore(t *testing.T) {
	want := []string{"+eval", "+evalsha", "+hello"}
	files, err := filepath.Glob("../lua/*.lua")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`).FindAllSubmatch(source, -1) {
			want = append(want, "+"+strings.ToLower(string(m[1])))
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	line, _, _ := aclOf(t)
	var got []string
	for _, word := range line {
		if strings.HasPrefix(word, "+") {
			got = append(got, word)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the line has\n%q, the scripts need\n%q", got, want)
	}
	if others := strings.Join(slices.DeleteFunc(slices.Clone(line), func(w string) bool { return strings.HasPrefix(w, "+") }), " "); others != "on >PASSWORD resetkeys ~hl:v2:* resetchannels -@all" {
		t.Errorf("besides commands: %s", others)
	}
}

// everyVerb uses every verb of global and hybrid, and returns the errors.
func everyVerb(ctx context.Context, t *testing.T, rdb redis.UniversalClient, functions bool) (bad []error) {
	t.Helper()
	check := func(what string, err error) {
		if err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", what, err))
		}
	}
	for i, limit := range []hybridlimit.Limit{
		still(100), hybridlimit.LeakyBucket(1, time.Hour, 100), hybridlimit.LeakyQueue(1000, time.Second, 100),
		hybridlimit.FixedWindow(100, time.Hour), hybridlimit.SlidingWindow(100, time.Hour), hybridlimit.SlidingLog(100, time.Hour),
	} {
		name := fmt.Sprint("global", i)
		l, err := global.New(rdb, limit, global.Config{Name: name, Functions: functions, Timeout: 5 * time.Second})
		check(name, err)
		if err != nil {
			return bad
		}
		_, err = l.AllowN(ctx, "k", 3)
		check(name+" AllowN", err)
		_, err = l.AllowAtMost(ctx, "k", 3)
		check(name+" AllowAtMost", err)
		_, err = l.Peek(ctx, "k")
		check(name+" Peek", err)
		_, err = l.Inspect(ctx, "k")
		check(name+" Inspect", err)
		_, err = l.Charge(ctx, "k", 3)
		check(name+" Charge", err)
		_, err = l.Refund(ctx, "k", 2)
		check(name+" Refund", err)
		if r, err := l.Reserve(ctx, "k", 1); err != nil {
			check(name+" Reserve", err)
		} else {
			_, err := l.AllowN(ctx, "k", 1)
			check(name+" AllowN", err)
			check(name+" Cancel", r.Cancel(ctx))
		}
		_, err = hybridlimit.AllowAll(ctx, hybridlimit.Ask{Limiter: l, Key: "k", N: 1}, hybridlimit.Ask{Limiter: l, Key: "k2", N: 1})
		check(name+" AllowAll", err)
		if _, err = l.History(ctx, "k"); !errors.Is(err, hybridlimit.ErrUnsupported) {
			check(name+" History", err)
		}
		check(name+" Reset", l.Reset(ctx, "k"))
		check(name+" Close", l.Close())
	}
	cfg := patient(hybrid.Config{}).Hub
	cfg.Functions, cfg.Logger = functions, quiet
	h, err := hybrid.NewHub(rdb, cfg)
	check("hub", err)
	if err != nil {
		return bad
	}
	for name, mode := range map[string]hybrid.Mode{"auto": hybrid.ModeAuto, "strict": hybrid.ModeStrict, "deferred": hybrid.ModeDeferred, "exact": hybrid.ModeExact} {
		l := add(t, h, still(1000), patient(hybrid.Config{Name: name, Mode: mode}))
		_, err := l.AllowN(ctx, "k", 3)
		check(name+" AllowN", err)
		i, err := l.InspectRedis(ctx, "k")
		check(name+" InspectRedis", err)
		if i.Redis == nil {
			check(name+" InspectRedis", errors.New(i.RedisError))
		}
	}
	check("Ready", h.Ready(ctx))
	for _, l := range []string{"auto", "other"} {
		check("SetFleetSwitch", h.SetFleetSwitch(ctx, l, hybrid.SwitchShadow))
		s, _, err := h.FleetSwitch(ctx, l)
		check("FleetSwitch", err)
		if s != hybrid.SwitchShadow {
			check("FleetSwitch", fmt.Errorf("it is %v", s))
		}
	}
	time.Sleep(1500 * time.Millisecond) // heartbeats that read the switch
	check("Shutdown", h.Shutdown(ctx))
	if s := h.Stats(); s.Failures > 0 || s.Refused > 0 {
		check("syncs", fmt.Errorf("%+v", s))
	}
	return bad
}

// refusals returns the commands and keys that Redis has refused the user.
func refusals(ctx context.Context, t *testing.T, admin *redis.Client) (list []string) {
	t.Helper()
	entries, err := admin.ACLLog(ctx, 100).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, fmt.Sprintf("%d × %s %s (%s)", e.Count, e.Reason, e.Object, e.Context))
	}
	return list
}

func setUser(ctx context.Context, t *testing.T, admin *redis.Client, words []string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", "limiter"}
	for _, w := range words {
		args = append(args, w)
	}
	if err := admin.Do(ctx, args...).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestACL checks that the user of SECURITY.md can do everything that the library does, and
// nothing else.
func TestACL(t *testing.T) {
	t.Parallel()
	line, more, _ := aclOf(t)
	for _, functions := range []bool{false, true} {
		t.Run(fmt.Sprint("functions ", functions), func(t *testing.T) {
			t.Parallel()
			srv := redistest.New(t)
			ctx, admin := t.Context(), srv.Client(t)
			words := line
			if functions {
				redistest.NeedFunctions(t, admin)
				words = append(slices.Clone(line), more...)
			}
			setUser(ctx, t, admin, words)
			user := srv.Client(t, func(o *redis.Options) { o.Username, o.Password, o.DisableIdentity = "limiter", "PASSWORD", true })
			for _, err := range everyVerb(ctx, t, user, functions) {
				t.Error(err)
			}
			if list := refusals(ctx, t, admin); len(list) > 0 {
				t.Errorf("refused: %q", list)
			}
			for what, err := range map[string]error{
				"FLUSHALL": user.FlushAll(ctx).Err(), "KEYS": user.Keys(ctx, "*").Err(), "another key": user.Set(ctx, "x", "y", 0).Err(),
				"another key in a script": user.Eval(ctx, "return redis.call('SET', KEYS[1], '1')", []string{"session:1"}).Err(),
				"a key that is not named": user.Eval(ctx, "return redis.call('SET', 'session:1', '1')", nil).Err(),
				"another prefix":          user.Set(ctx, "hlx:v2:{0}:api:k", "y", time.Second).Err(), "CONFIG": user.ConfigGet(ctx, "*").Err(),
			} {
				if err == nil {
					t.Errorf("%s was let through", what)
				}
			}
		})
	}
}

// TestACLInACluster checks in a cluster that the user can do everything that the library does.
func TestACLInACluster(t *testing.T) {
	t.Parallel()
	line, functions, more := aclOf(t)
	c := redistest.NewCluster(t, 3)
	ctx := t.Context()
	var admins []*redis.Client
	for _, addr := range c.Addrs() {
		admin := redistest.Client(t, addr)
		redistest.NeedFunctions(t, admin)
		setUser(ctx, t, admin, slices.Concat(line, functions, more))
		admins = append(admins, admin)
	}
	for _, functions := range []bool{false, true} {
		user := c.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password, o.DisableIdentity = "limiter", "PASSWORD", true })
		for _, err := range everyVerb(ctx, t, user, functions) {
			t.Errorf("functions %v: %v", functions, err)
		}
	}
	for _, admin := range admins {
		if list := refusals(ctx, t, admin); len(list) > 0 {
			t.Errorf("refused: %q", list)
		}
	}
}

// TestACLThatLacksARight checks that a missing right is noticed: it is an error in global and an
// outage in hybrid.
func TestACLThatLacksARight(t *testing.T) {
	t.Parallel()
	line, _, _ := aclOf(t)
	srv := redistest.New(t)
	ctx, admin := t.Context(), srv.Client(t)
	setUser(ctx, t, admin, append(slices.Clone(line), "-mget"))
	user := srv.Client(t, func(o *redis.Options) { o.Username, o.Password, o.DisableIdentity = "limiter", "PASSWORD", true })
	g, err := global.New(user, still(10), global.Config{Name: "api", Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Allow(ctx, "k"); !errors.Is(err, hybridlimit.ErrUnavailable) || !regexp.MustCompile("NOPERM|can't run this command|ACL failure in script").MatchString(err.Error()) {
		t.Errorf("global: %v", err)
	}
	l := newLimiter(t, user, still(10), hybrid.Config{Name: "other", MaxWait: 5 * time.Second, Hub: hybrid.HubConfig{SyncTimeout: 5 * time.Second}})
	if res := ask(t, l, "k", 1); res.Source != hybridlimit.SourceFallback {
		t.Errorf("hybrid: %+v", res)
	}
}
