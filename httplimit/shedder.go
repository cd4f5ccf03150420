package httplimit

import (
	"net/http"
	"strconv"
	"time"

	"github.com/hybridlimit/hybridlimit"
	"github.com/hybridlimit/hybridlimit/internal/gate"
)

// place asks the Shedder for a place for a request that the limits have admitted. ok is false if the request has its
// answer. The permit is zero if the Shedder failed and FailOpen admits the request.
func (g *middleware) place(w http.ResponseWriter, r *http.Request, class string, parts []gate.Part) (permit hybridlimit.Permit, ok bool) {
	permit, res, err := g.cfg.Shedder.Acquire(r.Context(), class)
	switch {
	case err != nil:
		g.gate.Log.Failed(r.Context(), err, parts)
		if g.gate.Passes(r.Context(), err) {
			return permit, true
		}
		g.gate.GiveBack(r.Context(), parts)
		g.refuse(w, r, http.StatusServiceUnavailable, err)
	case res.Allowed:
		return permit, true
	default:
		g.gate.GiveBack(r.Context(), parts)
		g.shed(w, r, res)
	}
	return hybridlimit.Permit{}, false
}

// shed answers a request that the Shedder has shed. It is a 503, because the client has not exceeded a quota.
func (g *middleware) shed(w http.ResponseWriter, r *http.Request, res hybridlimit.Result) {
	d := Denial{Status: http.StatusServiceUnavailable, Result: res}
	retry := g.retryAfter(&res)
	d.RetryAfter = time.Duration(min(retry, int64(hybridlimit.Never/time.Second))) * time.Second
	h := w.Header()
	withdraw(h)
	h.Set("Cache-Control", "no-store")
	if retry > 0 {
		h[fieldRetryAfter] = []string{strconv.FormatInt(retry, 10)}
	}
	g.cfg.Denied(w, r, d)
}
