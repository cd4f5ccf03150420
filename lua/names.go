package lua

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash/fnv"
	"strconv"

	"github.com/hybridlimit/hybridlimit"
)

// schema is the version in every key. With another schema all keys start as unused keys.
const schema = "v2"

// DefaultTags is the default number of tags.
const DefaultTags = 16

// MaxTags is the largest number of tags. It is the number of slots of a Redis Cluster.
const MaxTags = 16384

// Names builds the Redis keys of one deployment. Prefix and limiter names contain no colon, brace or '@'
// (adapter.CheckName), so a name is never mistaken for another part. The caller's key comes last and may contain
// any bytes.
//
//	prefix:v2:{tag}:name:key      state of a key
//	prefix:v2:{tag}:name@2of4:key state of a part of a split key, here the second of four
//	prefix:v2:{tag}:@epoch        when this tag's states began
//	prefix:v2:{tag}:@env:process  last batch of a process
//	prefix:v2:{tag}:@holdings     memory of the permits of a tag
//	prefix:v2:{tag}:@held:name:key  permits of calls in flight of a key
//	prefix:v2:{tag}:@rate:name:key  leased rates of a key
//	prefix:v2:{tag}:@lease:process:name:key  the leased rate of a process
//
// These keys of all limiters share one tag, since one heartbeat serves them all:
//
//	prefix:v2:{tag}:@groups       directory of the groups: sets of limiters of a process
//	prefix:v2:{tag}:@group:id     heartbeats of the processes of a group
//	prefix:v2:{tag}:@names:id     names of the limiters of a group
//	prefix:v2:{tag}:@changed      time of the last change of a switch or a fleet's limit
//	prefix:v2:{tag}:@members      last heartbeats of processes with limits of calls in flight
//	prefix:v2:{tag}:@wanted       marks of keys of which units are wanted
//	prefix:v2:{tag}:@switch:name  the fleet's switch of a limiter
//	prefix:v2:{tag}:@limit:name   the fleet's limit of a limiter
//	prefix:v2:{tag}:@keys:name    the fleet's limits of keys of a limiter
//
// With HashKeys, a hash replaces the caller's key: the first 128 bits of an HMAC-SHA-256 (RFC 2104) of the limiter's
// name and the key, in 22 letters of base64url. So a reader of Redis cannot read the key, and cannot tell whether two
// limiters have the same key. The probability that two of n keys share a hash is below n²/2¹²⁹; for a billion keys it
// is 10⁻²⁰ or less. Without the secret, such a pair can only be found by trying 2⁶⁴ keys of one limiter.
type Names struct {
	Prefix   string             // of every key
	Tags     int                // number of tags; part of the deployment's identity
	HashKeys hybridlimit.Secret // empty: keys as they are; part of the deployment's identity
}

// hashedBytes is the number of bytes of a hash that replace a key.
const hashedBytes = 16

// hashed returns the text that replaces a text of a domain in Redis. A domain contains no zero byte.
func (n Names) hashed(domain, text string) string {
	mac := hmac.New(sha256.New, []byte(n.HashKeys))
	mac.Write([]byte(domain))
	mac.Write([]byte{0})
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:hashedBytes])
}

// Digest returns 22 letters that replace a limiter's key in places where the key must not appear, such as a log. With
// HashKeys they are the letters that replace it in Redis. Without HashKeys, a guess of the key can be checked against
// the digest.
func (n Names) Digest(name, key string) string { return n.hashed(name, key) }

// Tag returns the tag of a text: its hash modulo Tags. Redis derives the cluster slot of a key from the text in its
// first braces, which is the tag. So braces in a caller's key are data. The hash is no secret: a client that chooses
// keys can choose their tags.
//
// With HashKeys, the tag is that of the text's hash. Otherwise the tag would reveal some bits of the text.
func (n Names) Tag(text string) int {
	if n.HashKeys != "" {
		text = n.hashed("", text) // no limiter has an empty name
	}
	return n.plainTag(text)
}

