package hybridlimit

import (
	"fmt"
	"math"
	"slices"
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

// maxClasses is the largest number of classes that a limiter may have besides itself. In package hybrid, each of them
// counts as a process for credit.
const maxClasses = 7

// Classer is implemented by limiters with classes of calls, of which some leave a part of the limit to others. Adapters
// take the name of the class from a request.
type Classer interface {
	// ForClass returns the limiter of a class. For a name that is not declared it returns the class that leaves the
	// most to others. It never fails, and costs some ns.
	ForClass(name string) Limiter
}

// AddClasses adds the violations of Config.Classes of a limiter with this limit.
func (v *Violations) AddClasses(classes []Class, limit Limit) {
	if len(classes) == 0 {
		return
	}
	if len(classes) > maxClasses {
		v.Add("Config.Classes", len(classes), fmt.Sprintf("must not have more than %d classes", maxClasses))
	}
	if limit.Algorithm == AlgSlidingLog {
		v.Add("Config.Classes", len(classes), "is not for a sliding log, which has no floors")
	}
	for i, class := range classes {
		name, floor := fmt.Sprintf("Config.Classes[%d].Name", i), fmt.Sprintf("Config.Classes[%d].Floor", i)
		switch {
		case !CheckName(class.Name):
			v.Add(name, class.Name, "is required and must match [A-Za-z0-9_.-]{1,128}")
		case class.Name == ClassCritical:
			v.Add(name, class.Name, "is the name of the limiter's own class, whose floor is 0")
		case slices.ContainsFunc(classes[:i], func(o Class) bool { return o.Name == class.Name }):
			v.Add(name, class.Name, "is the name of another class too")
		}
		switch {
		case !(class.Floor > 0 && class.Floor <= 0.5): // also NaN
			v.Add(floor, class.Floor, "must be above 0 and at most 0.5")
		case slices.ContainsFunc(classes[:i], func(o Class) bool { return o.Floor == class.Floor }):
			v.Add(floor, class.Floor, "is the floor of another class too")
		}
	}
}
