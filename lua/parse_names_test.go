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
	for _, key := range []string{"alice", "a:b", "@2of4:x"} {
		if p, ok := n.Parse(n.PartState(3, "api", 2, 16, key)); !ok || p != (lua.Part{Tag: 3, Limiter: "api", Key: key, Nth: 2, Of: 16}) {
			t.Errorf("a part of %q: %+v, %v", key, p, ok)
		}
	}
	for _, key := range []string{"alice", "a:b", "@rate:x:y"} {
		if p, ok := n.Parse(n.Rate(3, "api", key)); !ok || p != (lua.Part{Tag: 3, Limiter: "api", Key: key, Leased: true}) {
			t.Errorf("the leased rates of %q: %+v, %v", key, p, ok)
		}
	}
	for _, whole := range []string{n.Switch("api"), n.FleetLimit("api")} {
		if p, ok := n.Parse(whole); !ok || p != (lua.Part{Tag: n.FleetTag(), Limiter: "api"}) {
			t.Errorf("%q: %+v, %v", whole, p, ok)
		}
	}
	state := n.State(3, "api", "k")
	for _, other := range []string{
		"", "session:1", n.Epoch(3), n.Envelope(3, "0af1"), n.Holdings(3), n.Held(3, "api", "k"), n.Rate(3, "api@1of2", "k"), n.Rate(3, "", "k"), n.Rate(3, "api", ""), n.Rate(3, "@rate:api", "k"), n.Lease(3, "0af1", "api", "k"), n.Groups(), n.Group("x"), n.GroupNames("x"), n.Changed(), n.Wanted(), n.Paused(), (lua.Names{Prefix: "shop", Tags: 16}).State(3, "api", "k"),
		strings.Replace(state, "{3}", "{x}", 1), strings.Replace(state, "{3}", "{-3}", 1), strings.Replace(state, "{3}", "{}", 1),
		n.PartState(3, "api", 0, 4, "k"), n.PartState(3, "api", 5, 4, "k"), n.PartState(3, "api", 1, 1, "k"), n.PartState(3, "", 1, 2, "k"), n.State(3, "api@x", "k"),
		n.State(3, "api@", "k"), n.State(3, "api@01of4", "k"), n.State(3, "api@1of4of4", "k"), strings.TrimSuffix(n.PartState(3, "api", 1, 2, "k"), "k"),
		strings.TrimSuffix(state, "k"), strings.TrimSuffix(state, ":k"), n.State(3, "", "k"),
	} {
		if p, ok := n.Parse(other); ok {
			t.Errorf("%q parsed as %+v, want no match", other, p)
		}
	}
	if got, want := n.Pattern("api"), "hl:v2:{*}:[a@]*"; got != want {
		t.Errorf("the pattern is %q, want %q", got, want)
	}
	if got, want := n.Pattern(""), strings.TrimSuffix(n.Pattern("api"), "[a@]*")+"*"; got != want {
		t.Errorf("the pattern of all is %q, want %q", got, want)
	}
}

// TestParseHeld checks that a key of permits is read back, and that no other key is one.
func TestParseHeld(t *testing.T) {
	for _, n := range []lua.Names{{Prefix: "hl", Tags: 16}, {Prefix: "a.b", Tags: 1}} {
		for _, key := range []string{"k", "a:b", "{x}", "@held:c:k", " "} {
			text := n.Held(0, "calls", key)
			if p, ok := n.ParseHeld(text); !ok || p.Limiter != "calls" || p.Key != key || p.Tag != 0 {
				t.Errorf("%q: %+v, %v", text, p, ok)
			}
			if p, ok := n.Parse(text); ok {
				t.Errorf("%q is read as a state: %+v", text, p)
			}
		}
		for _, text := range []string{"", "x", n.State(0, "calls", "k"), n.Holdings(0), n.Members(), n.Held(0, "", "k"), n.Held(0, "calls", ""), n.Switch("held"), n.Groups()} {
			if p, ok := n.ParseHeld(text); ok {
				t.Errorf("%q: %+v", text, p)
			}
		}
	}
}
