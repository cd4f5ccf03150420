package lua

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash/fnv"
	"strconv"

	"github.com/hybridlimit/hybridlimit"
)

// schema is the version in every key: another schema is another keyspace.
const schema = "v2"

// DefaultTags is how many slots keys are spread over unless configured.
const DefaultTags = 16

// MaxTags is how many slots a Redis Cluster has.
const MaxTags = 16384

// Names builds the Redis keys of one deployment. Prefix and limiter names hold
// no colon, brace or '@' (hybridlimit.CheckName), so a name can never be taken
// for another part; the caller's key comes last and may hold anything.
//
//	prefix:v2:{tag}:name:key      state of a key
//	prefix:v2:{tag}:@epoch        when this tag's states began
//	prefix:v2:{tag}:@env:process  last batch of a process
//	prefix:v2:{tag}:@fleet:name   heartbeats of a limiter
//	prefix:v2:{tag}:@switch:name  what its fleet was told, in the heartbeats' slot
//
// With HashKeys the caller's key is replaced by the first 128 bits of an
// HMAC-SHA-256 (RFC 2104) of the limiter's name and the key, in 22 letters of
// base64url: so it cannot be read in Redis, nor be told there that two limiters
// know the same one. Two of n keys share one with a probability below n²/2¹²⁹: of
// a billion keys 10⁻²⁰ and less. Without the secret nobody can look for such a
// pair but by trying, 2⁶⁴ keys of one limiter.
type Names struct {
	Prefix   string             // of every key
	Tags     int                // slots; part of the deployment's identity
	HashKeys hybridlimit.Secret // empty: keys as they are; as much part of it
}

// hashedBytes is how much of a hash stands for a key.
const hashedBytes = 16

// hashed is what stands for a text of a domain in Redis. Domains hold no zero
// byte.
func (n Names) hashed(domain, text string) string {
	mac := hmac.New(sha256.New, []byte(n.HashKeys))
	mac.Write([]byte(domain))
	mac.Write([]byte{0})
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:hashedBytes])
}

// Digest stands for a limiter's key where the key may not be seen, such as in a
// log: 22 letters, those that stand for it in Redis with HashKeys. Without
// HashKeys whoever can guess a key can check the guess.
func (n Names) Digest(name, key string) string { return n.hashed(name, key) }

// Tag is the slot number of a subject: its hash modulo Tags. Redis hashes the
// first braces of a key, which hold the tag, so that braces in a caller's key
// are data. The hash is no secret: who chooses keys can choose which of the tags
// they fall into.
//
// With HashKeys it is that of the subject's hash, or the tag would tell as much
// of the subject as it has bits.
func (n Names) Tag(subject string) int {
	if n.HashKeys != "" {
		subject = n.hashed("", subject) // no limiter has an empty name
	}
	return n.plainTag(subject)
}

func (n Names) plainTag(subject string) int {
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
func (n Names) State(tag int, name, key string) string {
	if n.HashKeys != "" {
		key = n.hashed(name, key)
	}
	return n.base(tag) + name + ":" + key
}

// Epoch is the key of a tag's epoch.
func (n Names) Epoch(tag int) string { return n.base(tag) + "@epoch" }

// Envelope is the key of a process's last batch in a tag.
func (n Names) Envelope(tag int, process string) string { return n.base(tag) + "@env:" + process }

// FleetTag is the slot of what belongs to a limiter as a whole. HashKeys does not
// matter: a limiter's name is no secret.
func (n Names) FleetTag(name string) int { return n.plainTag(name) }

// Fleet is the key of a limiter's heartbeats.
func (n Names) Fleet(name string) string { return n.base(n.FleetTag(name)) + "@fleet:" + name }

// Switch is the key of a limiter's switch. It is in the slot of its heartbeats,
// which read it.
func (n Names) Switch(name string) string { return n.base(n.FleetTag(name)) + "@switch:" + name }
