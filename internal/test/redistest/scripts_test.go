package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/permits"
	"github.com/hybridlimit/hybridlimit/internal/ratelease"
	"github.com/hybridlimit/hybridlimit/internal/test/testenv"
	"github.com/hybridlimit/hybridlimit/internal/wire"
	"github.com/hybridlimit/hybridlimit/lua"
)

// side is a miniredis and one connection.
type side struct {
	mini *miniredis.Miniredis
	peer *server.Peer
	out  bytes.Buffer
}

func newSide(t *testing.T) *side {
	s := &side{mini: miniredis.RunT(t)}
	s.mini.SetTime(time.UnixMicro(1_700_000_000_000_000))
	s.connect()
	return s
}

func (s *side) connect() { s.peer = server.NewPeer(bufio.NewWriter(&s.out)) }

// do returns the bytes of the reply to a command.
func (s *side) do(cmd ...string) string {
	s.out.Reset()
	s.mini.Server().Dispatch(s.peer, cmd)
	s.peer.Flush()
	return s.out.String()
}

// twins are a plain miniredis and one with scripts, which get the same commands.
type twins struct {
	t           *testing.T
	plain, fast *side
	scripts     *scripts
}

func newTwins(t *testing.T) *twins {
	w := &twins{t: t, plain: newSide(t), fast: newSide(t)}
	w.scripts = install(w.fast.mini, nil)
	return w
}

// do requires equal replies and returns them.
func (w *twins) do(cmd ...string) string {
	w.t.Helper()
	want, got := w.plain.do(cmd...), w.fast.do(cmd...)
	if got != want {
		w.t.Fatalf("%q\n     got %q\nwant %q", cmd, got, want)
	}
	return got
}

// run runs a script by its SHA-1. It reports whether miniredis left it to scripts.
func (w *twins) run(text string, keys, argv []string) (reply string, fast bool) {
	w.t.Helper()
	before := w.scripts.ran
	cmd := append([]string{"EVALSHA", hexSum(text), strconv.Itoa(len(keys))}, keys...)
	reply = w.do(append(cmd, argv...)...)
	return reply, w.scripts.ran > before
}

// same requires equal data and counts of commands.
func (w *twins) same() {
	w.t.Helper()
	if got, want := w.fast.mini.Dump(), w.plain.mini.Dump(); got != want {
		w.t.Errorf("the data differ: got\n%s\nwant\n%s", got, want)
	}
	if got, want := w.fast.mini.CommandCount(), w.plain.mini.CommandCount(); got != want {
		w.t.Errorf("%d commands, want %d", got, want)
	}
}

// runFast makes scripts run texts as if they were of this module.
func runFast(texts ...string) {
	for _, text := range texts {
		p, err := compile(text)
		if err != nil {
			panic(err)
		}
		programs()[hexSum(text)] = p
	}
}

