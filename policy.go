package hybridlimit

// Policy is the limit that a limiter enforces on a key.
type Policy struct {
	// Name is the limiter's name, as in Result.Policy. Empty: none.
	Name string
	// Limit is the key's limit: the limiter's own, or that of its LimitFor.
	Limit Limit
	// Shadow is true if the limiter decides and counts but denies nothing now,
	// because of its configuration or a switch.
	Shadow bool
}

// Describer is a Limiter that reports the limits that it enforces, so that an
// adapter can publish them, for example in HTTP fields. The limiters of local,
// global and hybrid are Describers.
type Describer interface {
	Limiter
	// Name returns the limiter's name, as in Result.Policy. It never changes.
	// Empty: none.
	Name() string
	// Policy returns the limit of key. It takes no units and does not ask
	// Redis. It calls LimitFor and does not validate its answer. It does not
	// know a limit that came with a call (AllowLimit).
	Policy(key string) Policy
}
