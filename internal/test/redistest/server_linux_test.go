package redistest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// A killed test binary cannot clean up, so the kernel kills its server.
func TestServerDiesWithTestBinary(t *testing.T) {
	t.Parallel()
	New(t) // skips without a redis-server
	helper := exec.Command(os.Args[0], "-test.run=^TestHelperServer$")
	helper.Env = append(os.Environ(), "REDISTEST_HELPER=1")
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	var addr, dir string
	_, err = fmt.Fscan(out, &addr, &dir)
	helper.Process.Kill()
	helper.Wait()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	Eventually(t, patience, "the server dies with its parent", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}