// Texts that leave no trace in an interpreter.
var fastTexts = []string{
	``, `return`, `return nil`, `return true`, `return false`, `return 1, 2`, `return 3.99`, `return -3.99`,
	`return 1e15`, `return 'text'`, `return ''`, `return {}`, `return {1, 'two', {3, {}}, true, false, nil, 7}`,
	`return {1, nil, 3}`, `return {x = 1}`, `return {1, x = 2}`, `return {ok = 'fine'}`,
	`return {err = 'HLX of a\nkind', ok = 'no'}`, `return {{err = 'HLX inside'}, {ok = 'inside'}}`,
	`return {err = 5}`,
	`return {#KEYS, #ARGV, KEYS[1], KEYS[2], ARGV[1], ARGV[2]}`,
	`KEYS[1] = 'other' ARGV.x = 1 return {KEYS[1], ARGV.x}`,
	`return redis.call('SET', KEYS[1] or 'k', ARGV[1] or 'v')`, `return redis.call('GET', KEYS[1] or 'k')`,
	`return redis.call('GET', 'none')`, `return type(redis.call('GET', 'none'))`, `return redis.call('INCR', 'n')`,
	`return redis.call('INCRBY', 'n', 2)`, `return redis.call('SET', 'f', 1.5)`,
	`return redis.call('SET', 'f', 12345678901234567)`, `return redis.call('GET', 'f')`, `return redis.call('TIME')`,
	`redis.call('RPUSH', 'list', 1, 2, 3) return redis.call('LRANGE', 'list', 0, -1)`,
	`return redis.call('MGET', 'n', 'none', 'k')`, `return redis.call('GET', 'list')`,
	`return redis.pcall('GET', 'list')`, `return redis.pcall('GET', 'list').err`, `return redis.call('LLEN', 'k')`,
	`return redis.call('NONSENSE', 'a')`, `return redis.pcall('NONSENSE', 'a')`, `return redis.call('GET')`,
	`return redis.pcall('GET')`, `return redis.call()`, `return redis.pcall()`, `return redis.call({})`,
	`return redis.pcall('GET', nil)`, `return redis.call('GET', true)`, `return redis.call('MULTI')`,
	`return redis.pcall('MULTI')`, `return redis.pcall('EVALSHA', 'x', '0')`, `return redis.pcall('SUBSCRIBE', 'c')`,
	`return redis.pcall('SCRIPT', 'FLUSH')`,
	`redis.call('SELECT', 3) redis.call('SET', 'third', 1) return redis.pcall('GET', 'third')`,
	`return redis.call('GET', 'third')`, `return redis.call('SCAN', 0, 'MATCH', 'none')`, `return redis.call('PING')`,
	`return redis.call('PING').ok`,
	`redis.call('SET', 'half', 1) redis.call('GET', 'list') redis.call('SET', 'never', 1)`, `error('plain')`,
	`error('%d of 50% off %s')`, `error()`, `error('no place', 0)`, `assert(false, 'asserted')`, `assert(1 == 2)`,
	`local x = nil return x.field`, `return 1 + {}`, `return 'a' < 1`, `return #nil`,
	`local function f() return f() + 1 end return f()`,
	`local function f(n) if n == 0 then error('deep') end return f(n - 1) + 1 end return f(5)`, `return ('x'):rep(3)`,
	`return ('x'):nonsense()`, `local t = {} for w in string.gmatch('a b c', '%a') do t[#t + 1] = w end return t`,
	`return string.format('%.0f|%5s|%q', 2^53, 'x', 'y')`,
	`local t = {3, 1, 2} table.sort(t) return table.concat(t, ',')`, `return math.floor(-1.5) + math.max(1, 2)`,
	`return {unpack({1, 2, 3}, 2)}`, `return string.left`, `return math.left`, `return ('').left`,
	`return select('#', 1, nil, nil)`, `local n = 0 for _, v in ipairs({1, 2, 3}) do n = n + v end return n`,
	`return tostring(nil) .. type({}) .. tonumber('12')`,
	`local t = {} for k, v in pairs({a = 1}) do t[1] = k .. v end return t`, `return next({})`,
	`local got = {} for i = 1, 300 do got[i] = i end return got`,
}

