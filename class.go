package hybridlimit

import (
	"math"
)

// Class is a class of calls of a limiter, for example "batch", of local.Config.Classes and hybrid.Config.Classes.
type Class struct {
	// Name names the class, [A-Za-z0-9_.-]{1,128}. "critical" is the name of the limiter's own class.
	Name string
	// Floor is the part of the burst that the class leaves to classes with a smaller floor: above 0, at most 0.5. It is
	// rounded up to whole units, but never above half of the burst. Different classes have different floors.
	Floor float64
}

// Units returns the number of units of a limit that the class leaves to classes with a smaller floor: Floor of its
// burst, rounded up, and at most half of the burst. A limit that counts nothing, or calls in flight, has none.
func (c Class) Units(limit Limit) int64 {
	if limit.Algorithm >= stateful {
		return 0
	}
	const rounding = 1e-9 // 0.07·100 is above 7
	burst := limit.BurstSize()
	return min(int64(math.Ceil(float64(burst)*c.Floor-rounding)), burst/2)
}

// ClassCritical is the name of the class with floor 0: the limiter itself.
const ClassCritical = "critical"
