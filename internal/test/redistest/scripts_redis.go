package redistest

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
)

// run runs a script and writes its reply. It reports whether the script has run to its end.
func (in *interpreter) run(
	c *server.Peer, srv *server.Server, sha string, script *lua.FunctionProto, keys, argv []string,
) bool {
	in.server, in.sha, in.call, in.pcall = srv, sha, nested(), nested()
	l := in.lua
	l.SetGlobal("KEYS", listOf(l, keys))
	l.SetGlobal("ARGV", listOf(l, argv))
	l.Push(l.NewFunctionFromProto(script))
	if err := l.PCall(0, lua.MultRet, nil); err != nil {
		// miniredis takes the text for a format: "50% off" becomes "50%!o(MISSING)ff".
		c.WriteError(fmt.Errorf("ERR Error compiling script (new function): "+err.Error(), []any(nil)...).Error())
		return false
	}
	write(c, l.Get(1))
	l.SetTop(0)
	return true
}

func listOf(l *lua.LState, texts []string) *lua.LTable {
	list := l.CreateTable(len(texts), 0)
	for _, text := range texts {
		list.Append(lua.LString(text))
	}
	return list
}

// write writes the result of a script.
func write(c *server.Peer, value lua.LValue) {
	switch v := value.(type) {
	case *lua.LNilType:
		c.WriteNull()
	case lua.LBool:
		if v {
			c.WriteInt(1)
		} else {
			c.WriteNull()
		}
	case lua.LNumber:
		c.WriteInt(int(v))
	case lua.LString:
		c.WriteBulk(string(v))
	case *lua.LTable:
		if err := v.RawGetString("err"); err != lua.LNil {
			c.WriteError(err.String())
			return
		}
		if ok := v.RawGetString("ok"); ok != lua.LNil {
			c.WriteInline(ok.String())
			return
		}
		n := 0
		for v.RawGetInt(n+1) != lua.LNil {
			n++
		}
		c.WriteLen(n)
		for i := range n {
			write(c, v.RawGetInt(i+1))
		}
	default:
		panic(fmt.Sprintf("redistest: a script returned a %T", v)) // miniredis panics too
	}
}

// command runs the command in the arguments of redis.call, or of redis.pcall if raise is false. It returns the number
// of results.
func (in *interpreter) command(ctx any, raise bool) int {
	l := in.lua
	fail := func(text string) { l.Error(lua.LString(text+" script: "+in.sha+", &c."), 1) }
	if l.GetTop() == 0 {
		fail("Please specify at least one argument for this redis lib call")
	}
	args := make([]string, l.GetTop())
	for i := range args {
		switch arg := l.Get(i + 1).(type) {
		case lua.LNumber:
			args[i] = arg.String()
		case lua.LString:
			args[i] = string(arg)
		default:
			fail("Lua redis lib command arguments must be strings or integers")
		}
	}
	in.reply.Reset()
	in.w.Reset(&in.reply)
	peer := server.NewPeer(in.w)
	peer.Ctx = ctx
	in.server.Dispatch(peer, args)
	in.w.Flush()
	in.r.Reset(&in.reply)
	reply, err := server.ParseReply(in.r)
	if err == nil {
		l.Push(valueOf(l, reply))
		return 1
	}
	text := strings.ReplaceAll(err.Error(), hexSum(probe), in.sha)
	unknown := strings.Contains(text, "ERR unknown command")
	switch {
	case raise && unknown:
		fail("Unknown Redis command called from script")
	case raise:
		l.Error(lua.LString(text), 1)
	case unknown:
		text = "ERR Unknown Redis command called from script"
	}
	l.Push(tableOf(l, "err", text))
	return 1
}

// valueOf returns the Lua value of a reply.
func valueOf(l *lua.LState, reply any) lua.LValue {
	switch r := reply.(type) {
	case nil:
		return lua.LFalse
	case int:
		return lua.LNumber(r)
	case server.Simple:
		return tableOf(l, "ok", string(r))
	case []any:
		list := l.CreateTable(len(r), 0)
		for _, element := range r {
			if status, ok := element.(server.Simple); ok {
				_ = any(status).(string) // panics, as miniredis does: the script ends with this error
			}
			list.Append(valueOf(l, element))
		}
		return list
	}
	return lua.LString(reply.(string))
}

func tableOf(l *lua.LState, field, text string) *lua.LTable {
	table := l.CreateTable(0, 1)
	table.RawSetString(field, lua.LString(text))
	return table
}

func hexSum(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}
