package main

import (
	"os"
	"strconv"
	"strings"
)

// cpuTimes is the working time and the total time of the machine's processors.
type cpuTimes struct{ work, all float64 }

// readCPU reads the times on Linux. On other systems they are zero.
func readCPU() (t cpuTimes) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	for i, f := range strings.Fields(line) {
		n, err := strconv.ParseFloat(f, 64)
		if err != nil || i > 8 { // guests are counted under user
			continue
		}
		t.all += n
		if i != 4 && i != 5 { // idle, waiting for a disk
			t.work += n
		}
	}
	return t
}

// busy returns the share of the time since t that the processors worked, from 0
// to 1.
func (t cpuTimes) busy(now cpuTimes) float64 {
	if now.all <= t.all {
		return 0
	}
	return (now.work - t.work) / (now.all - t.all)
}