// Texts that miniredis runs. Some would leave a trace in an interpreter.
var plainTexts = []string{
	`x = 1 return x`, `return x`, `KEYS = nil return 1`, `redis = nil return 1`, `string = 'gone' return string`,
	`function string() end return 1`, `rawset(_G, 'left', 1) return 1`, `return rawget(_G, 'left')`, `_G.left = 1`,
	`return _G.tostring(1)`, `setmetatable(_G, nil) left = 1 return left`, `string.left = 'over' return string.left`,
	`redis.call = nil return 1`, `function math.floor() return 'mine' end return math.floor(1)`,
	`local m = math local f = m.floor m.floor = 1 return f(1.5)`,
	`local f local m = math f = m.floor m.left = 1 return m.left`, `local s = string s.left = 1 return s.left`,
	`local t = {string} t[1].left = 1 return 1`, `local k = 'left' string[k] = 1 return string[k]`,
	`local function f(lib) lib.left = 1 return lib.left end return f(math)`, `(string or math).left = 1 return 1`,
	`for _, lib in pairs({math}) do lib.left = 1 end`, `local function f() return string end f().left = 1 return 1`,
	`local function outer() return function() left = 1 end end outer()()`, `table.insert(math, 1) return #math`,
	`table:insert(1) return 1`, `return redis.setresp(3)`, `redis.setresp(2) return 1`,
	`return redis.log(redis.LOG_WARNING, 'text')`,
	`return redis.status_reply('fine')`, `return redis.error_reply('-CODE text and more')`, `return redis.sha1hex('x')`,
	`local t = {a = 1} local function f(lib, a) lib.left = a return lib.left end return f(math, t.a)`,
	`return redis.nonsense`, `return redis.nonsense()`, `return server.call('PING')`, `return cjson.encode({1})`,
	`return os.clock()`, `return pcall(error, 'x')`, `getmetatable('').__index.left = 1 return 1`, `return debug`,
	`loadstring('left = 1')()`, `return coroutine.create(1)`, `not Lua`,
}

func TestScriptsEqualMiniredis(t *testing.T) {
	rng := testenv.Rand(t)
	w := newTwins(t)
	runFast(fastTexts...)
	texts := slices.Concat(fastTexts, plainTexts)
	for _, text := range texts {
		w.do("SCRIPT", "LOAD", text)
	}
	args := []string{"k", "n", "list", "other", "", "1", "\x00\xff"}
	draw := func() (some []string) {
		for range rng.IntN(4) {
			some = append(some, args[rng.IntN(len(args))])
		}
		return some
	}
	for range 3000 {
		text := texts[rng.IntN(len(texts))]
		if _, fast := w.run(text, draw(), draw()); fast != slices.Contains(fastTexts, text) {
			t.Fatalf("%s\nrun by scripts: %v", text, fast)
		}
		if rng.IntN(50) == 0 {
			w.do("DEL", "k", "n")
		}
	}
	w.same()
}

func ten(kind hybridlimit.Algorithm) hybridlimit.Limit {
	return hybridlimit.Limit{Algorithm: kind, Rate: 10, Period: time.Second, Burst: 10}
}

