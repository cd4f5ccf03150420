package lua

import (
	"hash/fnv"
	"strconv"
)

// schema is the version in every key: another schema is another keyspace.
const schema = "v1"

// DefaultTags is how many slots keys are spread over unless configured.
const DefaultTags = 16

// MaxTags is how many slots a Redis Cluster has.
const MaxTags = 16384

// Names builds the Redis keys of one deployment. Prefix and limiter names hold
// no colon, brace or '@' (hybridlimit.CheckName), so a name can never be taken
// for another part; the caller's key comes last and may hold anything.
//
//	prefix:v1:{tag}:name:key      state of a key
//	prefix:v1:{tag}:@epoch        when this tag's states began
//	prefix:v1:{tag}:@env:process  last batch of a process
//	prefix:v1:{tag}:@fleet:name   heartbeats of a limiter
//	prefix:v1:{tag}:@switch:name  what its fleet was told, in the heartbeats' slot
type Names struct {
	Prefix string // of every key
	Tags   int    // slots; part of the deployment's identity
}

// Tag is the slot number of a subject: its hash modulo Tags. Redis hashes the
// first braces of a key, which hold the tag, so that braces in a caller's key
// are data and nobody outside chooses a slot.
func (n Names) Tag(subject string) int {
	h := fnv.New64a()
	h.Write([]byte(subject))
	// The low bits of FNV-1a are weak on short strings: fold the high ones in.
	sum := h.Sum64()
	return int((sum ^ sum>>32) % uint64(n.Tags))
}

func (n Names) base(tag int) string {
	return n.Prefix + ":" + schema + ":{" + strconv.Itoa(tag) + "}:"
}

// State is the key of a limiter's state for a caller's key.
func (n Names) State(tag int, name, key string) string { return n.base(tag) + name + ":" + key }

// Epoch is the key of a tag's epoch.
func (n Names) Epoch(tag int) string { return n.base(tag) + "@epoch" }

// Envelope is the key of a process's last batch in a tag.
func (n Names) Envelope(tag int, process string) string { return n.base(tag) + "@env:" + process }

// Fleet is the key of a limiter's heartbeats.
func (n Names) Fleet(name string) string { return n.base(n.Tag(name)) + "@fleet:" + name }

// Switch is the key of a limiter's switch. It is in the slot of its heartbeats,
// which read it.
func (n Names) Switch(name string) string { return n.base(n.Tag(name)) + "@switch:" + name }
