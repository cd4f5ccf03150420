// Package ginlimit has the adapter for gin of docs/http.md.
package ginlimit

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/hybridlimit/hybridlimit/httplimit"
)

// Gin returns a middleware of httplimit as a handler of gin.
func Gin(mw func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		if !httplimit.Inside(mw, c.Writer, c.Request, c.FullPath(), c, func(r *http.Request) { c.Request = r; c.Next() }) {
			c.Abort()
		}
	}
}