// message returns KEYS and ARGV for one of lua.Scripts.
func message(rng *rand.Rand, script lua.Script) (keys, argv []string) {
	one := func() int64 { return rng.Int64N(5) }
	key := func(prefix string) string { return prefix + strconv.FormatInt(one(), 10) }
	process := string('a' + rune(one()))
	at := 1_700_000_000_000_000 - rng.Int64N(2_000_000)
	switch script {
	case lua.Batch:
		ops := make([]wire.Op, 1+one())
		for i := range ops {
			kind := hybridlimit.Algorithm(i % 6) // all that have a state
			ops[i] = wire.Op{Key: key(fmt.Sprint("state", kind, ":")), Limit: ten(kind)}
			ops[i].Asks = []int64{one(), one()}[:rng.IntN(3)]
			if rng.IntN(2) == 0 {
				ops[i].Owed, ops[i].Demand, ops[i].Div = one(), 1000*one(), 2+one()
			}
		}
		switch rng.IntN(3) {
		case 0:
			return wire.EncodeAll(ops)
		case 1:
			envelope := wire.Envelope{Key: key("envelope"), Epoch: "epoch", Seq: 1 + one(), TTL: time.Minute}
			return wire.EncodeBatch(envelope, ops)
		}
		return wire.EncodeBatch(wire.Envelope{}, ops)
	case lua.History:
		log := hybridlimit.AlgSlidingLog
		return wire.EncodeHistory(key(fmt.Sprint("state", log, ":")), ten(log), one()/4*at, 1+rng.IntN(5))
	case lua.Fleet:
		return wire.EncodePulse(wire.Pulse{
			Group: "group" + process, Directory: "directory", Changed: "changed", Names: "names" + process, Wanted: "wanted", Paused: "paused",
			Others: []string{key("group")}, ID: process, Process: process, Expiry: time.Second, Leave: one() == 0,
			Text: "text", TTL: time.Minute, Version: one(),
		})
	case lua.Settings:
		setting := wire.Setting{SwitchKey: key("switch"), LimitKey: key("limit"), KeysKey: key("keys")}
		return wire.EncodeSettings("changed", []wire.Setting{setting}, time.Minute)
	case lua.SetSwitch:
		return wire.EncodeSwitch(key("switch"), "changed", one()%2, time.Minute)
	case lua.SetLimit:
		return wire.EncodeFleetLimit(key("limit"), "changed", fmt.Sprint(1+one(), "/s"), time.Minute)
	case lua.SetKeys:
		limit := wire.KeyLimit{Key: key("k"), Text: []string{"", "5/s burst 9"}[rng.IntN(2)], At: at}
		switch rng.IntN(3) {
		case 0:
			return wire.EncodeReadKeyLimits(key("keys"))
		case 1:
			return wire.EncodeTellKeyLimits(key("keys"), "changed", []wire.KeyLimit{limit}, time.Minute)
		}
		return wire.EncodeSetKeyLimit(key("keys"), "changed", limit, time.Minute)
	case lua.Rates:
		op := ratelease.Op{Terms: ratelease.TermsOf(100, time.Second, 100), Number: 1 + rng.Int64N(1000), Procs: 1 + one()}
		op.Demand, op.Want, op.Most, op.Owed = one()*ratelease.Micro, one()*ratelease.Micro, 1, one()
		return []string{key("rate"), key("lease" + process)}, wire.EncodeRates([]ratelease.Op{op})
	}
	op := permits.Op{Limit: 5, Keep: one(), Want: one(), Spare: one(), Procs: 1 + one()}
	op.First, op.Rejoin, op.Reset = min(1, op.Want), one() == 0, one() == 0
	message := permits.Message{Process: process, Number: 1 + rng.Int64N(1000), Period: 1_000_000, Ops: []permits.Op{op}}
	return wire.EncodePermits("memory", []string{key("held")}, message)
}

// The messages of this module, some of them with one wrong argument.
func TestScriptsOfThisModule(t *testing.T) {
	rng := testenv.Rand(t)
	w := newTwins(t)
	for _, script := range lua.Scripts() {
		w.do("SCRIPT", "LOAD", script.Source)
	}
	type outcome struct {
		script lua.Script
		fails  bool
	}
	saw := map[outcome]int{}
	for range 2000 {
		script := lua.Scripts()[rng.IntN(len(lua.Scripts()))]
		keys, argv := message(rng, script)
		if rng.IntN(5) == 0 && len(argv) > 0 {
			argv[rng.IntN(len(argv))] = []string{"", "x", "-1", "9999999999999999999"}[rng.IntN(4)]
		}
		reply, fast := w.run(script.Source, keys, argv)
		if !fast {
			t.Fatalf("miniredis ran the script that begins with %.60q", script.Source)
		}
		saw[outcome{script, strings.HasPrefix(reply, "-")}]++
		if rng.IntN(20) == 0 { // another type of value under a key
			w.do("DEL", keys[0])
			w.do("RPUSH", keys[0], "x")
		}
		w.plain.mini.FastForward(time.Second / 10)
		w.fast.mini.FastForward(time.Second / 10)
	}
	w.same()
	for i, script := range lua.Scripts() {
		if ok, failed := saw[outcome{script, false}], saw[outcome{script, true}]; ok < 50 || failed == 0 {
			t.Errorf("script %d: %d replies and %d errors, want at least 50 and 1", i, ok, failed)
		}
	}
}

