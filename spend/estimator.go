package spend

import (
	"math"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/hybridlimit/hybridlimit/adapter"
)

// EstimatorConfig configures an Estimator. The zero EstimatorConfig is ready to use.
type EstimatorConfig struct {
	// Quantile is the share of calls that an estimate covers: the others use more, and pay it with Use. A larger one
	// takes more units that come back later. Range: above 0, below 1. Zero: 0.95.
	Quantile float64
	// MaxClasses bounds the classes in memory. The least recently used one is forgotten. Zero: 1000.
	MaxClasses int
}

// Estimator learns what calls use, by class: a model, an endpoint, a kind of prompt. It is safe for concurrent use.
type Estimator struct {
	quantile float64
	early    int

	mu      sync.Mutex // guards classes, and what they hold
	classes *simplelru.LRU[string, *class]
}

// class is the quantile of one class.
type class struct {
	seen  int     // up to early
	bound float64 // the estimate, at least 1
}

// step is the factor, as a logarithm, by which an estimate follows one call.
const step = 0.05

// NewEstimator returns an Estimator that knows no class. Its error (ErrInvalid) lists everything wrong with cfg.
func NewEstimator(cfg EstimatorConfig) (*Estimator, error) {
	var bad adapter.Violations
	if !(cfg.Quantile >= 0 && cfg.Quantile < 1) { // written so that NaN is a violation too
		bad.Add("EstimatorConfig.Quantile", cfg.Quantile, "must be above 0 and below 1, or 0 for 0.95")
	}
	bad.AddIf(cfg.MaxClasses < 0, "EstimatorConfig.MaxClasses", cfg.MaxClasses, "must not be negative")
	if err := bad.Err("spend"); err != nil {
		return nil, err
	}
	if cfg.Quantile == 0 {
		cfg.Quantile = 0.95
	}
	if cfg.MaxClasses == 0 {
		cfg.MaxClasses = 1000
	}
	classes, err := simplelru.NewLRU[string, *class](cfg.MaxClasses, nil)
	if err != nil {
		return nil, err
	}
	early := int(min(1/(1-cfg.Quantile), 1000))
	return &Estimator{quantile: cfg.Quantile, early: early, classes: classes}, nil
}

// Estimate returns the units to take for a call of a class: the quantile of what such calls have used, and at most the
// ceiling, which is the most that the call can use. The first estimate of a class is the ceiling. As long as fewer
// calls were observed than the quantile needs to be known, 20 for 0.95, it is the largest use so far. It costs about 20
// ns (BenchmarkEstimate).
func (e *Estimator) Estimate(class string, ceiling int64) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, ok := e.classes.Get(class)
	if !ok || c.bound >= float64(ceiling) {
		return ceiling
	}
	return int64(math.Ceil(c.bound))
}

// Observe tells what a call of a class has used. It ignores a negative use. After a change of use to ten times, about
// 50 calls are estimated too low. After one to a tenth, about 900 calls are estimated too high.
//
// The estimate follows each call by a factor, up by e^(step·quantile) and down by e^(step·(quantile-1)), so that both
// are in balance at the quantile (A. Yazidi and H. Hammer, Multiplicative Update Methods for Incremental Quantile
// Estimation, 2019). It keeps one number a class, and forgets old calls.
func (e *Estimator) Observe(name string, actual int64) {
	if actual < 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c, ok := e.classes.Get(name)
	if !ok {
		c = &class{bound: 1}
		e.classes.Add(strings.Clone(name), c) // the caller's may be a piece of a request
	}
	used := float64(actual)
	switch {
	case c.seen < e.early:
		c.seen++
		c.bound = max(c.bound, used)
	case used > c.bound:
		c.bound *= math.Exp(step * e.quantile)
	default:
		c.bound = max(1, c.bound*math.Exp(step*(e.quantile-1)))
	}
	c.bound = min(c.bound, math.MaxInt64/2)
}
