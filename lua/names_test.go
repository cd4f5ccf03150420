package lua_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/lua"
)

func TestNamesGolden(t *testing.T) {
	n := lua.Names{Prefix: "hl", Tags: 16}
	tag := n.Tag("user-1")
	for got, want := range map[string]string{
		n.State(tag, "api", "user-1"): "hl:v1:{14}:api:user-1",
		n.State(3, "api", "a}{b:c"):   "hl:v1:{3}:api:a}{b:c",
		n.Epoch(3):                    "hl:v1:{3}:@epoch",
		n.Envelope(3, "0af1"):         "hl:v1:{3}:@env:0af1",
		n.Fleet("api"):                "hl:v1:{" + strconv.Itoa(n.Tag("api")) + "}:@fleet:api",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// hashTag is what Redis Cluster hashes of a key: the text between the first
// "{" and the first "}" after it, or all of the key where there is none.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// slot is the cluster slot of a key: CRC-16/XMODEM of its hash tag.
func slot(key string) int {
	crc := uint16(0)
	for _, c := range []byte(hashTag(key)) {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}

// No two of (name, key), and none of the library's own keys, share a Redis
// key; and all keys of a tag share its slot.
func FuzzNames(f *testing.F) {
	f.Add("api", "user-1", "api", "user-2")
	f.Add("a", "b:c", "a:b", "c")
	f.Add("api", "{x}", "api", "}{")
	f.Add("api", "@epoch", "epoch", "@env:1")
	f.Add("", "", "a", "\x00\xff")
	f.Fuzz(func(t *testing.T, name1, key1, name2, key2 string) {
		if !hybridlimit.CheckName(name1) || !hybridlimit.CheckName(name2) {
			return // refused by the constructors
		}
		n := lua.Names{Prefix: "hl", Tags: 16}
		tag1, tag2 := n.Tag(key1), n.Tag(key2)
		redis1, redis2 := n.State(tag1, name1, key1), n.State(tag2, name2, key2)
		if same := name1 == name2 && key1 == key2; (redis1 == redis2) != same {
			t.Errorf("(%q, %q) is %q, (%q, %q) is %q", name1, key1, redis1, name2, key2, redis2)
		}
		own := []string{n.Epoch(tag1), n.Envelope(tag1, name1), n.Fleet(name1)}
		if slices.Contains(own, redis1) || slices.Contains(own, redis2) {
			t.Errorf("%q or %q is a key of the library's own", redis1, redis2)
		}
		if tag1 < 0 || tag1 >= n.Tags {
			t.Errorf("%q is in tag %d", key1, tag1)
		}
		for _, key := range append(own[:2], redis1) {
			if hashTag(key) != strconv.Itoa(tag1) {
				t.Errorf("Redis hashes %q of %q, not %d", hashTag(key), key, tag1)
			}
		}
	})
}

func TestTagDependsOnTheSubjectOnly(t *testing.T) {
	a, b := lua.Names{Prefix: "a", Tags: 16}, lua.Names{Prefix: "b", Tags: 16}
	for i := range 100 {
		if s := strconv.Itoa(i); a.Tag(s) != b.Tag(s) {
			t.Errorf("%s: %d and %d", s, a.Tag(s), b.Tag(s))
		}
	}
}

// Sequential keys spread over the tags within a fifth of their mean.
func TestTagsSpread(t *testing.T) {
	for _, form := range []string{"user-%", "%", "10.0.0.%", "tenant-7:user-%", "%@example.com"} {
		for _, tags := range []int{16, 12} {
			n, counts := lua.Names{Prefix: "hl", Tags: tags}, make([]int, tags)
			const keys = 16_000
			for i := range keys {
				counts[n.Tag(strings.Replace(form, "%", strconv.Itoa(i+1), 1))]++
			}
			mean := keys / tags
			if least, most := slices.Min(counts), slices.Max(counts); least < mean*8/10 || most > mean*12/10 {
				t.Errorf("%q over %d tags: %d to %d, mean %d: %v", form, tags, least, most, mean, counts)
			}
		}
	}
}

// The tags' slots, by third of a cluster of three equal masters. The split is
// the CRC's and no choice of the library's; that no master is left out is.
func TestTagsOverAClusterOfThree(t *testing.T) {
	if got := slot("123456789"); got != 0x31C3 { // the CRC's check value
		t.Fatalf("slot %#x", got)
	}
	n, masters := lua.Names{Prefix: "hl", Tags: lua.DefaultTags}, make([]int, 3)
	for tag := range n.Tags {
		masters[slot(n.Epoch(tag))*3/16384]++
	}
	t.Logf("%d tags over three masters: %v", n.Tags, masters)
	if slices.Min(masters) == 0 {
		t.Errorf("a master has no tag: %v", masters)
	}
}