// miniredis knows which scripts are loaded.
func TestScriptsFlushed(t *testing.T) {
	w := newTwins(t)
	const text = "return redis.call('INCR', KEYS[1])"
	runFast(text)
	for _, forget := range []string{"SYNC", "ASYNC"} {
		if reply, fast := w.run(text, []string{"n"}, nil); fast || !strings.HasPrefix(reply, "-NOSCRIPT ") {
			t.Errorf("before it is loaded: %q", reply)
		}
		w.do("EVAL", text, "1", "n")
		if reply, fast := w.run(text, []string{"n"}, nil); !fast || !strings.HasPrefix(reply, ":") {
			t.Errorf("after EVAL: %q, run by scripts: %v", reply, fast)
		}
		w.do("SCRIPT", "FLUSH", forget)
	}
	w.run(text, []string{"n"}, nil)
	w.same()
}

// miniredis runs these calls, because of the connection or the arguments.
func TestScriptsLeaveToMiniredis(t *testing.T) {
	const text = "redis.call('INCR', 'n') return {redis.call('GET', KEYS[1] or 'n'), false}"
	runFast(text)
	id := hexSum(text)
	call := []string{"EVALSHA", id, "0"}
	for name, run := range map[string]struct {
		cmds [][]string
		fast int // calls
	}{
		"transaction":    {[][]string{{"MULTI"}, call, {"SET", "n", "5"}, call, {"EXEC"}, call}, 1},
		"discarded":      {[][]string{{"MULTI"}, call, {"DISCARD"}, {"GET", "n"}, call}, 1},
		"watched":        {[][]string{{"WATCH", "n"}, call, {"MULTI"}, {"GET", "n"}, {"EXEC"}}, 1},
		"subscribed":     {[][]string{{"SUBSCRIBE", "c"}, call}, 0},
		"database":       {[][]string{{"SELECT", "1"}, call, {"SELECT", "0"}, call}, 1},
		"number of keys": {[][]string{{"EVALSHA", id, "x"}, {"EVALSHA", id, "-1"}, {"EVALSHA", id, "2", "a"}}, 0},
		"no keys":        {[][]string{{"EVALSHA", id}, {"EVALSHA"}}, 0},
		"from a script":  {[][]string{{"EVAL", "return redis.pcall('EVALSHA', ARGV[1], 0)", "0", id}}, 0},
		"read only":      {[][]string{{"EVALSHA_RO", id, "0"}}, 0},
		"RESP3":          {[][]string{{"HELLO", "3"}, call, {"HELLO", "2"}, call}, 2},
		"unknown SHA-1":  {[][]string{{"EVALSHA", strings.ToUpper(id), "0"}, {"EVALSHA", "", "0"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTwins(t)
			w.do("SCRIPT", "LOAD", text)
			for _, cmd := range run.cmds {
				w.do(cmd...)
			}
			if w.scripts.ran != run.fast {
				t.Errorf("scripts ran %d calls, want %d", w.scripts.ran, run.fast)
			}
			w.same()
		})
	}
	t.Run("password", func(t *testing.T) {
		w := newTwins(t)
		w.do("SCRIPT", "LOAD", text)
		w.plain.mini.RequireAuth("secret")
		w.fast.mini.RequireAuth("secret")
		if reply := w.do("EVALSHA", id, "0"); !strings.HasPrefix(reply, "-NOAUTH ") {
			t.Errorf("without the password: %q", reply)
		}
		w.do("AUTH", "secret")
		w.do("EVALSHA", id, "0")
		w.same()
	})
}

// A script is one step for other clients, whether they run scripts or commands.
func TestScriptsAreAtomic(t *testing.T) {
	const text = `
		local n = tonumber(redis.call('GET', KEYS[1]) or '0')
		for i = 1, 20 do redis.call('SET', KEYS[1], n + i) end
		redis.call('INCR', 'scripts')
		return redis.call('GET', KEYS[1])`
	runFast(text)
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b := NewBubble(t)
		script := redis.NewScript(text)
		if err := script.Load(ctx, b.Client(nil)).Err(); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 8 {
			c := b.Client(nil)
			all.Go(func() {
				for range 50 {
					if n, err := script.EvalSha(ctx, c, []string{"n"}).Int(); err != nil || n%20 != 0 {
						t.Errorf("a script: %d, %v", n, err)
					}
				}
			})
			all.Go(func() {
				for range 50 {
					if n, err := c.Get(ctx, "n").Int(); err != nil && err != redis.Nil || n%20 != 0 {
						t.Errorf("a command saw %d, %v", n, err)
					}
				}
			})
			all.Go(func() {
				for range 50 {
					if text, err := b.Mini.Get("n"); err == nil && !strings.HasSuffix(text, "0") {
						t.Errorf("a test saw %s", text)
					}
				}
			})
		}
		all.Wait()
		counts, err := b.Client(nil).MGet(ctx, "scripts", "n").Result()
		if err != nil || !slices.Equal(counts, []any{"400", "8000"}) {
			t.Errorf("the scripts and their count: %q, %v; want 400 and 8000", counts, err)
		}
	})
}

