package rules

import (
	"fmt"
	"strconv"

	"github.com/hybridlimit/hybridlimit"
)

// maxFloors is the largest number of different floors of a kind: hybrid.Config.Classes has no more.
const maxFloors = 7

// kind names the rules that share the classes of one limiter.
type kind struct {
	domain    string
	algorithm hybridlimit.Algorithm
	overshoot float64
}

// floor reads the floor of a descriptor. Own is the rate_limit of the descriptor, and above is that of the nearest
// descriptor around it; nil: none. It returns nil if the floor is not valid.
func (b *builder) floor(f field, own, above *Rule) *Rule {
	n := f.value()
	value, err := strconv.ParseFloat(n.Value, 64)
	valid := err == nil && isPlain(n) && value >= 0 && value <= 0.5
	if !valid {
		b.add(n.Line, f.path, Other, "", "must be a number from 0 to 0.5, and is "+shown(n))
	}
	problem := ""
	switch {
	case own != nil:
		problem = "must not be beside rate_limit: it is of calls that use the limit of a descriptor around them"
	case above == nil:
		problem = "must be inside a descriptor with rate_limit, whose limit its calls use"
	case above.Unlimited:
		problem = fmt.Sprintf("must not be inside %s, which is unlimited", under("", above.Path))
	case above.Limit.Algorithm == hybridlimit.AlgSlidingLog:
		problem = fmt.Sprintf("must not be inside %s: a sliding log has no floors", under("", above.Path))
	}
	if problem != "" {
		b.add(f.line, f.path, Other, "", problem)
		valid = false
	}
	if !valid {
		return nil
	}
	class := *above
	class.Of, class.Floor, class.File, class.Line = above, value, b.file, f.line
	if value > 0 && above.Limit.Algorithm != hybridlimit.AlgBlocked && above.Limit.Rate > 0 {
		b.count(f, &class)
	}
	return &class
}

// count notes a floor among those of its kind.
func (b *builder) count(f field, class *Rule) {
	if class.Limit.BurstSize() == 1 {
		b.warn(f.line, f.path, "leaves nothing to other calls: the limit has one unit")
	}
	k := kind{class.Domain, class.Limit.Algorithm, class.Overshoot}
	floors := b.floors[k]
	if floors == nil {
		floors = map[float64]bool{}
		b.floors[k] = floors
	}
	if floors[class.Floor] {
		return
	}
	if len(floors) == maxFloors {
		b.add(f.line, f.path, Other, "", fmt.Sprintf("(%v) is one more than %d different floors, the most in a domain for one algorithm and overshoot", class.Floor, maxFloors))
		return
	}
	floors[class.Floor] = true
}
