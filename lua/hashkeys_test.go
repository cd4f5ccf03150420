package lua_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/lua"
)

const secret = "0123456789abcdef0123456789abcdef"

var hashedState = regexp.MustCompile(`^hl:v2:\{(\d+)\}:api:[A-Za-z0-9_-]{22}$`)

// The name of a key is part of the stored format, as its value is. The hash is the first
// 16 bytes of: printf 'api\0user-1' | openssl dgst -sha256 -hmac SECRET.
func TestHashedNamesGolden(t *testing.T) {
	n := lua.Names{Prefix: "hl", Tags: 16, HashKeys: secret}
	plain := lua.Names{Prefix: "hl", Tags: 16}
	if got, want := n.State(3, "api", "user-1"), "hl:v2:{3}:api:WgzsHqiRwkmuvC9r6yt-6g"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := n.Tag("user-1"), plain.Tag("I5DlasZ0yILeS8JysdaHsg"); got != want {
		t.Errorf("tag = %d, want %d, the tag of the hash", got, want)
	}
	// A tool without the secret finds the keys that belong to a limiter.
	if n.Group("x") != plain.Group("x") || n.Switch("api") != plain.Switch("api") || n.Epoch(3) != plain.Epoch(3) || n.Envelope(3, "p") != plain.Envelope(3, "p") {
		t.Error("HashKeys changed a key that is not a caller's")
	}
}

// A hash depends on the secret, the limiter and the key, and on nothing else. Its letters
// and its length reveal nothing of the key.
func FuzzHashedNames(f *testing.F) {
	f.Add("api", "user-1", "api", "user-2")
	f.Add("a", "pi:x", "ap", "i:x")
	f.Add("api", "", "api", "\x00")
	f.Add("api", strings.Repeat("x", 1<<16), "api", strings.Repeat("x", 1<<16+1))
	f.Add("api", "\xff{}\r\n", "api", "{}")
	n, other := lua.Names{Prefix: "hl", Tags: 16, HashKeys: secret}, lua.Names{Prefix: "hl", Tags: 16, HashKeys: secret + "x"}
	f.Fuzz(func(t *testing.T, name1, key1, name2, key2 string) {
		name1, name2 = "api"+fmt.Sprint(len(name1)), "api"+fmt.Sprint(len(name2))
		one := n.State(1, name1, key1)
		if tag := n.Tag(key1); one != n.State(1, name1, key1) || tag != n.Tag(key1) {
			t.Error("the same name and key gave two hashes")
		}
		if same := name1 == name2 && key1 == key2; (one == n.State(1, name2, key2)) != same {
			t.Errorf("%q, %q and %q, %q", name1, key1, name2, key2)
		}
		if one == other.State(1, name1, key1) {
			t.Error("two secrets gave the same hash")
		}
		if name1 != name2 && one[len(one)-22:] == n.State(1, name2, key1)[len(one)-22:] {
			t.Error("two limiters have the same hash for a key")
		}
		if got := n.State(n.Tag(key1), "api", key1); !hashedState.MatchString(got) {
			t.Errorf("%q is %q", key1, got)
		}
	})
}

// If keys are hashed, the digest of a key in logs is the hash of the key in Redis. Two
// limiters have different digests, and so have two secrets.
func TestDigest(t *testing.T) {
	n := lua.Names{Prefix: "hl", Tags: 16, HashKeys: secret}
	const key = "alice@example.com"
	if d := n.Digest("api", key); !strings.HasSuffix(n.State(n.Tag(key), "api", key), ":"+d) {
		t.Errorf("digest %q of %q", d, n.State(n.Tag(key), "api", key))
	}
	seen := map[string]bool{}
	for _, names := range []lua.Names{{}, {HashKeys: secret}} {
		for _, of := range [][2]string{{"api", key}, {"login", key}, {"api", "bob"}} {
			d := names.Digest(of[0], of[1])
			if len(d) != 22 || strings.Contains(d, "alice") || d != names.Digest(of[0], of[1]) {
				t.Errorf("%q", d)
			}
			seen[d] = true
		}
	}
	if len(seen) != 6 {
		t.Errorf("%d different digests, want 6", len(seen))
	}
}

// Tags are chosen by the hash, as evenly as without hashing.
func TestHashedTagsSpread(t *testing.T) {
	n, counts := lua.Names{Prefix: "hl", Tags: 16, HashKeys: secret}, make([]int, 16)
	for i := range 16_000 {
		counts[n.Tag(fmt.Sprint("user-", i))]++
	}
	for tag, c := range counts {
		if c < 800 || c > 1200 {
			t.Errorf("tag %d has %d of 16000 keys", tag, c)
		}
	}
}

func BenchmarkHashedNames(b *testing.B) {
	for _, n := range []lua.Names{{Prefix: "hl", Tags: 16}, {Prefix: "hl", Tags: 16, HashKeys: secret}} {
		b.Run(fmt.Sprint("hashed ", n.HashKeys != ""), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n.State(n.Tag("user-1@example.com"), "api", "user-1@example.com")
			}
		})
	}
}
