// Package ui tests the page of examples/playground in a headless Chromium. It clicks the buttons, and compares the
// figures on the page with the counts of the library. It is its own module, because of the browser's driver.
//
// go test takes about half a minute on two cores. HYBRIDLIMIT_LONG adds slow tests. -pictures DIR takes the pictures of
// the documents. make test-ui does both. Without a Chromium the tests are skipped, or fail if CI is set.
package ui