// A script wakes a client that waits for a list.
func TestScriptWakesBlockedClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := NewBubble(t).Client(nil)
		const text = "return redis.call('RPUSH', KEYS[1], 'x')"
		runFast(text)
		push := redis.NewScript(text)
		push.Load(ctx, c)
		start := time.Now()
		got := make(chan []string, 1)
		go func() { got <- c.BLPop(ctx, time.Minute, "list").Val() }()
		synctest.Wait()
		if err := push.EvalSha(ctx, c, []string{"list"}).Err(); err != nil {
			t.Fatal(err)
		}
		if list := <-got; !slices.Equal(list, []string{"list", "x"}) || time.Since(start) > time.Second {
			t.Errorf("BLPOP gave %q after %s", list, time.Since(start))
		}
	})
}

// A script is running while the server closes. It once asked miniredis for its server, which is nil by then.
func TestScriptWhileServerCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBubble(t)
		c := b.Client(func(o *redis.Options) { o.MaxRetries = -1 })
		const text = "redis.call('INCR', 'n') return redis.call('GET', 'n')"
		runFast(text)
		script := redis.NewScript(text)
		script.Load(t.Context(), c)
		closed := make(chan struct{})
		b.SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
			if cmd == "EVALSHA" {
				go func() {
					b.Mini.Close()
					close(closed)
				}()
				synctest.Wait()
			}
			return false
		})
		script.EvalSha(t.Context(), c, nil) // its reply may be lost
		<-closed
		if n, err := b.Mini.Get("n"); n != "1" || err != nil {
			t.Errorf("n = %q, %v", n, err)
		}
	})
}

func TestBubbleSetPreHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b := NewBubble(t)
		c := b.Client(nil)
		const text = "return redis.call('INCRBY', KEYS[1], ARGV[1])"
		runFast(text)
		script := redis.NewScript(text)
		script.Load(ctx, c)
		var saw []string
		b.SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
			saw = append(saw, cmd)
			if cmd == "EVALSHA" {
				args[3] = "7"
			}
			if cmd == "ECHO" {
				c.WriteError("HOOKED")
			}
			return cmd == "ECHO"
		})
		if n, err := script.EvalSha(ctx, c, []string{"n"}, 1).Int(); n != 7 || err != nil {
			t.Errorf("the hook changed the argument to 7: %d, %v", n, err)
		}
		if err := c.Echo(ctx, "x").Err(); err == nil || err.Error() != "HOOKED" {
			t.Errorf("a command that the hook answered: %v", err)
		}
		if want := []string{"EVALSHA", "INCRBY", "ECHO"}; !slices.Equal(saw, want) {
			t.Errorf("the hook saw %q, want %q", saw, want)
		}
		b.Mini.SetError("LOADING")
		if err := script.EvalSha(ctx, c, []string{"n"}, 1).Err(); err == nil || err.Error() != "LOADING" {
			t.Errorf("with SetError: %v", err)
		}
		b.Mini.SetError("")
		if n, err := script.EvalSha(ctx, c, []string{"n"}, 1).Int(); n != 8 || err != nil {
			t.Errorf("after SetError: %d, %v", n, err)
		}
	})
}