func (n Names) plainTag(text string) int {
	h := fnv.New64a()
	h.Write([]byte(text))
	// The low bits of FNV-1a are weak for short strings, so the high bits are folded in.
	sum := h.Sum64()
	return int((sum ^ sum>>32) % uint64(n.Tags))
}

func (n Names) base(tag int) string {
	return n.Prefix + ":" + schema + ":{" + strconv.Itoa(tag) + "}:"
}

// State returns the Redis key of a limiter's state for a caller's key.
func (n Names) State(tag int, name, key string) string {
	return n.base(tag) + name + ":" + n.Stored(name, key)
}

// PartState returns the Redis key of the state of a part of a split key: of the nth, from 1, of so many. tag is that of
// PartTag.
func (n Names) PartState(tag int, name string, nth, of int, key string) string {
	return n.base(tag) + PartName(name, nth, of) + ":" + n.Stored(name, key)
}

// PartName returns the text that replaces a limiter's name in the Redis key of a part: "api@2of4".
func PartName(name string, nth, of int) string {
	return name + "@" + strconv.Itoa(nth) + "of" + strconv.Itoa(of)
}

// Holdings returns the Redis key of the memory of a tag's permits.
func (n Names) Holdings(tag int) string { return n.base(tag) + "@holdings" }

// Held returns the Redis key of the permits that processes hold for a caller's key.
func (n Names) Held(tag int, name, key string) string {
	return n.base(tag) + heldBegin + name + ":" + n.Stored(name, key)
}

// Rate returns the Redis key of the leased rates of a caller's key.
func (n Names) Rate(tag int, name, key string) string {
	return n.base(tag) + rateBegin + name + ":" + n.Stored(name, key)
}

// Lease returns the Redis key of the lease that a process has of a rate.
func (n Names) Lease(tag int, process, name, key string) string {
	return n.base(tag) + "@lease:" + process + ":" + name + ":" + n.Stored(name, key)
}

// Epoch returns the Redis key of a tag's epoch.
func (n Names) Epoch(tag int) string { return n.base(tag) + "@epoch" }

// Envelope returns the Redis key of a process's last batch in a tag.
func (n Names) Envelope(tag int, process string) string { return n.base(tag) + "@env:" + process }

// FleetTag returns the tag of the heartbeats, the switches and the fleets' limits of all limiters. It does not depend
// on HashKeys, since a limiter's name is no secret.
func (n Names) FleetTag() int { return n.plainTag(n.Prefix) }

func (n Names) fleet(what string) string { return n.base(n.FleetTag()) + what }

// Groups returns the Redis key of the directory of groups.
func (n Names) Groups() string { return n.fleet("@groups") }

// Group returns the Redis key of the heartbeats of a group.
func (n Names) Group(id string) string { return n.fleet("@group:" + id) }

// GroupNames returns the Redis key of the names of a group.
func (n Names) GroupNames(id string) string { return n.fleet("@names:" + id) }

// Members returns the Redis key of the last heartbeats of processes with permits.
func (n Names) Members() string { return n.fleet("@members") }

// Changed returns the Redis key of the time of the last change of a switch or a fleet's limit.
func (n Names) Changed() string { return n.fleet("@changed") }

// Wanted returns the Redis key of the marks of keys of which units are wanted. A mark is a Digest.
func (n Names) Wanted() string { return n.fleet("@wanted") }

// Paused returns the Redis key of the pauses of keys of all limiters. A mark is a Digest.
func (n Names) Paused() string { return n.fleet("@paused") }

// Switch returns the Redis key of a limiter's switch.
func (n Names) Switch(name string) string { return n.fleet("@switch:" + name) }

// FleetLimit returns the Redis key of the fleet's limit of a limiter.
func (n Names) FleetLimit(name string) string { return n.fleet("@limit:" + name) }

// KeyLimits returns the Redis key of the fleet's limits of keys of a limiter.
func (n Names) KeyLimits(name string) string { return n.fleet("@keys:" + name) }

// Stored returns the text that stands for a caller's key of a limiter in Redis: the key, or with HashKeys its hash.
func (n Names) Stored(name, key string) string {
	if n.HashKeys == "" {
		return key
	}
	return n.hashed(name, key)
}
