package parts

import (
	"fmt"
	"hash/fnv"

	"github.com/hybridlimit/hybridlimit"
)

// Part is one part of a split key. The zero Part is the whole key.
type Part struct {
	Nth uint16 // from 1
	Of  uint16 // the number of parts; 0: the key is whole
}

// Home returns the part of a key that a process uses first. The parts of one key get about as many processes each.
func Home(process, key string, of int) Part {
	if of < 2 {
		return Part{}
	}
	h := fnv.New64a()
	h.Write([]byte(process))
	h.Write([]byte{0})
	h.Write([]byte(key))
	sum := h.Sum64() // its low bits depend on the last byte only: without more mixing, homes in two keys are the same
	sum = (sum ^ sum>>33) * 0xff51afd7ed558ccd
	sum ^= sum >> 33
	return Part{Nth: uint16(sum%uint64(of)) + 1, Of: uint16(of)}
}

// Check returns an error if a limit cannot be split into so many parts. most is the largest number of parts of a key.
func Check(limit hybridlimit.Limit, of, most int) error {
	switch {
	case of >= 0 && of < 2:
		return nil
	case of < 0 || of > most:
		return fmt.Errorf("%w: %d parts: must be 0 to %d, which is HubConfig.Tags", hybridlimit.ErrInvalid, of, most)
	}
	switch limit.Algorithm {
	case hybridlimit.AlgUnlimited, hybridlimit.AlgBlocked: // there is nothing to split
		return nil
	case hybridlimit.AlgSlidingLog, hybridlimit.AlgLeakyQueue, hybridlimit.AlgConcurrent:
		return fmt.Errorf("%w: a limit of the algorithm %v cannot be split", hybridlimit.ErrUnsupported, limit.Algorithm)
	}
	if least := min(limit.Rate, limit.BurstSize()); int64(of) > least {
		return fmt.Errorf("%w: %d parts of the limit %v: must be at most its rate and its burst, %d", hybridlimit.ErrInvalid, of, limit, least)
	}
	for _, nth := range []int{1, of} { // the largest and the smallest one
		if err := (Part{Nth: uint16(nth), Of: uint16(of)}).Limit(limit).Validate(); err != nil {
			return fmt.Errorf("%w: %d parts of the limit %v: part %d: %w", hybridlimit.ErrInvalid, of, limit, nth, err)
		}
	}
	return nil
}

// Limit returns the limit of a part. The first parts get the remainders, so the limits of all parts add up to that of
// the key.
func (p Part) Limit(of hybridlimit.Limit) hybridlimit.Limit {
	if p.Of < 2 || of.Algorithm == hybridlimit.AlgUnlimited || of.Algorithm == hybridlimit.AlgBlocked {
		return of
	}
	of.Rate = p.share(of.Rate)
	if of.Burst > 0 { // otherwise the burst is the rate
		of.Burst = p.share(of.Burst)
	}
	return of
}

func (p Part) share(n int64) int64 {
	k, j := int64(p.Of), int64(p.Nth)
	if j <= n%k {
		return n/k + 1
	}
	return n / k
}

// Among returns the number of processes that a part has, of n: the others use other parts. It rounds up.
func (p Part) Among(n int64) int64 {
	if p.Of < 2 {
		return n
	}
	return (n + int64(p.Of) - 1) / int64(p.Of)
}
