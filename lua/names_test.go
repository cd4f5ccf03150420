package lua_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hybridlimit/hybridlimit/adapter"
	"github.com/hybridlimit/hybridlimit/lua"
)

func TestNamesGolden(t *testing.T) {
	n := lua.Names{Prefix: "hl", Tags: 16}
	tag := n.Tag("user-1")
	for got, want := range map[string]string{
		n.State(tag, "api", "user-1"):         "hl:v2:{14}:api:user-1",
		n.State(3, "api", "a}{b:c"):           "hl:v2:{3}:api:a}{b:c",
		n.PartState(3, "api", 2, 4, "a}{b:c"): "hl:v2:{3}:api@2of4:a}{b:c",
		n.Epoch(3):                            "hl:v2:{3}:@epoch",
		n.Envelope(3, "0af1"):                 "hl:v2:{3}:@env:0af1",
		n.Holdings(3):                         "hl:v2:{3}:@holdings",
		n.Held(3, "api", "a}{b:c"):            "hl:v2:{3}:@held:api:a}{b:c",
		n.Groups():                            "hl:v2:{6}:@groups",
		n.Group("XYZ"):                        "hl:v2:{6}:@group:XYZ",
		n.GroupNames("XYZ"):                   "hl:v2:{6}:@names:XYZ",
		n.Changed():                           "hl:v2:{6}:@changed",
		n.Wanted():                            "hl:v2:{6}:@wanted",
		n.Paused():                            "hl:v2:{6}:@paused",
		n.Switch("api"):                       "hl:v2:{6}:@switch:api",
		n.FleetLimit("api"):                   "hl:v2:{6}:@limit:api",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// hashTag returns the part of a key that Redis Cluster hashes: the text between the first
// "{" and the first "}" after it, or the whole key if there is none.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// slot returns the cluster slot of a key: CRC-16/XMODEM of its hash tag.
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

// Two different triples (prefix, name, key) never share a Redis key, and never share one
// with the library's own keys. All keys of a tag are in one slot, which depends on the
// tag's number alone.
func FuzzNames(f *testing.F) {
	f.Add("hl", "api", "user-1", "hl", "api", "user-2", 16)
	f.Add("hl", "a", "b:c", "hl", "a:b", "c", 1)
	f.Add("hl", "api", "{x}", "h", "api", "}{", 16384)
	f.Add("hl", "api", "@epoch", "hl", "epoch", "@env:1", 7)
	f.Add("a", "v2", "x", "a.v2", "v2", "{0}:v2:x", 2)
	f.Add("hl", "", "", "hl", "a", "\x00\xff", 12)
	f.Fuzz(func(t *testing.T, prefix1, name1, key1, prefix2, name2, key2 string, tags int) {
		for _, name := range []string{prefix1, name1, prefix2, name2} {
			if !adapter.CheckName(name) {
				return // the constructors refuse it
			}
		}
		if tags < 1 || tags > lua.MaxTags {
			return // the constructors refuse it
		}
		a, b := lua.Names{Prefix: prefix1, Tags: tags}, lua.Names{Prefix: prefix2, Tags: tags}
		keys1, keys2 := names(a, name1, key1), names(b, name2, key2)
		for what, x := range keys1 {
			for other, y := range keys2 {
				same := what == other && prefix1 == prefix2
				switch what {
				case "state", "first part", "second part":
					same = same && name1 == name2 && key1 == key2
				case "epoch":
					same = same && a.Tag(key1) == b.Tag(key2)
				case "envelope": // here the process is named after the limiter
					same = same && a.Tag(key1) == b.Tag(key2) && name1 == name2
				case "group", "names", "switch", "limit": // here a group is named after the limiter
					same = same && name1 == name2
				}
				if (x == y) != same {
					t.Errorf("the %s of (%q, %q, %q) is %q, the %s of (%q, %q, %q) is %q", what, prefix1, name1, key1, x, other, prefix2, name2, key2, y)
				}
			}
		}
		tag := a.Tag(key1)
		if tag < 0 || tag >= tags {
			t.Errorf("%q is in tag %d of %d", key1, tag, tags)
		}
		for what, key := range keys1 {
			want := tag
			if what != "state" && what != "epoch" && what != "envelope" && !strings.HasSuffix(what, "part") {
				want = a.FleetTag()
			}
			if hashTag(key) != strconv.Itoa(want) {
				t.Errorf("Redis hashes %q of %q, want %d", hashTag(key), key, want)
			}
		}
	})
}

// names returns all Redis keys that a caller's key uses.
func names(n lua.Names, name, key string) map[string]string {
	tag := n.Tag(key)
	return map[string]string{
		"state": n.State(tag, name, key), "first part": n.PartState(tag, name, 1, 2, key), "second part": n.PartState(tag, name, 2, 2, key), "epoch": n.Epoch(tag), "envelope": n.Envelope(tag, name),
		"groups": n.Groups(), "group": n.Group(name), "names": n.GroupNames(name), "changed": n.Changed(), "wanted": n.Wanted(), "paused": n.Paused(), "switch": n.Switch(name), "limit": n.FleetLimit(name),
	}
}

// TestPartsOverACluster splits each key into k parts. On m masters with equal ranges of slots, no master has more than
// ⌈k/m⌉ parts, or one more if the few tags do not allow that. Each part has a tag of its own, which leads back to that
// of the key.
func TestPartsOverACluster(t *testing.T) {
	for _, c := range []struct{ tags, masters, parts, most int }{
		{16, 3, 2, 1}, {16, 3, 3, 2}, {16, 3, 4, 2}, {16, 3, 8, 3}, {16, 3, 16, 6}, {64, 3, 3, 2}, {256, 6, 8, 2}, {16, 6, 4, 1}, {64, 8, 8, 2}, {1, 3, 1, 1},
	} {
		n := lua.Names{Prefix: "hl", Tags: c.tags}
		for tag := range n.Tags {
			masters, seen := make([]int, c.masters), map[int]bool{}
			for nth := 1; nth <= c.parts; nth++ {
				part := n.PartTag(tag, nth, c.parts)
				if seen[part] || n.KeyTag(part, nth, c.parts) != tag || nth == 1 && part != tag {
					t.Errorf("%+v: part %d of tag %d is in tag %d", c, nth, tag, part)
				}
				seen[part] = true
				masters[slot(n.Epoch(part))*c.masters/16384]++
			}
			if got := slices.Max(masters); got > c.most {
				t.Errorf("%+v: the parts of tag %d are on the masters like %v", c, tag, masters)
			}
		}
	}
}

func TestTagDependsOnTheSubjectOnly(t *testing.T) {
	a, b := lua.Names{Prefix: "a", Tags: 16}, lua.Names{Prefix: "b", Tags: 16}
	for i := range 100 {
		if s := strconv.Itoa(i); a.Tag(s) != b.Tag(s) {
			t.Errorf("%s: %d and %d", s, a.Tag(s), b.Tag(s))
		}
	}
}

// Sequential keys spread over the tags: each tag has the mean ± a fifth.
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

// The tags spread over a cluster of three equal masters. The CRC decides the split. The
// library's choice is that every master has a tag.
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
