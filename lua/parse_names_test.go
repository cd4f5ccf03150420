package lua_test

import (
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/lua"
)

// Parse reads every name that Names builds, with any caller's key. It accepts no other
// name.
func TestNamesAreReadBack(t *testing.T) {
	n := lua.Names{Prefix: "hl", Tags: 16}
	for _, key := range []string{"alice", "a:b", "y}:api:z", "{a}", "@fleet:x", "ip:2001:db8::/64", "*", " "} {
		if p, ok := n.Parse(n.State(3, "api", key)); !ok || p != (lua.Part{Tag: 3, Limiter: "api", Key: key}) {
			t.Errorf("%q: %+v, %v", key, p, ok)
		}
	}
	for _, whole := range []string{n.Switch("api"), n.FleetLimit("api")} {
		if p, ok := n.Parse(whole); !ok || p != (lua.Part{Tag: n.FleetTag(), Limiter: "api"}) {
			t.Errorf("%q: %+v, %v", whole, p, ok)
		}
	}
	state := n.State(3, "api", "k")
	for _, other := range []string{
		"", "session:1", n.Epoch(3), n.Envelope(3, "0af1"), n.Holdings(3), n.Held(3, "api", "k"), n.Groups(), n.Group("x"), n.GroupNames("x"), n.Changed(), (lua.Names{Prefix: "shop", Tags: 16}).State(3, "api", "k"),
		strings.Replace(state, "{3}", "{x}", 1), strings.Replace(state, "{3}", "{-3}", 1), strings.Replace(state, "{3}", "{}", 1),
		strings.TrimSuffix(state, "k"), strings.TrimSuffix(state, ":k"), n.State(3, "", "k"),
	} {
		if p, ok := n.Parse(other); ok {
			t.Errorf("%q parsed as %+v, want no match", other, p)
		}
	}
	if got, want := n.Pattern("api"), strings.Replace(n.State(3, "api", "*"), "{3}", "{*}", 1); got != want {
		t.Errorf("the pattern is %q, want %q", got, want)
	}
	if got, want := n.Pattern(""), strings.TrimSuffix(n.Pattern("api"), "api:*")+"*"; got != want {
		t.Errorf("the pattern of all is %q, want %q", got, want)
	}
}
