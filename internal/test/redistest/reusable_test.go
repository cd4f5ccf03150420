package redistest

import (
	"slices"
	"testing"

	lua "github.com/yuin/gopher-lua"

	product "github.com/hybridlimit/hybridlimit/lua"
)

// TestScriptsAreReusable checks that each script of this module leaves its interpreter as it was.
func TestScriptsAreReusable(t *testing.T) {
	texts := slices.Clone(fastTexts)
	for _, s := range product.Scripts() {
		texts = append(texts, s.Source)
	}
	for _, text := range texts {
		if p, err := compile(text); err != nil || !reusable(p) {
			t.Errorf("%.60q may change an interpreter: %v", text, err)
		}
	}
	for _, text := range plainTexts {
		if p, err := compile(text); err == nil && reusable(p) {
			t.Errorf("%q is said to change nothing", text)
		}
	}
}

// The globals that a program may use. KEYS and ARGV are new for each call. The functions change no global and no
// library.
var (
	globals = []string{
		"KEYS", "ARGV", "assert", "error", "ipairs", "next", "pairs", "select", "tonumber", "tostring", "type",
		"unpack",
	}
	libraries = []string{"math", "string", "table"}
	calls     = []string{"call", "pcall"} // of redis
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
