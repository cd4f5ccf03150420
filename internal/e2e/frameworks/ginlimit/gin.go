// Package ginlimit has the adapter for gin of docs/http.md.
package ginlimit

import (
	"cmp"
	"context"
	"net/http"

	"github.com/gin-gonic/gin"
)

// Gin returns a middleware of httplimit as a handler of gin.
func Gin(mw func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		ran := false
		next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ran, c.Request = true, r
			c.Next()
		})
		r := c.Request.WithContext(context.WithValue(c.Request.Context(), ginKey{}, c))
		r.Pattern = cmp.Or(c.FullPath(), "unmatched")
		mw(next).ServeHTTP(c.Writer, r)
		if !ran {
			c.Abort()
		}
	}
}

type ginKey struct{}

// GinContext returns the context of gin, for use in a key function.
func GinContext(r *http.Request) *gin.Context {
	return r.Context().Value(ginKey{}).(*gin.Context)
}
