// A wall clock that can be moved, for a program that loads this library with
// LD_PRELOAD. The file named by CHAOS_CLOCK holds the seconds to add, as a
// number in the byte order of the machine. The monotonic clock is unchanged.
// libfaketime does the same, but does not work with the jemalloc of
// redis-server.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void open_offset(void) {
  const char *path = getenv("CHAOS_CLOCK");
  int fd = path ? open(path, O_RDONLY) : -1;
  void *p = fd < 0 ? MAP_FAILED : mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
  if (p != MAP_FAILED) offset = p;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
  long failed = syscall(SYS_clock_gettime, id, ts);
  if (!failed && id == CLOCK_REALTIME && offset) ts->tv_sec += *offset;
  return failed;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
  struct timespec ts;
  int failed = clock_gettime(CLOCK_REALTIME, &ts);
  (void)zone;
  tv->tv_sec = ts.tv_sec;
  tv->tv_usec = ts.tv_nsec / 1000;
  return failed;
}

time_t time(time_t *t) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  if (t) *t = ts.tv_sec;
  return ts.tv_sec;
}
