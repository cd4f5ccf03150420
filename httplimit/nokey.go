package httplimit

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/hybridlimit/hybridlimit/internal/gate"
)

// NoKey is the answer to a request without a key. A request has no key if every Limit.Key returns "" (ErrNoLimit), or
// if the Key of a Required limit does (ErrNoKey). NoKey is NoKeyDeny, NoKeyPass, or a status of 400 to 599:
//
//	httplimit.Config{NoKey: http.StatusUnauthorized}
type NoKey int

// The answers other than a status.
const (
	// NoKeyDeny answers 429, without Retry-After. It is the zero value because a client can often leave out its key; if
	// such a request were admitted, the client would have no limit. The status is not a 5xx, because the server works
	// and any client can cause this answer.
	NoKeyDeny NoKey = 0
	// NoKeyPass passes the request without a limit, to the Shedder if there is one and to the handler. It is for keys
	// that a client cannot leave out. It contradicts a Required limit, so New returns an error for both.
	NoKeyPass NoKey = 1
)

// String returns "deny", "pass" or the status.
func (k NoKey) String() string {
	switch k {
	case NoKeyDeny:
		return "deny"
	case NoKeyPass:
		return "pass"
	}
	return strconv.Itoa(int(k))
}

// valid reports whether k is NoKeyDeny, NoKeyPass, or a status of 400 to 599.
func (k NoKey) valid() bool {
	return k == NoKeyDeny || k == NoKeyPass || k >= 400 && k <= 599
}

// status returns the status of an answer other than NoKeyPass.
func (k NoKey) status() int {
	if k == NoKeyDeny {
		return http.StatusTooManyRequests
	}
	return int(k)
}

// The failures of requests for which no limiter was asked.
var (
	// ErrNoLimit is the failure of a request to which no limit applies: every Key returned "", and Skip did not exempt
	// the request.
	ErrNoLimit = errors.New("httplimit: no limit applies to the request")
	// ErrNoKey is the failure of a request if the Key of a Required limit returned "".
	ErrNoKey = errors.New("httplimit: a required limit has no key for the request")
)

// withoutKey answers a request without a key according to Config.NoKey.
func (g *middleware) withoutKey(w http.ResponseWriter, r *http.Request, class string, around *gate.Mark, next http.Handler, err error) {
	g.logNoKey(r, err)
	if g.cfg.NoKey == NoKeyPass {
		if g.cfg.Shedder != nil && !around.Placed(g.cfg.Shedder) {
			permit, ok := g.place(w, r, class, nil)
			if !ok {
				return
			}
			defer permit.Release()
		}
		g.pass(w, r, next, nil)
		return
	}
	g.refuse(w, r, g.cfg.NoKey.status(), err)
}

// logNoKey logs a request without a key. With NoKeyPass the level is Debug, because the Config asks for such requests
// to be admitted.
func (g *middleware) logNoKey(r *http.Request, err error) {
	level := slog.LevelWarn
	if g.cfg.NoKey == NoKeyPass {
		level = slog.LevelDebug
	}
	route := r.Pattern
	if route == "" {
		route = r.URL.Path
	}
	g.gate.Log.NoKey(r.Context(), level, "err", err,
		"method", gate.Shortened(r.Method), "route", gate.Shortened(route), "answer", g.cfg.NoKey.String(),
		"remedy", "exempt the request in Config.Skip, return a key for it in Limit.Key (Pattern(nil) has one only inside a ServeMux), or set Config.NoKey")
}
