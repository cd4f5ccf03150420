package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"sync"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// maxKey is the length of the longest Key, in bytes.
const maxKey = 200

// key returns the Key of a descriptor:
//
//	domain|key=value|key=value
//
// A backslash stands before |, = and ~ in a key, before | in a value or domain, and before a backslash anywhere. So
// different descriptors have different keys. The value of a wildcard with share_threshold is the wildcard. If the key
// is not the beginning of the wildcard, ~ and the whole name of the wildcard stand for the value.
//
// A key above maxKey bytes is | and 32 hexadecimal digits of a hash. No other key begins with |, because a domain is
// not empty.
func key(domain string, entries []*ratelimit.RateLimitDescriptor_Entry, steps []step) string {
	var space [maxKey]byte
	k, fits := escaped(space[:0], domain, inText)
	for i := 0; i < len(entries) && fits; i++ {
		sign, value := counted(entries, steps, i)
		if fits = len(k) < maxKey; !fits {
			break
		}
		if k, fits = escaped(append(k, '|'), entries[i].GetKey(), inKey); !fits || len(k) == maxKey {
			fits = false
			break
		}
		k, fits = escaped(append(k, sign), value, inText)
	}
	if !fits {
		return hashed(domain, entries, steps)
	}
	return string(k)
}

// counted returns the value of entry i for which a rule counts, and its sign.
func counted(entries []*ratelimit.RateLimitDescriptor_Entry, steps []step, i int) (sign byte, value string) {
	if i < len(steps) && steps[i].shared() {
		if value, ok := pattern(steps[i].node.name, entries[i].GetKey()); ok {
			return '=', value
		}
		return '~', steps[i].node.name
	}
	return '=', entries[i].GetValue()
}

// The bytes that a backslash precedes.
const (
	inText = 1 << iota // in a domain or value
	inKey
)

var special = [256]uint8{'\\': inText | inKey, '|': inText | inKey, '=': inKey, '~': inKey}

// escaped appends a text with its backslashes. Fits reports whether the result has at most maxKey bytes.
func escaped(k []byte, text string, where uint8) (_ []byte, fits bool) {
	if len(k)+len(text) > maxKey {
		return k, false
	}
	from := 0
	for i := range len(text) {
		if special[text[i]]&where != 0 {
			k = append(append(k, text[from:i]...), '\\')
			from = i
		}
	}
	k = append(k, text[from:]...)
	return k, len(k) <= maxKey
}

// digest is a hash in use, with its buffer.
type digest struct {
	hash hash.Hash
	buf  [1024]byte
}

var digests = sync.Pool{New: func() any { return &digest{hash: sha256.New()} }}

// hashed returns the Key of a descriptor whose text is too long: a hash of the texts, each with its length.
func hashed(domain string, entries []*ratelimit.RateLimitDescriptor_Entry, steps []step) string {
	d := digests.Get().(*digest)
	defer digests.Put(d)
	d.hash.Reset()
	d.write(domain)
	for i, e := range entries {
		sign, value := counted(entries, steps, i)
		d.buf[0] = sign
		d.hash.Write(d.buf[:1])
		d.write(e.GetKey())
		d.write(value)
	}
	sum := d.hash.Sum(d.buf[:0])
	var k [1 + 2*16]byte
	k[0] = '|'
	hex.Encode(k[1:], sum[:16])
	return string(k[:])
}

// write adds the length of a text and the text to the hash.
func (d *digest) write(text string) {
	d.hash.Write(binary.LittleEndian.AppendUint64(d.buf[:0], uint64(len(text))))
	for len(text) > 0 {
		n := copy(d.buf[:], text)
		d.hash.Write(d.buf[:n])
		text = text[n:]
	}
}
