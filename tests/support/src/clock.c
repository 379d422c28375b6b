/* A wall clock that is ahead by as many microseconds as the file that LEASEHOLD_CLOCK names has, in
   binary. Loaded before the C library (LD_PRELOAD), it changes no clock but that. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("LEASEHOLD_CLOCK");
  int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0) : -1;
  if (file < 0) return;
  void *page = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
  if (page != MAP_FAILED) ahead = page;
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = (int)syscall(SYS_clock_gettime, clock, now);
  if (failed || !ahead || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
  int64_t micros = *ahead;
  now->tv_sec += micros / 1000000;
  now->tv_nsec += micros % 1000000 * 1000;
  if (now->tv_nsec < 0) {
    now->tv_nsec += 1000000000;
    now->tv_sec -= 1;
  } else if (now->tv_nsec >= 1000000000) {
    now->tv_nsec -= 1000000000;
    now->tv_sec += 1;
  }
  return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  (void)zone;
  struct timespec now;
  int failed = clock_gettime(CLOCK_REALTIME, &now);
  if (failed) return failed;
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *seconds) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (seconds) *seconds = now.tv_sec;
  return now.tv_sec;
}
