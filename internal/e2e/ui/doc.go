// Package ui tests the page of examples/playground in a headless Chromium: it
// clicks what people click, and holds what they see against what the library
// has counted. It has a module of its own, so that nobody else needs a browser's
// driver.
//
// go test takes about half a minute on two cores; HYBRIDLIMIT_LONG adds what
// takes longer, and -pictures DIR takes the pictures of the documents (make
// test-ui does both). Without a Chromium its tests are skipped, and fail where
// CI is set.
package ui
