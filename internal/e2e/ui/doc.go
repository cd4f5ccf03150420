// Package ui tests the page of examples/playground in a headless Chromium. It
// clicks on the page like a person, and compares the figures on the page with the
// counters of the library. It is a module of its own, so that only its tests need
// the driver of a browser.
//
// go test takes about half a minute on two cores. HYBRIDLIMIT_LONG adds longer
// tests, and -pictures DIR takes the pictures of the documents (make test-ui does
// both). Without a Chromium the tests are skipped, or fail if CI is set.
package ui
