package limitfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// nobody is the id of the user "nobody", who has no rights.
const nobody = 65534

// asNobody is readFile by a user whom permissions bind: nobody, if the test runs as
// root. It changes the user of file accesses of one thread.
func asNobody(path string) ([]byte, error) {
	if os.Geteuid() != 0 {
		return readFile(path)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	setfsuid := func(uid uintptr) (was uintptr) {
		was, _, _ = syscall.RawSyscall(syscall.SYS_SETFSUID, uid, 0, 0)
		return was
	}
	setfsuid(nobody)
	defer setfsuid(0)
	if now := setfsuid(nobody); now != nobody {
		return nil, errors.New("the user cannot be changed to nobody")
	}
	return readFile(path)
}

// The right to read the file is lost, and comes back.
func TestPermissionLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		must(t, os.Chmod(dir, 0o755))
		must(t, os.Chmod(filepath.Dir(dir), 0o755))
		path := filepath.Join(dir, "limits.json")
		write(t, path, limits("100"))
		r := start(t, path, asNobody)
		replay(t, r, []step{
			{func(t *testing.T, path string) { must(t, os.Chmod(path, 0)) }, 100, "permission denied"},
			{func(t *testing.T, path string) { must(t, os.Chmod(path, 0o644)); write(t, path, limits("200")) }, 200, ""},
			{func(t *testing.T, path string) { must(t, os.Chmod(filepath.Dir(path), 0)) }, 200, "permission denied"},
			{func(t *testing.T, path string) {
				if !errors.Is(r.Err(), fs.ErrPermission) {
					t.Errorf("%v", r.Err())
				}
				must(t, os.Chmod(filepath.Dir(path), 0o755))
			}, 200, ""},
		})
	})
}

// A pipe is refused, and not opened: opening it would wait for a writer.
func TestPipeInItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		replay(t, begun(t, limits("100")), []step{
			removed,
			{func(t *testing.T, path string) { must(t, syscall.Mkfifo(path, 0o644)) }, 100, "is not a regular file, but a pipe"},
			{func(t *testing.T, path string) { must(t, os.Remove(path)); write(t, path, limits("200")) }, 200, ""},
		})
	})
}

// A device is refused. It would give bytes without an end.
func TestDeviceInItsPlace(t *testing.T) {
	if _, err := readFile("/dev/zero"); err == nil || !strings.HasPrefix(err.Error(), "limitfile: read /dev/zero: is not a regular file, but of mode Dcrw") {
		t.Errorf("%v", err)
	}
}
