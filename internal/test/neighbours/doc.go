// Package neighbours fills a hub with limiters of every algorithm in every mode, with classes, with limits of calls
// in flight, and with a leased rate, and calls them by every verb. A world in which another limiter is tested has them in its hubs: whatever
// happens there must harm none of them, and they must not harm the limiter under test.
//
// No limit gives units back within a test, so the bound of a limiter is a number: its units, and the credit of its
// mode.
//
// The package is for tests. The product does not import it.
package neighbours
