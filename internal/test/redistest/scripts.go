package redistest

import (
	"bufio"
	"bytes"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// scripts runs EVALSHA of one miniredis on interpreters that live longer than a call. miniredis makes an interpreter
// for each call, which takes longer than most scripts of this project. The replies are the same, byte for byte.
//
// miniredis keeps the scripts, the data and the lock. It still runs EVAL, transactions, connections with a password or
// another database, and texts that could change their interpreter (see reusable).
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
	keys, err := strconv.Atoi(args[1])
	if argv := args[2:]; err != nil || keys < 0 || keys > len(argv) {
		return false
	}
	s.mini.Lock() // for the whole script, as miniredis does
	defer s.mini.Unlock()
	inside := reflect.ValueOf(s.mini).Elem()
	text := inside.FieldByName("scripts").MapIndex(reflect.ValueOf(args[0]))
	if !text.IsValid() || inside.FieldByName("passwords").Len() > 0 {
		return false
	}
	script := compiled(args[0], text.String())
	if script == nil {
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

var programs sync.Map // *lua.FunctionProto by SHA-1; nil for texts that only miniredis may run

// compiled returns the program of a text, or nil if miniredis must run it.
func compiled(sha, text string) *lua.FunctionProto {
	if p, ok := programs.Load(sha); ok {
		return p.(*lua.FunctionProto)
	}
	var p *lua.FunctionProto
	if chunk, err := parse.Parse(strings.NewReader(text), "<string>"); err == nil {
		if p, err = lua.Compile(chunk, ""); err != nil || !reusable(p) {
			p = nil
		}
	}
	programs.Store(sha, p)
	return p
}

// The globals that a program may use. KEYS and ARGV are new for each call. The functions change no global and no
// library.
var (
	globals = []string{
		"KEYS", "ARGV", "assert", "error", "ipairs", "next", "pairs", "select", "tonumber", "tostring", "type",
		"unpack",
	}
	libraries = []string{"math", "string", "table"}
	calls     = []string{"call", "pcall", "error_reply", "status_reply", "sha1hex"} // of redis
)

// reusable reports whether an interpreter that has run p to its end is as good as new. p may then set no global, and
// use a library only to read a member.
func reusable(p *lua.FunctionProto) bool {
	for pc, code := range p.Code {
		switch int(code >> 26) {
		case lua.OP_SETGLOBAL:
			return false
		case lua.OP_GETGLOBAL:
			name := p.Constants[code&0x3ffff].String()
			if slices.Contains(globals, name) {
				continue
			}
			member, ok := memberOf(p, pc, int(code>>18&0xff))
			if !ok || !slices.Contains(libraries, name) && (name != "redis" || !slices.Contains(calls, member)) {
				return false
			}
		}
	}
	leaves := func(inner *lua.FunctionProto) bool { return !reusable(inner) }
	return !slices.ContainsFunc(p.FunctionPrototypes, leaves)
}

// memberOf returns the member that is read from the library in register reg, which the instruction at pc has loaded. ok
// is false if anything else may follow: another use of the library, or a local variable that keeps it.
func memberOf(p *lua.FunctionProto, pc, reg int) (name string, ok bool) {
	pc++
	name, key := "", -1
	if code := p.Code[pc]; int(code>>26) == lua.OP_LOADK {
		name, key = p.Constants[code&0x3ffff].String(), int(code>>18&0xff)
		pc++
	}
	code := p.Code[pc]
	into, by, from := int(code>>18&0xff), int(code>>9&0x1ff), int(code&0x1ff)
	if by >= firstConstant && key < 0 {
		name, key = p.Constants[by-firstConstant].String(), by
	}
	if int(code>>26) != lua.OP_GETTABLEKS || from != reg || by != key {
		return "", false
	}
	_, kept := (&lua.LFunction{Proto: p}).LocalName(reg+1, pc+1)
	return name, into == reg || !kept
}

// firstConstant is the least operand of an instruction that means a constant. Smaller ones are registers.
const firstConstant = 256

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
		"call":         func(*lua.LState) int { return in.command(in.call, true) },
		"pcall":        func(*lua.LState) int { return in.command(in.pcall, false) },
		"error_reply":  errorReply,
		"status_reply": statusReply,
		"sha1hex":      sha1hex,
	}))
	return in
}
