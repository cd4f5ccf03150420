package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// NoKey is the answer to a request without a key: one for which every Key
// returned "" (ErrNoLimit), or that of a Required limit did (ErrNoKey). It is
// NoKeyDeny, NoKeyPass, or a status of 400 to 599:
//
//	httplimit.Config{NoKey: http.StatusUnauthorized}
type NoKey int

// The answers besides a status of one's choice.
const (
	// NoKeyDeny answers 429, without Retry-After. It is the zero value, because
	// a client often chooses whether it has a key: if such a request passed,
	// leaving a header out would free it of its limit. It is no 5xx, because
	// the server works and any client can cause it.
	NoKeyDeny NoKey = 0
	// NoKeyPass hands the request to the handler, under no limit. It is for
	// limits by keys that a client cannot leave out. It cannot stand beside a
	// Required limit, which says the opposite.
	NoKeyPass NoKey = 1
)

// String is "deny", "pass" or the status.
func (k NoKey) String() string {
	switch k {
	case NoKeyDeny:
		return "deny"
	case NoKeyPass:
		return "pass"
	}
	return strconv.Itoa(int(k))
}

// valid reports whether k is an answer.
func (k NoKey) valid() bool {
	return k == NoKeyDeny || k == NoKeyPass || k >= 400 && k <= 599
}

// status is that of a request that may not pass.
func (k NoKey) status() int {
	if k == NoKeyDeny {
		return http.StatusTooManyRequests
	}
	return int(k)
}

// The failures of requests that limits were not asked about.
var (
	// ErrNoLimit is the failure of a request that no limit applies to: every Key
	// returned "", though Skip did not name the request.
	ErrNoLimit = errors.New("httplimit: no limit applies to the request")
	// ErrNoKey is the failure of a request for which the Key of a Required limit
	// returned "".
	ErrNoKey = errors.New("httplimit: a required limit has no key for the request")
)

// missingKey is the failure of a request without the key of limits[i].
func missingKey(i int, l Limit) error {
	if name, known := l.policyName(); known {
		return fmt.Errorf("%w: limits[%d] (%q)", ErrNoKey, i, name)
	}
	return fmt.Errorf("%w: limits[%d]", ErrNoKey, i)
}

// withoutKey answers a request without a key as the Config says.
func (g *gate) withoutKey(w http.ResponseWriter, r *http.Request, next http.Handler, err error) {
	g.log.noKey(r, err, g.cfg.NoKey)
	if g.cfg.NoKey == NoKeyPass {
		next.ServeHTTP(w, r)
		return
	}
	g.refuse(w, r, g.cfg.NoKey.status(), err)
}
