package hybridlimit

// Policy is what a limiter enforces on a key.
type Policy struct {
	// Name is the limiter's, as in Result.Policy. Empty: it has none.
	Name string
	// Limit is the key's: the limiter's own, or what its LimitFor says.
	Limit Limit
	// Shadow says that the limiter decides and counts, and denies nobody, be it
	// by its configuration or by a switch that is set now.
	Shadow bool
}

// Describer is a Limiter that tells what it enforces, for those who publish it:
// in HTTP fields, say. The limiters of local, global and hybrid are.
type Describer interface {
	Limiter
	// Name is the limiter's, as in Result.Policy; it does not change. Empty: it
	// has none.
	Name() string
	// Policy takes nothing and asks nobody but LimitFor, whose answer it does
	// not check. A limit that came with a call (AllowLimit) is not in it.
	Policy(key string) Policy
}
