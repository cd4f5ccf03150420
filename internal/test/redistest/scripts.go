package redistest

import (
	"bufio"
	"bytes"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	product "github.com/hybridlimit/hybridlimit/lua"
)

// scripts runs EVALSHA of this module's scripts on interpreters that live longer than a call. miniredis makes an
// interpreter for each call, which takes longer than most of them. The replies are the same, byte for byte.
//
// miniredis keeps the scripts, the data and the lock. It still runs EVAL, transactions, connections with a password or
// another database, and other scripts.
//
// miniredis has no accessor for some fields that this needs. They are read by reflection, which panics if a new version
// lacks one.
type scripts struct {
	mini   *miniredis.Miniredis
	server *server.Server // mini.Server() is nil once mini closes, although commands still run
	before server.Hook    // or nil
	ran    int            // calls that miniredis did not run; guarded by mini's lock
}

// counted is a command without effect. scripts dispatches it for each call, because miniredis does not count a command
// that its hook has answered.
const counted = "REDISTEST.COUNTED"

// install makes scripts the hook of mini. It calls before, if not nil, ahead of each command.
func install(mini *miniredis.Miniredis, before server.Hook) *scripts {
	s := &scripts{mini: mini, server: mini.Server(), before: before}
	_ = s.server.Register(counted, func(*server.Peer, string, []string) {}) // an error if registered before
	s.server.SetPreHook(s.hook)
	return s
}

func (s *scripts) hook(c *server.Peer, cmd string, args ...string) (done bool) {
	if cmd == counted {
		return false
	}
	if s.before != nil && s.before(c, cmd, args...) {
		return true
	}
	if cmd != "EVALSHA" || len(args) < 2 || !plain(c) {
		return false
	}
	script := programs()[args[0]]
	keys, err := strconv.Atoi(args[1])
	if argv := args[2:]; script == nil || err != nil || keys < 0 || keys > len(argv) {
		return false
	}
	s.mini.Lock() // for the whole script, as miniredis does
	defer s.mini.Unlock()
	inside := reflect.ValueOf(s.mini).Elem()
	loaded := inside.FieldByName("scripts").MapIndex(reflect.ValueOf(args[0]))
	if !loaded.IsValid() || inside.FieldByName("passwords").Len() > 0 {
		return false
	}
	s.ran++
	s.server.Dispatch(c, []string{counted})
	in := interpreters.Get().(*interpreter)
	if in.run(c, s.server, args[0], script, args[2:2+keys], args[2+keys:]) {
		interpreters.Put(in)
	} else {
		in.lua.Close() // its stack may hold anything
	}
	return true
}

// plain reports whether a connection is on database 0, and in no transaction, subscription or script.
func plain(c *server.Peer) bool {
	if c.Ctx == nil {
		return true
	}
	ctx := reflect.ValueOf(c.Ctx).Elem()
	return ctx.FieldByName("transaction").IsNil() && ctx.FieldByName("subscriber").IsNil() &&
		!ctx.FieldByName("nested").Bool() && ctx.FieldByName("selectedDB").Int() == 0
}

// probe is a script. Its command shows the context that miniredis gives to the commands of scripts.
const probe = "redis.call('PING')"

// nested returns a context of miniredis for the commands of a script. They do not lock, and their errors name the
// script probe.
func nested() any {
	fresh := reflect.New(nestedContext().Type())
	fresh.Elem().Set(nestedContext())
	return fresh.Interface()
}

var nestedContext = sync.OnceValue(func() (ctx reflect.Value) {
	mini := miniredis.NewMiniRedis()
	defer mini.Close()
	conn, err := mini.Dial() // starts it without a listener
	if err != nil {
		panic(err)
	}
	conn.Close()
	mini.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd == "PING" {
			ctx = reflect.ValueOf(c.Ctx).Elem()
		}
		return false
	})
	mini.Server().Dispatch(server.NewPeer(bufio.NewWriter(io.Discard)), []string{"EVAL", probe, "0"})
	return ctx
})

// programs has the compiled scripts of this module, by SHA-1. Each sets no global, and uses a library only to read a
// member: so an interpreter that has run one to its end is as good as new. Of redis it uses call and pcall.
// TestScriptsAreReusable checks that.
var programs = sync.OnceValue(func() map[string]*lua.FunctionProto {
	all := map[string]*lua.FunctionProto{}
	for _, s := range product.Scripts() {
		p, err := compile(s.Source)
		if err != nil {
			panic(err)
		}
		all[s.SHA] = p
	}
	return all
})

func compile(text string) (*lua.FunctionProto, error) {
	chunk, err := parse.Parse(strings.NewReader(text), "<string>")
	if err != nil {
		return nil, err
	}
	return lua.Compile(chunk, "")
}

var interpreters = sync.Pool{New: func() any { return newInterpreter() }}

// interpreter runs one script at a time.
type interpreter struct {
	lua   *lua.LState
	reply bytes.Buffer // of the command that the script calls
	w     *bufio.Writer
	r     *bufio.Reader

	// These fields are of the present script.
	server *server.Server
	sha    string
	call   any // the context of redis.call
	pcall  any // the context of redis.pcall
}

func newInterpreter() *interpreter {
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{
		{lua.LoadLibName, lua.OpenPackage}, // the others enter themselves in its table
		{lua.BaseLibName, lua.OpenBase},
		{lua.TabLibName, lua.OpenTable},
		{lua.StringLibName, lua.OpenString},
		{lua.MathLibName, lua.OpenMath},
	} {
		l.Push(l.NewFunction(library.open))
		l.Push(lua.LString(library.name))
		l.Call(1, 0)
	}
	in := &interpreter{lua: l}
	in.w, in.r = bufio.NewWriter(&in.reply), bufio.NewReader(&in.reply)
	l.SetGlobal("redis", l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{
		"call":  func(*lua.LState) int { return in.command(in.call, true) },
		"pcall": func(*lua.LState) int { return in.command(in.pcall, false) },
	}))
	return in
}
